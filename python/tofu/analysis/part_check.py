"""Checks that an operator run on a strategy's part computes that part.

A strategy runs *the same operator* on regions of its inputs, with the attributes that
the description declares. So the description, executed again for the part's shapes and
attributes, must match the whole operator's, shifted to the part: every index
``f(v + v.lo)`` minus the region's start must be the part's own ``f'(v)``, every constant
and function the same, and every range the part's. If any differs (a mean divides
by the part's own count, an offset is added twice, a stride no longer fits), the strategy
is dropped. Both sides are affine in the part's bounds, so a few parts decide for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from tofu.analysis.result import Analysis, InputRegion
from tofu.analysis.strategies import concrete_extents, variable_extents
from tofu.boxes import Box
from tofu.errors import TofuError
from tofu.lang import ir
from tofu.lang.description import Description, Rewrite
from tofu.lang.interval import Form, Interval
from tofu.lang.tracing import Shape

__all__ = ["Instance", "anchored", "attribute_text", "holds"]

Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Instance:
    """An operator with concrete shapes and attributes.

    Attributes:
        description: its description.
        analysis: its strategies, with anchored regions.
        in_shapes, out_shapes: its shapes.
        attributes: its attributes, as MXNet's strings.
        extents: each variable's extent.
        rewrites: the attributes that change in parts.
        parts: cache of the description executed for parts, by shapes and attributes; most
            parts of a split are alike.
    """

    description: Description
    analysis: Analysis
    in_shapes: tuple[Shape, ...]
    out_shapes: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    extents: Mapping[str, int]
    rewrites: tuple[Rewrite, ...]
    parts: dict[Any, Optional[_Own]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class _Own:
    """A part's description in its own variables: extents, and indices and bodies of outputs."""

    extents: Mapping[str, int]
    outputs: tuple[tuple[tuple[ir.Index, ...], ir.Expr], ...]


def anchored(region: Optional[InputRegion]) -> Optional[InputRegion]:
    """Moves a region's start to where the operator starts counting its offsets.

    A part of ``A[i + 2]`` adds the 2 to its own index again, so it gets A from ``i.lo``
    on, not from ``i.lo + 2``: an over-approximation of what it reads.
    """
    if region is None or region.fill is not None:
        return region
    dims = tuple(
        d if d is None or not _offset(d.lo) else Interval(Form(d.lo.terms, 0, 1), d.hi, False)
        for d in region.dims
    )
    return InputRegion(region.name, dims, region.fill, region.pad_variables)


def _offset(lo: Form) -> bool:
    """Whether an index starts after its variables' start; a decreasing index does not."""
    return lo.const > 0 and lo.divisor == 1 and all(coef > 0 for _, _, coef in lo.terms)


def holds(instance: Instance, ranges: Ranges, split: Sequence[str]) -> bool:
    """Whether the part with these ranges is correct when these variables are split."""
    starts, tile_ins = [], []
    for slot, shape in enumerate(instance.in_shapes):
        box = _input_box(instance.analysis.inputs[slot], shape, ranges, split)
        if any(end <= begin and size for (begin, end), size in zip(box, shape)):
            return False
        starts.append(tuple(begin for begin, _ in box))
        tile_ins.append(tuple(end - begin for begin, end in box))
    tile_outs, out_starts = [], []
    for k in range(len(instance.out_shapes)):
        out_box = _output_box(instance, k, ranges)
        if out_box is None:
            return False
        out_starts.append(tuple(begin for begin, _ in out_box))
        tile_outs.append(tuple(end - begin for begin, end in out_box))
    attributes = _rewritten(instance, ranges, split, tile_outs)
    part = _own(instance, tuple(tile_ins), tuple(tile_outs), attributes)
    if part is None:
        return False
    sizes = {name: hi - lo + 1 for name, (lo, hi) in ranges.items()}
    if _without_ones(sizes) != _without_ones(part.extents):
        return False
    whole = _Normal(ranges, starts)
    return all(
        _shifted(out.index, out_start, whole) == index and whole.expr(out.body) == body
        for out, (index, body), out_start in zip(
            instance.analysis.trace.outputs, part.outputs, out_starts
        )
    )


def _own(
    instance: Instance,
    ins: tuple[Shape, ...],
    outs: tuple[Shape, ...],
    attributes: Mapping[str, Any],
) -> Optional[_Own]:
    """Executes the description for a part; None if the operator is undefined on it."""
    key = ins, outs, tuple(sorted((name, str(value)) for name, value in attributes.items()))
    if key not in instance.parts:
        try:
            part = instance.description.trace(ins, outs, attributes)
            extents = concrete_extents(part, variable_extents(part), ins, outs)
        except TofuError:
            instance.parts[key] = None
        else:
            normal = _Normal({n: (0, size - 1) for n, size in extents.items()}, [])
            outputs = ((_shifted(o.index, None, normal), normal.expr(o.body)) for o in part.outputs)
            instance.parts[key] = _Own(extents, tuple(outputs))
    return instance.parts[key]


def attribute_text(rewrite: Rewrite, ranges: Ranges, outs: Sequence[Shape]) -> str:
    """The value of a rewritten attribute in a part, as MXNet's text."""
    value = rewrite.value
    if "const" in value:
        return str(value["const"])
    if "output_shape" in value:
        return _tuple_text(outs[value["output_shape"]])
    if "begin" in value:
        return str(ranges[value["begin"]][0])
    if "size" in value:
        return str(_size(ranges[value["size"]]) * int(value.get("times", 1)))
    return _tuple_text([_size(ranges[name]) for name in value["sizes"]])


def _size(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0] + 1


def _tuple_text(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _without_ones(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if size != 1}


def _rewritten(
    instance: Instance, ranges: Ranges, split: Sequence[str], outs: Sequence[Shape]
) -> dict[str, Any]:
    attributes = dict(instance.attributes)
    for rewrite in instance.rewrites:
        if rewrite.when is None or set(rewrite.when) & set(split):
            attributes[rewrite.name] = attribute_text(rewrite, ranges, outs)
    return attributes


def _input_box(
    region: Optional[InputRegion], shape: Shape, ranges: Ranges, split: Sequence[str]
) -> Box:
    """The half-open box that the part gets, as the passes compute it.

    The box is whole along every dimension whose index no split variable moves.
    """
    if region is None:
        return Box.whole(shape)
    free = region.fill is not None and set(region.pad_variables) & set(split)
    box = []
    for interval, size in zip(region.dims, shape):
        if interval is None or not (free or interval.variables & set(split)):
            box.append((0, size))
            continue
        begin, end = interval.lo.evaluate(ranges), interval.hi.evaluate(ranges) + 1
        box.append((begin, end) if free else (max(begin, 0), min(end, size)))
    return Box(box)


def _output_box(instance: Instance, number: int, ranges: Ranges) -> Optional[Box]:
    """The box that the part produces, or None if its output is not a box."""
    shape = instance.out_shapes[number]
    intervals = instance.analysis.outputs[number]
    box = Box((i.lo.evaluate(ranges), i.hi.evaluate(ranges) + 1) for i in intervals)
    if any(begin < 0 or end > size for (begin, end), size in zip(box, shape)):
        return None
    volume = produced = 1
    for begin, end in box:
        volume *= end - begin
    for name in instance.analysis.trace.outputs[number].variables:
        produced *= _size(ranges[name])
    return box if volume == produced else None


def _shifted(
    index: tuple[ir.Index, ...], start: Optional[tuple[int, ...]], normal: _Normal
) -> tuple[ir.Index, ...]:
    offsets = start if start is not None else (0,) * len(index)
    return tuple(ir.add(normal.index(i), ir.constant(-offset)) for i, offset in zip(index, offsets))


class _Normal:
    """Rewrites terms to a part's own variables, which start at 0.

    A variable with only one value is replaced by that value, so a description may treat an
    extent of 1 specially.
    """

    def __init__(self, ranges: Ranges, starts: Sequence[tuple[int, ...]]) -> None:
        self._starts = starts
        self._ones = {name for name, (lo, hi) in ranges.items() if lo == hi}
        self._values = {
            name: ir.constant(lo) if lo == hi else ir.add(ir.variable(name), ir.constant(lo))
            for name, (lo, hi) in ranges.items()
        }

    def index(self, index: ir.Index) -> ir.Index:
        return ir.substitute(index, self._values)

    def expr(self, expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Element):
            return self._element(expr)
        if isinstance(expr, ir.Call):
            return ir.Call(expr.function, tuple(self.expr(a) for a in expr.args))
        if isinstance(expr, ir.OpaqueElement):
            args = tuple(self.expr(a) for a in expr.args)
            result = tuple(self.index(i) for i in expr.result)
            return ir.OpaqueElement(expr.function, args, result)
        if isinstance(expr, ir.Reduce):
            names = tuple(sorted(n for n in expr.variables if n not in self._ones))
            body = self.expr(expr.body)
            return ir.Reduce(expr.kind, names, body) if names else body
        if isinstance(expr, ir.IndexValue):
            return ir.IndexValue(self.index(expr.index))
        return expr

    def _element(self, element: ir.Element) -> ir.Element:
        dims: list[ir.Dim] = []
        for d, dim in enumerate(element.dims):
            if isinstance(dim, ir.Whole):
                dims.append(dim)
                continue
            start = self._starts[element.slot][d] if self._starts else 0
            dims.append(ir.add(self.index(dim), ir.constant(-start)))
        return ir.Element(element.slot, "", tuple(dims), element.fill, ())
