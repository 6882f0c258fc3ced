"""How a plan is searched: what ``_core.plan`` takes besides a graph and its table."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Optional

from ..errors import PlanError

__all__ = ["Pins", "SearchOptions", "number_of_steps", "spread_pins", "variable_names"]

Pins = Mapping[str, Sequence[int]]
_CLOSE_NAMES = 3


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """What a user may ask of the search.

    Attributes:
        mode: one of config.MODES.
        time_limit_s: seconds after which the best plan so far is taken; None: the default.
        pins: variable and the dimension to cut, one for all steps or one for each;
            -1 leaves it whole.
        allow_replication: whether large tensors may be left whole where that is cheaper.
        coarsen: whether tensors and operators that are partitioned alike are decided once.
    """

    mode: str = "tofu"
    time_limit_s: Optional[float] = None
    pins: tuple[tuple[str, tuple[int, ...]], ...] = ()
    allow_replication: bool = False
    coarsen: bool = True

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``_core.plan`` that differ from its defaults."""
        found: dict[str, Any] = {"mode": self.mode}
        if self.time_limit_s is not None:
            found["time_limit_s"] = self.time_limit_s
        if self.allow_replication:
            found["allow_replication"] = True
        if not self.coarsen:
            found["coarsen"] = False
        return found


def variable_names(graph_json: str) -> list[str]:
    """The variables of a graph, which pins may name."""
    return [node["name"] for node in json.loads(graph_json)["nodes"] if node["op"] == "null"]


def spread_pins(
    pins: Sequence[tuple[str, Sequence[int]]], names: Collection[str], workers: int
) -> dict[str, list[int]]:
    """Pins with one dimension for every step.

    Args:
        pins: variable and its dimensions, one for all steps or one for each.
        names: the variables that there are.
        workers: number of workers.

    Raises:
        PlanError: there is no such variable, or a number of dimensions that is no number
            of steps.
    """
    steps = number_of_steps(workers)
    found = {}
    for name, cuts in pins:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=_CLOSE_NAMES, cutoff=0.4)
            raise PlanError(
                f"pin {name}: the graph has no variable of that name"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
        if len(cuts) not in (1, steps):
            raise PlanError(
                f"pin {name}={','.join(map(str, cuts))}: {len(cuts)} dimensions; expected one for "
                f"all, or one for each, of the {steps} steps that {workers} workers take"
            )
        found[name] = list(cuts) * (steps if len(cuts) == 1 else 1)
    return found


def number_of_steps(workers: int) -> int:
    """How many steps a plan for so many workers has: a prime factor each.

    >>> [number_of_steps(workers) for workers in (1, 2, 8, 12)]
    [0, 1, 3, 3]
    """
    steps, factor = 0, 2
    while workers > 1:
        if workers % factor:
            factor += 1
        else:
            workers //= factor
            steps += 1
    return steps
