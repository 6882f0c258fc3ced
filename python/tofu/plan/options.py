"""How a plan is searched: what ``_core.plan`` takes besides a graph and its table."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

from tofu.errors import PlanError

__all__ = ["Pins", "SearchOptions", "check_pins", "tensor_names"]

Pins = Mapping[str, Sequence[int]]
_CLOSE_NAMES = 3


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """What a user may ask of the search.

    Attributes:
        mode: one of config.MODES.
        time_limit_s: seconds after which the best plan so far is taken; None: the default.
        pins: tensor and the dimension to cut, one for all steps or one for each;
            -1 leaves it whole.
        allow_replication: whether large tensors may be left whole where that is cheaper.
        bound: whether the time that is left is spent on a better lower bound.
        coarsen: whether tensors and operators that are partitioned alike are decided once.
        parts: into how many parts each step cuts, in order; empty: the search chooses.
    """

    mode: str = "tofu"
    time_limit_s: Optional[float] = None
    pins: tuple[tuple[str, tuple[int, ...]], ...] = ()
    allow_replication: bool = False
    bound: bool = False
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
        if self.bound:
            found["bound"] = True
        if not self.coarsen:
            found["coarsen"] = False
        return found


def tensor_names(graph_json: str) -> set[str]:
    """The tensors of a graph, which pins may name: NODE, or NODE[1] for a further output."""
    graph = json.loads(graph_json)
    starts = graph["node_row_ptr"]
    return {
        name if output == 0 else f"{name}[{output}]"
        for node, start, end in zip(graph["nodes"], starts, starts[1:])
        for name in [node["name"]]
        for output in range(end - start)
    }


def check_pins(pins: Iterable[tuple[str, Sequence[int]]], names: Collection[str]) -> None:
    """Raise PlanError for a pin of a tensor that is none of `names`."""
    for name, _ in pins:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=_CLOSE_NAMES, cutoff=0.4)
            raise PlanError(
                f"pin {name}: the graph has no tensor of that name"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
