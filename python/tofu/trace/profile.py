"""Reads a profile that MXNet wrote: its operators by worker, named by the user's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from tofu.plans import OperatorPlan
from tofu.plans.layers import direction_of, layer_of
from tofu.plans.names import readable

from .labels import Node
from .timeline import COMPUTATION, FETCH, Operator

__all__ = ["operator_of", "read_profile"]

Find = Callable[[str], Optional[Node]]
_CATEGORIES = ("operator", "Custom Operator")
# Work of the engine itself, and Python calls that last until all work that they push has run.
_BOOKKEEPING = (
    "DeleteVariable", "WaitForVar", "SetupExec", "_backward_CustomFunction", "CustomFunction",
)  # fmt: skip
_COPY = "Copy"  # CopyCPU2CPU, CopyGPU2GPU, ...
_CROSSING = "_CrossDeviceCopy"
_OUTSIDE = "(other)"
_UPDATES = "(updates)"


def read_profile(document: Mapping[str, Any], find: Find) -> tuple[list[str], list[Operator]]:
    """Read a profile.

    Args:
        document: the document that the profiler wrote.
        find: finds the node that a name of the profiler stands for.

    Returns:
        The devices of the workers, and all operators on them.
    """
    events = document["traceEvents"]
    devices = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    spans = list(_spans(events))
    pids = {span[0]["pid"] for span in spans if find(span[0]["name"]) is not None}
    workers = {pid: number for number, pid in enumerate(sorted(pids))}
    operators = [
        _operator(workers[begin["pid"]], begin["name"], float(begin["ts"]), float(end["ts"]), find)
        for begin, end in spans
        if begin["pid"] in workers and begin["name"].rpartition("::")[2] not in _BOOKKEEPING
    ]
    return [devices[pid] for pid in workers], operators


def _spans(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """Pairs of a begin and an end, which the profiler writes one after the other."""
    for begin, end in zip(events, events[1:]):
        if begin["ph"] == "B" and end["ph"] == "E" and begin["cat"] in _CATEGORIES:
            yield begin, end


def _operator(worker: int, event: str, begin: float, end: float, find: Find) -> Operator:
    node = find(event)
    if node is not None:
        return operator_of(worker, begin, end, node)
    op = event.rpartition("::")[2]
    if op.startswith(_COPY):
        return Operator(worker, begin, end, f"copy ({op})", FETCH, _OUTSIDE)
    layer = _UPDATES if "update" in op else _OUTSIDE
    return Operator(worker, begin, end, op, COMPUTATION, layer)


def operator_of(worker: int, begin: float, end: float, node: Node) -> Operator:
    """A node of a partitioned graph that ran, or is predicted to run.

    "dense0_fwd@1" computes; "dense0_fwd@1/in0/fetch" fetches for it.
    """
    base, _, rest = node.name.partition("@")
    part = rest.partition("/")[2]
    moves = bool(part) or node.op == _CROSSING
    layer = layer_of(base, is_variable=node.is_of_variable)
    direction = direction_of(OperatorPlan(base, node.op, (), 0))
    details = {"direction": direction, "operator": node.op, "node": node.name}
    label = readable(base)
    name = f"{label}: {part or 'copy'}" if moves else label
    return Operator(worker, begin, end, name, FETCH if moves else COMPUTATION, layer, details)
