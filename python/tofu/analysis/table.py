"""The strategy table: one row per operator, shapes and attributes (docs/formats.md).

Example:
    >>> from tofu.analysis import row_for
    >>> row = row_for("relu", {}, [(8, 16)], [(8, 16)])
    >>> row["elementwise"], row["splittable"]
    (True, [0, 1])
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from tofu.analysis.described import description_of
from tofu.analysis.part_check import Instance, anchored, holds
from tofu.analysis.result import Analysis, InputRegion, Strategy
from tofu.analysis.strategies import analyze_trace, concrete_extents, told
from tofu.analysis.terms import passes_terms
from tofu.errors import InconclusiveError
from tofu.lang.description import Description, Rewrite
from tofu.lang.interval import Form, Interval
from tofu.lang.tracing import Shape

__all__ = [
    "SCRATCH",
    "TABLE_VERSION",
    "Row",
    "described_name",
    "document",
    "reason_to_decline",
    "keeps_state",
    "row_for",
    "unweighted",
]

TABLE_VERSION = 1
# Marks an operator that writes to inputs, all of which are scratch tensors of its own.
SCRATCH = "__tofu_scratch__"
_FORMAT = "tofu-strategy-table"
# More than one graph needs. Without a limit, every new batch size would take more memory.
_ROWS_KEPT, _ANALYSES_KEPT = 4096, 1024
_PARTS_TRIED = (2, 3, 5, 7)
_OF_ONE = ("size", "begin")  # values of rewrites that name one variable
_CUSTOM = "Custom"
_STAND_INS = {"tofu_operator": "Custom", "tofu_gradient": "_backward_Custom"}
_GRADIENT_OF = {"tofu_gradient": "_backward"}
_CONTROL_FLOW = "tofu_control_flow"
_REPLAY = "tofu_replay"
Row = dict[str, Any]


def row_for(
    op: str,
    attrs: Mapping[str, str],
    input_shapes: Sequence[Shape],
    output_shapes: Sequence[Shape],
) -> Optional[Row]:
    """Return the strategy table's row of an operator, or None if it has no description.

    Args:
        op: the operator's name.
        attrs: the operator's attributes, as MXNet's strings.
        input_shapes: one shape per input.
        output_shapes: one shape per output, hidden ones included.

    Returns:
        A row (docs/formats.md), shared between calls: do not change it. Also None for
        attributes that the description does not cover.

    Raises:
        TdlError: the description is wrong, or does not fit these shapes.
    """
    name, attributes = described_name(op, attrs)
    return _row(
        name,
        tuple(sorted(attributes.items())),
        tuple(tuple(s) for s in input_shapes),
        tuple(tuple(s) for s in output_shapes),
    )


def reason_to_decline(
    op: str,
    attrs: Mapping[str, str],
    input_shapes: Sequence[Shape],
    output_shapes: Sequence[Shape],
) -> str:
    """Say why a description does not cover a call that ``row_for`` has no row for.

    Returns "" if there is no description.
    """
    name, attributes = described_name(op, attrs)
    description = description_of(name)
    if description is None:
        return ""
    try:
        _analysed(name, description, attributes, tuple(input_shapes), tuple(output_shapes))
    except InconclusiveError as error:
        return str(error)
    return ""


def keeps_state(op: str, attrs: Mapping[str, str]) -> bool:
    """Whether a second run of an operator may change something besides its outputs.

    Descriptions tell. Of operators that are written in Python nothing is known.
    """
    name, _ = described_name(op, attrs)
    description = description_of(name)
    is_stateful = description is not None and description.stateful and SCRATCH not in attrs
    return name != op or is_stateful


def unweighted(row: Row) -> Row:
    """The row without the variables that weighted parts combine along."""
    weighted = {
        int(variable)
        for output in row["outputs"]
        for variable, reducer in output["reduce"].items()
        if reducer == "weighted"
    }
    if not weighted:
        return row
    return {**row, "splittable": [v for v in row["splittable"] if v not in weighted]}


def document(rows: Iterable[Optional[Row]]) -> str:
    """The strategy table of a graph as JSON, from one row (or None) per node."""
    numbers: dict[int, int] = {}
    unique: list[Row] = []
    nodes = []
    for row in rows:
        if row is None:
            nodes.append(-1)
            continue
        if id(row) not in numbers:
            numbers[id(row)] = len(unique)
            unique.append(row)
        nodes.append(numbers[id(row)])
    return json.dumps({"format": _FORMAT, "version": TABLE_VERSION, "nodes": nodes, "rows": unique})


def described_name(op: str, attrs: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The name and attributes of an operator in its description.

    MXNet calls all operators written in Python Custom. Descriptions call them ``Custom:NAME``,
    with the name under which they were registered, and their gradients
    ``_backward_Custom:NAME``.
    """
    kind = attrs.get("op_type", "") if op == _CUSTOM else ""
    if kind == _REPLAY:  # tofu.mx.graphs.replay
        return attrs["of"], json.loads(attrs["arguments"])
    if kind in _STAND_INS:  # tofu.mx.graphs.custom
        arguments = json.loads(attrs["arguments"])
        if attrs["of"] == _CONTROL_FLOW:  # tofu.mx.graphs.branches
            return f"{_GRADIENT_OF.get(kind, '')}{arguments['operator']}", arguments
        return f"{_STAND_INS[kind]}:{attrs['of']}", arguments
    if kind:
        return f"{op}:{kind}", {k: v for k, v in attrs.items() if k != "op_type"}
    return op, attrs


@functools.lru_cache(maxsize=_ROWS_KEPT)
def _row(
    op: str,
    attrs: tuple[tuple[str, str], ...],
    ins: tuple[Shape, ...],
    outs: tuple[Shape, ...],
) -> Optional[Row]:
    description = description_of(op)
    if description is None:
        return None
    key = (op, attrs, _kinds(ins), _kinds(outs))
    row = _SYMBOLIC.get(key)
    if row is None:
        try:
            row = _analysed(op, description, dict(attrs), ins, outs)
        except InconclusiveError:
            return None
        if not row.reads_sizes:
            _SYMBOLIC[key] = row
            if len(_SYMBOLIC) > _ANALYSES_KEPT:
                del _SYMBOLIC[next(iter(_SYMBOLIC))]
    else:
        concrete_extents(row.analysis.trace, row.analysis.extents, ins, outs)
    one_shape = len({*ins, *outs}) == 1
    return row.row if one_shape or not row.row["elementwise"] else row.unequal_row


@dataclasses.dataclass(frozen=True)
class _Symbolic:
    """An analysis, valid for all sizes if `reads_sizes` is false.

    `row` is its row if all shapes are the same, otherwise `unequal_row`.
    """

    analysis: Analysis
    row: Row
    unequal_row: Row
    reads_sizes: bool


_SYMBOLIC: dict[tuple[Any, ...], _Symbolic] = {}


def _kinds(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Replace every size by 0, 1 or 2 (more); a row depends on nothing else."""
    return tuple(tuple(min(size, 2) for size in shape) for shape in shapes)


def _analysed(
    op: str,
    description: Description,
    attributes: Mapping[str, str],
    ins: tuple[Shape, ...],
    outs: tuple[Shape, ...],
) -> _Symbolic:
    declared, reads_sizes = description.rewrites(ins, attributes)
    analysis = analyze_trace(description.trace(ins, outs, attributes), told(declared))
    analysis = dataclasses.replace(analysis, inputs=tuple(anchored(r) for r in analysis.inputs))
    extents = concrete_extents(analysis.trace, analysis.extents, ins, outs)
    rewrites = _with_variables(declared, tuple(extents))
    instance = Instance(description, analysis, ins, outs, attributes, extents, rewrites)
    row = _emit(op, instance, _splittable(instance))
    unequal_row = {**row, "elementwise": False}
    return _Symbolic(analysis, row, unequal_row, reads_sizes or analysis.trace.reads_sizes)


def _with_variables(rewrites: Iterable[Rewrite], names: tuple[str, ...]) -> tuple[Rewrite, ...]:
    """Fills in `when` of rewrites."""
    result = []
    for rewrite in rewrites:
        when = rewrite.when
        if when is None and rewrite.value.keys() & _OF_ONE:
            when = tuple(rewrite.value[key] for key in _OF_ONE if key in rewrite.value)
        elif when is None and "sizes" in rewrite.value:
            when = tuple(rewrite.value["sizes"])
        when = names if when is None else tuple(n for n in when if n in names)
        if when:
            result.append(Rewrite(rewrite.name, rewrite.value, when))
    return tuple(result)


def _whole_ranges(instance: Instance) -> dict[str, tuple[int, int]]:
    return {name: (0, extent - 1) for name, extent in instance.extents.items()}


def _splittable(instance: Instance) -> tuple[Strategy, ...]:
    """The strategies that hold for these exact shapes, alone and together."""
    strategies = [
        s
        for s in instance.analysis.strategies
        if instance.extents[s.variable] > 1 and _every_part_holds(instance, s.variable)
    ]
    while len(strategies) > 1 and not _together(instance, [s.variable for s in strategies]):
        strategies.pop()
    return tuple(strategies)


def _every_part_holds(instance: Instance, variable: str) -> bool:
    extent = instance.extents[variable]
    tried = [p for p in _PARTS_TRIED if extent % p == 0][:2] or [extent]
    for parts in tried:
        size = extent // parts
        for part in sorted({0, 1, parts - 1}):
            ranges = _whole_ranges(instance)
            ranges[variable] = (part * size, (part + 1) * size - 1)
            if not holds(instance, ranges, (variable,)):
                return False
    return True


def _together(instance: Instance, variables: Sequence[str]) -> bool:
    ranges = _whole_ranges(instance)
    for name in variables:
        extent = instance.extents[name]
        parts = next((p for p in _PARTS_TRIED if extent % p == 0), extent)
        ranges[name] = (extent - extent // parts, extent - 1)
    return holds(instance, ranges, variables)


# --- JSON --------------------------------------------------------------------------


def _emit(op: str, instance: Instance, strategies: Sequence[Strategy]) -> Row:
    analysis = instance.analysis
    numbers = {name: k for k, name in enumerate(analysis.extents)}
    split = [s.variable for s in strategies]
    splits_all = {n for n, extent in instance.extents.items() if extent > 1} == set(split)
    return {
        "op": op,
        "source": instance.description.location,
        "elementwise": analysis.pointwise and splits_all,
        "random": instance.description.random,
        "linear": not instance.description.random and passes_terms(analysis.trace),
        "vars": [{"name": name, "extent": _extent(analysis, name)} for name in numbers],
        "splittable": [numbers[name] for name in split],
        "outputs": [
            _output(k, output.like, analysis, strategies, numbers)
            for k, output in enumerate(analysis.trace.outputs)
        ],
        "inputs": [
            _input(region, shape, slot, strategies, numbers)
            for slot, (region, shape) in enumerate(zip(analysis.inputs, instance.in_shapes))
        ],
        "attrs": [
            {
                "name": rewrite.name,
                "vars": [numbers[n] for n in rewrite.when or ()],
                "value": _rewrite_value(rewrite, numbers),
            }
            for rewrite in instance.rewrites
            if set(rewrite.when or ()) & set(split)
        ],
    }


def _extent(analysis: Analysis, name: str) -> Any:
    extent = analysis.extents[name]
    if extent.kind == "constant":
        return extent.constant
    return [extent.kind, extent.slot, extent.dim]


def _output(
    k: int,
    like: Optional[int],
    analysis: Analysis,
    strategies: Sequence[Strategy],
    numbers: Mapping[str, int],
) -> Row:
    reduce = {
        str(numbers[s.variable]): s.outputs[k].reducer
        for s in strategies
        if s.outputs[k].reducer is not None
    }
    row = {"dims": [_range(i, numbers) for i in analysis.outputs[k]], "reduce": reduce}
    weights = next((w for s in strategies for w in [s.outputs[k].weights] if w is not None), None)
    if weights is not None:
        own, index = analysis.trace.outputs[k].index, analysis.trace.outputs[weights].index
        row["weights"] = {"output": weights, "dims": [own.index(i) for i in index]}
    return row if like is None else {**row, "like": like}


def _input(
    region: Optional[InputRegion],
    shape: Shape,
    slot: int,
    strategies: Sequence[Strategy],
    numbers: Mapping[str, int],
) -> Row:
    if region is None:
        return {"dims": [None] * len(shape), "only_first": []}
    row: Row = {
        "dims": [None if d is None else _range(d, numbers) for d in region.dims],
        "only_first": [numbers[s.variable] for s in strategies if slot in s.only_first],
    }
    if region.fill is not None and region.pad_variables:
        fill = region.fill if region.fill == "-inf" else float(region.fill)
        row["pad"] = {
            "vars": [numbers[n] for n in region.pad_variables],
            "fill": int(fill) if fill == 0 else fill,
        }
    return row


def _rewrite_value(rewrite: Rewrite, numbers: Mapping[str, int]) -> Row:
    for key in _OF_ONE:
        if key in rewrite.value:
            return {**rewrite.value, key: numbers[rewrite.value[key]]}
    if "sizes" in rewrite.value:
        return {"sizes": [numbers[n] for n in rewrite.value["sizes"]]}
    return dict(rewrite.value)


def _range(interval: Interval, numbers: Mapping[str, int]) -> Row:
    return {"lo": _form(interval.lo, numbers), "hi": _form(interval.hi, numbers)}


def _form(form: Form, numbers: Mapping[str, int]) -> Row:
    terms = [[numbers[name], bound, coef] for name, bound, coef in form.terms]
    return {"terms": terms, "const": form.const, "div": form.divisor}
