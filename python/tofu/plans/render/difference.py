"""Compares two plans of a graph, or of two similar graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tofu.tables import table

from ..layers import layers_of
from ..plan import OperatorPlan, Plan, TensorPlan, format_bytes
from .text import ROWS, cuts_text, tiles_text

__all__ = ["differ", "difference_document", "render_difference"]


def differ(first: Plan, second: Plan) -> bool:
    """Whether two plans cut, or cost, anything differently."""
    return (first.parts, first.tensors, first.operators, first.total_bytes) != (
        second.parts, second.tensors, second.operators, second.total_bytes,
    )  # fmt: skip


def render_difference(
    first: Plan, second: Plan, names: tuple[str, str], *, everything: bool = False
) -> str:
    """The difference as text: cost and memory, layers, then tensors and operators.

    Args:
        first: a plan.
        second: another one.
        names: the plans' names in the text.
        everything: whether to show all rows instead of the largest differences.
    """
    lines = [f"{name}: {_about(plan)}" for name, plan in zip(names, (first, second))]
    if not differ(first, second):
        return "\n".join([*lines, "the plans cut everything alike"]) + "\n"
    most = None if everything else ROWS
    header = ("", *names, "change")
    lines += ["", *table(header, _totals(first, second), right=(1, 2, 3))]
    layers = list(_layers(first, second))
    if layers:
        lines += ["", "Bytes fetched by layer, largest changes first", ""]
        lines += table(("layer", *names, "change"), layers[:most], right=(1, 2, 3))
        lines += _rest(layers, most, "layers")
    tensors = list(_tensors(first, second))
    if tensors:
        lines += ["", "Tensors cut differently (tiles, cut per step), largest first", ""]
        lines += table(("tensor", "shape", *names), tensors[:most])
        lines += _rest(tensors, most, "tensors")
    operators = list(_operators(first, second))
    if operators:
        lines += ["", "Operators split differently (per step, bytes fetched)", ""]
        lines += table(("operator", "kind", *names), operators[:most])
        lines += _rest(operators, most, "operators")
    return "\n".join(lines) + "\n"


def difference_document(first: Plan, second: Plan, names: tuple[str, str]) -> dict[str, Any]:
    """The difference as JSON (docs/formats.md); of each pair, the first plan's value is first."""
    plans = (first, second)
    layers = [{each.name: each.total_bytes for each in layers_of(plan)} for plan in plans]
    tensors = [{each.label: each.cuts for each in plan.tensors} for plan in plans]
    operators = [{o.label: {"cuts": o.cuts, "bytes": o.bytes} for o in p.operators} for p in plans]
    return {
        "format": "tofu-difference",
        "version": 1,
        "plans": list(names),
        "differ": differ(first, second),
        "communicated_bytes": [plan.total_bytes for plan in plans],
        "bytes_per_worker": [dict(plan.bytes_per_worker) for plan in plans],
        "layers": _changed(layers),
        "tensors": _changed(tensors),
        "operators": _changed(operators),
    }


def _changed(values: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The values that differ, by name; None if a plan has no such name."""
    before, after = values
    names = {**before, **after}
    pairs = {name: [before.get(name), after.get(name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _about(plan: Plan) -> str:
    steps = f" ({plan.parts.text})" if len(plan.parts) > 1 or not plan.parts.are_equal else ""
    return (
        f"{plan.model or 'a graph'}, graph {plan.graph_hash}, {plan.workers} workers{steps}, "
        f"search mode {plan.mode}, {plan.quality()}"
    )


def _totals(first: Plan, second: Plan) -> Iterator[tuple[str, ...]]:
    yield "communicated per step", *_pair(first.total_bytes, second.total_bytes)
    kinds = {**first.bytes_per_worker, **second.bytes_per_worker}
    for kind in kinds:
        held = [plan.bytes_per_worker.get(kind, 0) for plan in (first, second)]
        yield f"a worker's {kind.replace('_', ' ')}", *_pair(*held)
    if kinds:
        yield (
            "a worker, in all",
            *_pair(sum(first.bytes_per_worker.values()), sum(second.bytes_per_worker.values())),
        )


def _pair(before: int, after: int) -> tuple[str, str, str]:
    if before == after:
        return format_bytes(before), format_bytes(after), ""
    sign = "+" if after > before else "-"
    return format_bytes(before), format_bytes(after), f"{sign}{format_bytes(abs(after - before))}"


def _layers(first: Plan, second: Plan) -> Iterator[tuple[str, ...]]:
    before, after = (
        {each.name: each.total_bytes for each in layers_of(p)} for p in (first, second)
    )
    names = [n for n in {**before, **after} if before.get(n, 0) != after.get(n, 0)]
    for name in sorted(names, key=lambda n: (-abs(after.get(n, 0) - before.get(n, 0)), n)):
        yield name, *_pair(before.get(name, 0), after.get(name, 0))


def _tensors(first: Plan, second: Plan) -> Iterator[tuple[str, ...]]:
    before, after = ({tensor.label: tensor for tensor in p.tensors} for p in (first, second))

    def describe(tensor: TensorPlan | None, plan: Plan) -> str:
        if tensor is None:
            return "(none)"
        return f"{tiles_text(tensor, plan.parts)}, {cuts_text(tensor)}"

    rows = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        texts = describe(old, first), describe(new, second)
        tensor = old or new
        same_shape = old is None or new is None or old.shape == new.shape
        if tensor is not None and (texts[0] != texts[1] or not same_shape):
            shapes = dict.fromkeys(_shape(t) for t in (old, new) if t is not None)
            rows.append((-tensor.bytes, (name, " | ".join(shapes), *texts)))
    yield from (row for _, row in sorted(rows))


def _operators(first: Plan, second: Plan) -> Iterator[tuple[str, ...]]:
    before, after = (
        {operator.label: operator for operator in p.operators} for p in (first, second)
    )

    def describe(operator: OperatorPlan | None) -> str:
        if operator is None:
            return "(none)"
        return f"{' '.join(cut or '-' for cut in operator.cuts) or '-'}, {operator.bytes:,}"

    rows = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        operator = old or new
        if operator is not None and describe(old) != describe(new):
            change = abs((old.bytes if old else 0) - (new.bytes if new else 0))
            rows.append((-change, (name, operator.op, describe(old), describe(new))))
    yield from (row for _, row in sorted(rows))


def _shape(tensor: TensorPlan) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _rest(rows: Sequence[tuple[str, ...]], most: int | None, what: str) -> list[str]:
    rest = len(rows) - most if most is not None else 0
    return [f"... and {rest:,} more {what}; --all shows all"] if rest > 0 else []
