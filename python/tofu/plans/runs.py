"""The tensors of a training whole and partitioned, in single and in double precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

__all__ = ["UNUSUAL", "Arrays", "Difference", "Runs"]

Arrays = Mapping[str, Any]

# Double precision: below this, a relative difference is rounding, whatever single precision says.
_ROUNDING = 1e-9
UNUSUAL = 1e-3  # single precision: a larger difference is worth an explanation
# A rounding difference is at least this much smaller in double than in single precision.
_SHRINKS = 1e-4


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


@dataclasses.dataclass(frozen=True)
class Runs:
    """The tensors of a whole and a partitioned run by "STEP/KIND/NAME", in the order of the run.

    Attributes:
        single: of both runs in float32.
        double: the same in float64; None if the model does not run in float64.
        is_random: whether the model draws random numbers.
        no_double: the reason if it does not run in float64.
    """

    single: tuple[Arrays, Arrays]
    double: Optional[tuple[Arrays, Arrays]]
    is_random: bool
    no_double: str = ""

    def wrong_operators(self, fault: Optional[Difference]) -> list[dict[str, Any]]:
        """Operators that give something else in parts; none if operators are not run alone."""
        return []

    def cause(self, unusual: Difference) -> str:
        """A sentence on an unusual difference in float32; "": nothing is known of it."""
        return ""
