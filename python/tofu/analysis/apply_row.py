"""Applies a strategy table row: computes the regions that every part reads and produces.

This is the reference for the C++ passes, which compute the same (docs/formats.md);
``tofu verify`` runs the real operators on its parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from tofu.boxes import Box, piece
from tofu.lang.tracing import Shape

__all__ = ["Part", "Split", "extent_of", "part_of", "parts_of"]

Ranges = list[tuple[int, int]]  # first and last value, per variable
Split = tuple[int, Union[int, tuple[int, ...]]]  # variable; number of parts, or sizes


@dataclass(frozen=True)
class Part:
    """A part of a split operator.

    Attributes:
        digits: the part's number at each split.
        inputs: the region of each input; it may reach outside if `fills` has a value.
        fills: per input, the value outside the tensor.
        zeros: per input, whether the part gets zeros instead.
        outputs: the region of each output.
        attributes: the operator's attributes in this part.
    """

    digits: tuple[int, ...]
    inputs: tuple[Box, ...]
    fills: tuple[Optional[float], ...]
    zeros: tuple[bool, ...]
    outputs: tuple[Box, ...]
    attributes: Mapping[str, str]


def parts_of(
    row: Mapping[str, Any],
    attributes: Mapping[str, str],
    in_shapes: Sequence[Shape],
    out_shapes: Sequence[Shape],
    splits: Sequence[Split],
) -> list[Part]:
    """Splits an operator into parts.

    Args:
        row: the operator's row (``tofu.analysis.row_for``).
        attributes: the operator's attributes.
        in_shapes: one shape per input.
        out_shapes: one shape per output.
        splits: variable and number of parts per step, outermost first. Or the parts' sizes,
            which must add up to the extent left by the steps before.
    """
    counts = [parts if isinstance(parts, int) else len(parts) for _, parts in splits]
    digits = itertools.product(*map(range, counts))
    return [part_of(row, attributes, in_shapes, out_shapes, splits, each) for each in digits]


def part_of(
    row: Mapping[str, Any],
    attributes: Mapping[str, str],
    ins: Sequence[Shape],
    outs: Sequence[Shape],
    splits: Sequence[Split],
    digits: tuple[int, ...],
) -> Part:
    """The part with these digits, one of ``parts_of``."""
    ranges: Ranges = [(0, extent_of(var["extent"], ins, outs) - 1) for var in row["vars"]]
    for (var, parts), digit in zip(splits, digits):
        low, high = ranges[var]
        if isinstance(parts, int):
            begin, end = piece((low, high + 1), parts, digit)
        else:
            begin = low + sum(parts[:digit])
            end = begin + parts[digit]
        ranges[var] = (begin, end - 1)
    split = {var for var, _ in splits}
    inputs = [_input(access, shape, ranges, split) for access, shape in zip(row["inputs"], ins)]
    inputs += [(Box.whole(shape), None, False) for shape in ins[len(inputs) :]]
    outputs = [
        _clipped(out["dims"], shape, ranges, split) for out, shape in zip(row["outputs"], outs)
    ]
    outputs += [Box.whole(shape) for shape in outs[len(outputs) :]]
    part_attributes = dict(attributes)
    for rewrite in row["attrs"]:
        if split & set(rewrite["vars"]):
            part_attributes[rewrite["name"]] = _value(rewrite["value"], ranges, outputs)
    boxes, fills, zeros = zip(*inputs) if inputs else ((), (), ())
    return Part(digits, boxes, fills, zeros, tuple(outputs), part_attributes)


def extent_of(extent: Any, ins: Sequence[Shape], outs: Sequence[Shape]) -> int:
    """A variable's extent, from its row's entry."""
    if isinstance(extent, int):
        return extent
    kind, slot, dim = extent
    size: int = (ins if kind == "input" else outs)[slot][dim]
    return size


def _input(
    access: Mapping[str, Any], shape: Shape, ranges: Ranges, split: set[int]
) -> tuple[Box, Optional[float], bool]:
    pad = access.get("pad")
    zeros = any(ranges[var][0] != 0 for var in access["only_first"])
    if pad is not None and split & set(pad["vars"]):
        return _box(access["dims"], shape, ranges), float(pad["fill"]), zeros
    return _clipped(access["dims"], shape, ranges, split), None, zeros


def _box(dims: Sequence[Any], shape: Shape, ranges: Ranges) -> Box:
    return Box(
        (0, size) if dim is None else (_form(dim["lo"], ranges), _form(dim["hi"], ranges) + 1)
        for dim, size in zip(dims, shape)
    )


def _clipped(dims: Sequence[Any], shape: Shape, ranges: Ranges, split: set[int]) -> Box:
    """Clips a region to the tensor; whole along a dimension that nothing splits."""
    moving = [dim if dim is not None and _variables(dim) & split else None for dim in dims]
    return _box(moving, shape, ranges).clipped(shape)


def _variables(dim: Mapping[str, Any]) -> set[int]:
    return {var for end in ("lo", "hi") for var, _, _ in dim[end]["terms"]}


def _form(form: Mapping[str, Any], ranges: Ranges) -> int:
    total: int = form["const"]
    for var, bound, coef in form["terms"]:
        total += coef * ranges[var][bound]
    divisor: int = form["div"]
    return total // divisor


def _value(value: Mapping[str, Any], ranges: Ranges, outputs: Sequence[Box]) -> str:
    if "const" in value:
        return str(value["const"])
    if "begin" in value:
        return str(ranges[value["begin"]][0])
    if "size" in value:
        low, high = ranges[value["size"]]
        return str((high - low + 1) * int(value.get("times", 1)))
    if "sizes" in value:
        sizes = [ranges[var][1] - ranges[var][0] + 1 for var in value["sizes"]]
    else:
        sizes = list(outputs[value["output_shape"]].shape)
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
