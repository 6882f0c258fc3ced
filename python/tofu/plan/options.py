"""The options of the plan search (``_core.plan``)."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

from tofu.errors import PlanError

__all__ = ["Pins", "SearchOptions", "check_pins"]

Pins = Mapping[str, Sequence[int]]
_CLOSE_NAMES = 3


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The user's options for the search.

    Attributes:
        mode: one of config.MODES.
        time_limit_s: seconds after which the search takes its best plan; None: the default.
        pins: tensor and the dimension to cut, one for all steps or one per step;
            -1 leaves it whole.
        allow_replication: whether large tensors may stay whole where that is cheaper.
        coarsen: whether to decide once for tensors and operators that are partitioned alike.
        parts: the number of parts that each step cuts into; empty: the search chooses.
    """

    mode: str = "tofu"
    time_limit_s: Optional[float] = None
    pins: tuple[tuple[str, tuple[int, ...]], ...] = ()
    allow_replication: bool = False
    coarsen: bool = True
    parts: tuple[int, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``_core.plan`` that differ from its defaults."""
        found: dict[str, Any] = {"mode": self.mode}
        if self.time_limit_s is not None:
            found["time_limit_s"] = self.time_limit_s
        if self.parts:
            found["parts"] = list(self.parts)
        if self.allow_replication:
            found["allow_replication"] = True
        if not self.coarsen:
            found["coarsen"] = False
        return found


def check_pins(pins: Iterable[tuple[str, Sequence[int]]], names: Collection[str]) -> None:
    """Raise PlanError for a pin of a tensor that is not in `names`."""
    for name, _ in pins:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=_CLOSE_NAMES, cutoff=0.4)
            raise PlanError(
                f"pin {name}: the graph has no tensor of that name"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
