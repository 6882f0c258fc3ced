"""The class of an operator, determined from the terms of its description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tofu.analysis.apply_row import extent_of, parts_of
from tofu.lang import Shape, Trace, ir

__all__ = ["CLASSES", "INEXPRESSIBLE", "UNRUN", "class_of", "counts"]

INEXPRESSIBLE = "not expressible"
UNRUN = "described, not run"
CLASSES = (
    "element-wise",
    "broadcast",
    "reduction",
    "contraction",
    "data movement",
    "opaque with batch dimensions",
    "random",
    "optimizer update",
    UNRUN,
    INEXPRESSIBLE,
)
_UPDATE = "update"  # the function's name in descriptions of weight updates


def class_of(trace: Trace, row: Mapping[str, Any]) -> str:
    """The class of an operator, from its executed description and its row.

    The first of these that fits: random; a weight update; an opaque function; a sum of
    products of different tensors; another reduction; the same index everywhere; elements
    that only move; else a function of broadcast tensors.
    """
    terms = [e for out in trace.outputs for e in ir.walk(out.body)]
    opaque = [e for e in terms if isinstance(e, ir.OpaqueElement)]
    reductions = [e for e in terms if isinstance(e, ir.Reduce)]
    calls = [e for e in terms if isinstance(e, ir.Call) and e.function != "like"]
    if row["random"]:
        return "random"
    if _UPDATE in {*(e.function.lower() for e in opaque), *(e.function.lower() for e in calls)}:
        return "optimizer update"
    if opaque:
        return "opaque with batch dimensions"
    if any(e.kind == "sum" and _is_product(e.body) for e in reductions):
        return "contraction"
    if reductions:
        return "reduction"
    if row["elementwise"]:
        return "element-wise"
    if not calls and not any(_stretches(trace)):
        return "data movement"
    return "broadcast"


def counts(
    row: Mapping[str, Any],
    attrs: Mapping[str, str],
    ins: Sequence[Shape],
    outs: Sequence[Shape],
) -> tuple[int, int, int]:
    """Counts a row's strategies, those that reduce, and those that read a halo."""
    reduced = {int(var) for out in row["outputs"] for var in out["reduce"]}
    split = row["splittable"]
    halos = 0
    for var in split:
        extent = extent_of(row["vars"][var]["extent"], ins, outs)
        halves = (var, (extent - extent // 2, extent // 2))
        first, second = parts_of(row, attrs, ins, outs, [halves])
        halos += any(
            a != b and a[1] > b[0] and b[1] > a[0]
            for first_box, second_box in zip(first.inputs, second.inputs)
            for a, b in zip(first_box, second_box)
        )
    return len(split), len(reduced.intersection(split)), halos


def _is_product(expr: ir.Expr) -> bool:
    """Whether the expression contains a product of two tensors' elements."""
    for e in ir.walk(expr):
        if isinstance(e, ir.Call) and e.function == "mul":
            slots = [{element.slot for element in ir.elements(arg)} for arg in e.args]
            if all(slots) and len(set.union(*slots)) > 1:
                return True
    return False


def _stretches(trace: Trace) -> Iterator[bool]:
    """Yields, for every element, whether it is constant along some variable of its output."""
    for output in trace.outputs:
        for element in ir.elements(output.body):
            dims = [d for d in element.dims if isinstance(d, ir.Index)]
            read = frozenset().union(*(d.variables for d in dims))
            yield not set(output.variables) <= read
