"""Compares a script's whole and partitioned results, in single and in double precision.

Rounding and faults look alike in single precision. In double precision a difference by rounding
shrinks by a factor of about 10^8; one by a fault stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from tofu.plans.runs import UNUSUAL, Arrays, Difference

__all__ = ["compare", "first_fault", "first_unusual", "read_arrays"]

# A tensor is measured by its own largest value, or by this share of the largest of its kind:
# otherwise a tensor that is zero but for rounding would differ by its whole value.
_FLOOR = 1e-2


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an npz file."""
    with np.load(path) as arrays:
        return {key: arrays[key] for key in arrays.files}


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
