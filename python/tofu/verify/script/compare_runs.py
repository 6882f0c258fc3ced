"""Compares a script's whole and partitioned results, in single and in double precision.

Rounding and faults look alike in single precision. In double precision a difference by rounding
shrinks by a factor of about 10^8; one by a fault stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

__all__ = ["UNUSUAL", "Difference", "compare", "first_fault", "first_unusual"]

# Double precision: below this, a relative difference is rounding, whatever single precision says.
_ROUNDING = 1e-9
UNUSUAL = 1e-3  # single precision: a larger difference is worth an explanation
# A rounding difference is at least this much smaller in double than in single precision.
_SHRINKS = 1e-4
# A tensor is measured by its own largest value, or by this share of the largest of its kind:
# otherwise a tensor that is zero but for rounding would differ by its whole value.
_FLOOR = 1e-2


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of one tensor at one step.

    Attributes:
        step: the step, from 1.
        kind: "output", "gradient" or "weight".
        name: the tensor.
        single: its largest relative difference in float32.
        double: the same in float64; None if the script does not run in float64.
    """

    step: int
    kind: str
    name: str
    single: float
    double: Optional[float]

    @property
    def is_fault(self) -> bool:
        """Whether rounding cannot explain the difference; in float32 alone, usual rounding."""
        if self.double is None:
            return not self.single <= UNUSUAL
        return not self.double <= max(_ROUNDING, _SHRINKS * min(self.single, 1.0))


Arrays = Mapping[str, Any]


def compare(
    single: tuple[Arrays, Arrays], double: Optional[tuple[Arrays, Arrays]] = None
) -> list[Difference]:
    """The differences of all tensors, in the order in which they were computed.

    Args:
        single: the results of the whole and the partitioned run in float32.
        double: the same in float64, if the script runs so.
    """
    differences = []
    for key in dict.fromkeys(key for arrays in (*single, *(double or ())) for key in arrays):
        step, kind, name = key.split("/", 2)
        in_double = None if double is None else _relative(key, *double)
        differences.append(Difference(int(step), kind, name, _relative(key, *single), in_double))
    return differences


def first_fault(differences: Sequence[Difference]) -> Difference | None:
    """The first tensor that rounding cannot explain."""
    return next((each for each in differences if each.is_fault), None)


def first_unusual(differences: Sequence[Difference]) -> Difference | None:
    """The first tensor that differs more in float32 than rounding usually makes it."""
    return next((each for each in differences if each.single > UNUSUAL), None)


def _relative(key: str, whole: Arrays, parted: Arrays) -> float:
    """The largest difference of a tensor, relative to its values; infinite if one run lacks it."""
    if key not in whole or key not in parted:
        return float("inf")
    a, b = (np.asarray(arrays[key], dtype=np.float64) for arrays in (whole, parted))
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(_largest(a), _FLOOR * _scale(key.rpartition("/")[0].split("/")[:2], whole))
    change = float(np.abs(a[finite] - b[finite]).max())
    return change / scale if scale else (float("inf") if change else 0.0)


def _scale(place: Sequence[str], whole: Arrays) -> float:
    """The largest value of all tensors of a kind at a step."""
    prefix = "/".join(place) + "/"
    return max(
        (_largest(array) for key, array in whole.items() if key.startswith(prefix)), default=0
    )


def _largest(array: Any) -> float:
    values = np.abs(np.asarray(array, dtype=np.float64))
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else 0.0
