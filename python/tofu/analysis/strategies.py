"""The strategies of an operator, from its description (paper section 4.2).

``analyze`` works on symbolic shapes: regions are intervals in the variables' bounds.
A strategy splits one variable, in any number of equal contiguous parts:

* case 1, an output variable: every part computes its range of the output;
* case 2, a reduction variable: every part computes the whole output from its range, and
  the parts' outputs are reduced (``tofu.analysis.combine`` decides when that is correct).

With several outputs, variables with the same name are one variable, and every output must
allow the split. ``tofu.analysis.part_check`` checks each strategy on concrete shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from tofu.analysis.combine import combination
from tofu.analysis.result import Analysis, Extent, InputRegion, OutputPart, Strategy
from tofu.errors import InconclusiveError, TdlError
from tofu.lang import ir
from tofu.lang.description import Description, Rewrite
from tofu.lang.interval import Interval, hull, interval_of
from tofu.lang.source import Source
from tofu.lang.tracing import OutputTrace, Shape, Trace

__all__ = [
    "analyze",
    "analyze_trace",
    "check_opaque",
    "concrete_extents",
    "told",
    "variable_extents",
]


def analyze(
    description: Description,
    in_shapes: Optional[Sequence[Shape]] = None,
    out_shapes: Optional[Sequence[Shape]] = None,
    *,
    attributes: Optional[Mapping[str, Any]] = None,
) -> Analysis:
    """Find the strategies of a described operator, symbolic in the shapes.

    Args:
        description: a description made by ``@tofu.op``.
        in_shapes: needed only by descriptions that read shapes or take any rank.
        out_shapes: likewise.
        attributes: the operator's attributes, used as constants.

    Raises:
        TdlError: the description is not valid or, without shapes, has an opaque function
            without a batch dimension.

    Example:
        >>> import tofu
        >>> @tofu.op
        ... def dense(data, weight):
        ...     return lambda b, o: tofu.Sum(lambda i: data[b, i] * weight[o, i])
        >>> print(tofu.analyze(dense))  # doctest: +ELLIPSIS
        dense ...
          variable  output 0     data             weight
          b         concatenate  [b.lo..b.hi, :]  [:, :]
          o         concatenate  [:, :]           [o.lo..o.hi, :]
          i         reduce sum   [:, i.lo..i.hi]  [:, i.lo..i.hi]
    """
    if not isinstance(description, Description):
        raise TypeError(
            f"tofu.analyze({description!r}): expected a description, as @tofu.op makes; for an "
            "operator of MXNet, tofu ops NAME prints its strategies"
        )
    trace = description.trace(in_shapes, out_shapes, attributes)
    if in_shapes is None:
        check_opaque(trace)
    return analyze_trace(trace, told(description.rewrites(in_shapes or (), attributes)[0]))


def check_opaque(trace: Trace) -> None:
    """Raise TdlError if no variable indexes an argument of an opaque function.

    With the shapes of one call this may happen: the arguments of a lone vector are whole.
    """
    for output in trace.outputs:
        for expr in ir.walk(output.body):
            if not isinstance(expr, ir.OpaqueElement):
                continue
            dims = [d for e in ir.elements(expr) for d in e.dims if isinstance(d, ir.Index)]
            if not any(d.variables for d in dims):
                raise trace.source.error(
                    "an opaque function has no batch dimension",
                    ir.show(expr),
                    "index some dimension of its arguments by a variable, f(x[b, :, :]), to make "
                    "parts independent; an operator without one needs no description",
                )


def told(rewrites: Iterable[Rewrite]) -> frozenset[str]:
    """The variables of which an attribute tells a part where it begins."""
    return frozenset(r.value["begin"] for r in rewrites if "begin" in r.value)


def analyze_trace(trace: Trace, begins: frozenset[str] = frozenset()) -> Analysis:
    """The strategies of an executed description.

    Args:
        trace: the description's.
        begins: the variables of which a part is told where it begins, see `told`.
    """
    extents = variable_extents(trace)
    outputs = tuple(tuple(interval_of(i) for i in out.index) for out in trace.outputs)
    unsplittable = _unsplittable(trace, begins)
    strategies = [
        strategy
        for name in extents
        if name not in unsplittable
        for strategy in [_strategy(trace, name)]
        if strategy is not None
    ]
    return Analysis(
        trace,
        extents,
        tuple(_region(trace, slot) for slot in range(len(trace.inputs))),
        outputs,
        tuple(strategies),
        _is_pointwise(trace),
    )


# --- Variables ---------------------------------------------------------------------


def variable_extents(trace: Trace) -> dict[str, Extent]:
    """The extent of each variable, from the description, an output, or an input's dimension.

    Raises:
        TdlError: nothing bounds a variable.
    """
    extents: dict[str, Extent] = {}
    for k, output in enumerate(trace.outputs):
        for d, index in enumerate(output.index):
            name = index.plain
            if name is not None and name not in trace.extents:
                extents.setdefault(name, Extent("output", k, d))
        for name in output.variables:
            if name in trace.extents:
                extents.setdefault(name, Extent("constant", 0, 0, trace.extents[name]))
    for output in trace.outputs:
        for expr in ir.walk(output.body):
            if isinstance(expr, ir.Reduce):
                for name in expr.variables:
                    if name not in extents:
                        extents[name] = _reduction_extent(trace, expr, name)
    return extents


def _reduction_extent(trace: Trace, reduction: ir.Reduce, name: str) -> Extent:
    if name in trace.extents:
        return Extent("constant", 0, 0, trace.extents[name])
    for element in ir.elements(reduction.body):
        for d, dim in enumerate(element.dims):
            if isinstance(dim, ir.Index) and dim.plain == name and element.fill is None:
                return Extent("input", element.slot, d)
    raise trace.source.error(
        f"variable {name} is never bounded",
        ir.show(reduction),
        f"use {name} alone as an index of some tensor, x[{name}, ...], to range over that "
        f"dimension, or give its extent: Sum(lambda {name}: ..., extent=3)",
    )


def _unsplittable(trace: Trace, begins: frozenset[str]) -> frozenset[str]:
    """Variables that a part of the operator would see shifted.

    These are variables used as values, unless the part is told where they begin; those inside a
    floor; and those that index the result of an opaque function, which every part computes whole.
    """
    names: set[str] = set()
    for output in trace.outputs:
        for index in output.index:
            names |= _inside_floors(index)
        for expr in ir.walk(output.body):
            if isinstance(expr, ir.IndexValue):
                names |= expr.index.variables - begins
            elif isinstance(expr, ir.OpaqueElement):
                for index in expr.result:
                    names |= index.variables
            elif isinstance(expr, ir.Element):
                for dim in expr.dims:
                    if isinstance(dim, ir.Index):
                        names |= _inside_floors(dim)
    return frozenset(names)


def _inside_floors(index: ir.Index) -> frozenset[str]:
    floors = (a.index.variables for a, _ in index.terms if isinstance(a, ir.FloorDiv))
    return frozenset().union(*floors)


# --- Regions -----------------------------------------------------------------------


def _region(trace: Trace, slot: int) -> Optional[InputRegion]:
    """The hull of all regions read of an input."""
    accesses = [e for out in trace.outputs for e in ir.elements(out.body) if e.slot == slot]
    if not accesses:
        return None
    dims = tuple(
        _dimension([access.dims[d] for access in accesses]) for d in range(len(accesses[0].dims))
    )
    fills = sorted({a.fill for a in accesses if a.fill is not None})
    if len(fills) > 1:
        raise trace.source.error(
            "a tensor is padded in two ways", f"fills {', '.join(fills)}", "one fill per tensor"
        )
    moving = {
        name: None
        for access in accesses
        if access.fill is not None
        for d, dim in enumerate(access.dims)
        if isinstance(dim, ir.Index) and (dim.plain is None or d in access.beyond)
        for name in sorted(dim.variables)
    }
    return InputRegion(trace.inputs[slot].name, dims, fills[0] if fills else None, tuple(moving))


def _dimension(dims: Sequence[ir.Dim]) -> Optional[Interval]:
    """The hull of a dimension's indices; the whole dimension if it is unknown."""
    result: Optional[Interval] = None
    for dim in dict.fromkeys(dims):
        if isinstance(dim, ir.Whole):
            return None
        try:
            interval = interval_of(dim)
            result = interval if result is None else hull(result, interval)
        except InconclusiveError:
            return None
    return result


# --- Strategies --------------------------------------------------------------------


def _strategy(trace: Trace, variable: str) -> Optional[Strategy]:
    parts: list[OutputPart] = []
    only_first: frozenset[int] = frozenset()
    for output in trace.outputs:
        part = _output_part(trace, output, variable)
        if part is None:
            return None
        outcome, zeroed = part
        parts.append(outcome)
        only_first |= zeroed
    if all(p == OutputPart(None, False) for p in parts):
        return None
    if only_first and not _zeroed_alone(trace, variable, only_first):
        return None
    return Strategy(variable, tuple(parts), only_first)


def _output_part(
    trace: Trace, output: OutputTrace, variable: str
) -> Optional[tuple[OutputPart, frozenset[int]]]:
    if variable in output.variables:
        return OutputPart(None, True), frozenset()
    combined = combination(output.body, variable)
    if combined is None:
        return None
    weights = None
    if combined.divisor is not None:
        weights = _logarithm_of(trace, combined.divisor, output)
        if weights is None:
            return None
    return OutputPart(combined.reducer, False, weights), combined.only_first


def _logarithm_of(trace: Trace, expr: ir.Expr, output: OutputTrace) -> Optional[int]:
    """The output that is the logarithm of an expression, and has some of `output`'s indices."""
    logarithm = ir.Call("log", (expr,))
    for number, other in enumerate(trace.outputs):
        if other.body == logarithm and set(other.index) <= set(output.index):
            return number
    return None


def _zeroed_alone(trace: Trace, variable: str, only_first: frozenset[int]) -> bool:
    """Whether the tensors given as zeros are read only by outputs that allow it."""
    for output in trace.outputs:
        reads = {e.slot for e in ir.elements(output.body)}
        combined = None if variable in output.variables else combination(output.body, variable)
        zeroed = combined.only_first if combined is not None else frozenset()
        if reads & only_first - zeroed:
            return False
    return True


def _is_pointwise(trace: Trace) -> bool:
    """Whether all outputs have the same variables, and all reads are at their index."""
    at = trace.outputs[0].index
    if any(i.plain is None for i in at):
        return False
    for output in trace.outputs:
        if output.index != at:
            return False
        for expr in ir.walk(output.body):
            if isinstance(expr, (ir.Reduce, ir.OpaqueElement, ir.IndexValue)):
                return False
            if isinstance(expr, ir.Element) and (expr.dims != at or expr.fill is not None):
                return False
    return True


def concrete_extents(
    trace: Trace, extents: Mapping[str, Extent], ins: Sequence[Shape], outs: Sequence[Shape]
) -> dict[str, int]:
    """Computes every variable's extent for concrete shapes.

    A variable that an output bounds may index a longer dimension of an input: the
    operator then reads only its beginning.

    Raises:
        TdlError: the description and the shapes disagree.
    """
    sizes = {name: _extent_of(e, ins, outs) for name, e in extents.items()}
    for k, output in enumerate(trace.outputs):
        for d, index in enumerate(output.index):
            if index.plain is not None and sizes[index.plain] != outs[k][d]:
                raise _mismatch(trace.source, index.plain, sizes, f"output {k}", d, outs[k][d])
        for element in ir.elements(output.body):
            for d, dim in enumerate(element.dims):
                name = dim.plain if isinstance(dim, ir.Index) else None
                if name is None or element.fill is not None:
                    continue
                size = ins[element.slot][d]
                beginning = extents[name].kind != "input" and size > sizes[name]
                if size != sizes[name] and not beginning:
                    raise _mismatch(trace.source, name, sizes, element.tensor, d, size)
    return sizes


def _extent_of(extent: Extent, ins: Sequence[Shape], outs: Sequence[Shape]) -> int:
    if extent.kind == "constant":
        return extent.constant
    return (ins if extent.kind == "input" else outs)[extent.slot][extent.dim]


def _mismatch(
    source: Source, name: str, sizes: Mapping[str, int], where: str, dim: int, extent: int
) -> TdlError:
    return source.error(
        f"variable {name} has extent {sizes[name]}, but dimension {dim} of {where} is {extent}",
        f"{where}[..., {name}, ...]",
        "all dimensions that one variable indexes alone have the same size",
    )
