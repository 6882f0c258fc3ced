"""Expresses splits of operators as DTensor placements of their tensors.

A step of a plan is a dimension of the mesh. A split of a variable cuts an input or output along one
dimension (``Shard``), leaves it whole (``Replicate``), or makes terms of an output (``Partial``).
Splits that placements cannot express, such as windows with halos, are not used.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from tofu import _core
from tofu.analysis.apply_row import extent_of, parts_of
from tofu.analysis.strategy_table import strategy_table
from tofu.analysis.table import Row
from tofu.boxes import Box
from tofu.lang.description import Description
from tofu.lang.tracing import Shape

__all__ = ["Placing", "computes_nothing", "placeable", "placeable_table", "placing"]

importlib.import_module("tofu.tdl.aten")  # the operators that this package plans

# Descriptions of operators that compute nothing.
_MOVES = ("movement", "creation")

# Larger prime factors of an extent are ignored: no mesh dimension is a multiple of them.
_LARGEST_FACTOR = 64


@dataclass(frozen=True)
class Placing:
    """Placement of one variable's parts in an operator's tensors.

    Attributes:
        inputs: the dimension of each input that is cut, None if all parts read it whole.
        outputs: the dimension of each output that is cut, or None.
        reduces: the reduction that combines the parts of each output; None if they are not terms.
        zeros: inputs that are zeros in every part except the first.
    """

    inputs: tuple[Optional[int], ...]
    outputs: tuple[Optional[int], ...]
    reduces: tuple[Optional[str], ...]
    zeros: tuple[int, ...]


def placing(
    row: Row, variable: int, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]
) -> Optional[Placing]:
    """The placing of a row's variable, or None if placements cannot express it."""
    extent = extent_of(row["vars"][variable]["extent"], in_shapes, out_shapes)
    count = next((k for k in range(2, _LARGEST_FACTOR + 1) if extent % k == 0), None)
    if count is None:
        return None
    parts = parts_of(row, {}, in_shapes, out_shapes, [(variable, count)])
    if any(fill is not None for part in parts for fill in part.fills):
        return None
    inputs = [_cut([part.inputs[k] for part in parts], shape) for k, shape in enumerate(in_shapes)]
    outputs = [
        _cut([part.outputs[k] for part in parts], shape) for k, shape in enumerate(out_shapes)
    ]
    if _OTHER in inputs or _OTHER in outputs:
        return None
    kinds = [out["reduce"].get(str(variable)) for out in row["outputs"]]
    kinds += [None] * (len(out_shapes) - len(kinds))
    zeros = tuple(k for k, read in enumerate(row["inputs"]) if variable in read["only_first"])
    return Placing(_dims(inputs), _dims(outputs), tuple(kinds), zeros)


_WHOLE, _OTHER = -1, -2


def _cut(boxes: Sequence[Box], shape: Shape) -> int:
    """The dimension along which the boxes are equal parts in order."""
    cut = _WHOLE
    for d, size in enumerate(shape):
        sides = [tuple(box[d]) for box in boxes]
        if all(side == (0, size) for side in sides):
            continue
        step, rest = divmod(size, len(boxes))
        if (
            rest
            or cut != _WHOLE
            or sides != [(k * step, k * step + step) for k in range(len(boxes))]
        ):
            return _OTHER
        cut = d
    return cut


def _dims(numbers: Sequence[int]) -> tuple[Optional[int], ...]:
    return tuple(None if d == _WHOLE else d for d in numbers)


def placeable(row: Row, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> Row:
    """Drops the variables of a row that placements cannot express.

    The row also says whether the operator computes nothing: most such operators are views, so
    devices that have the whole tensor may all make the whole view.
    """
    row = {**row, "moves": computes_nothing(row["op"])}
    kept = [v for v in row["splittable"] if placing(row, v, in_shapes, out_shapes) is not None]
    if kept == row["splittable"]:
        return row
    every = {v for v, var in enumerate(row["vars"]) if _is_split(var, in_shapes, out_shapes)}
    return {**row, "splittable": kept, "elementwise": row["elementwise"] and every <= set(kept)}


def computes_nothing(operator: str) -> bool:
    """Whether an operator only moves elements or fills a tensor with a value."""
    return operator in _moves()


@functools.cache
def _moves() -> frozenset[str]:
    modules = [importlib.import_module(f"tofu.tdl.aten.{name}") for name in _MOVES]
    described = [x for m in modules for x in vars(m).values() if isinstance(x, Description)]
    return frozenset(name for each in described for name in each.names if not _is_drawn(name))


def _is_drawn(name: str) -> bool:
    return name.startswith(("aten.rand.", "aten.randn."))


def _is_split(variable: Any, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> bool:
    return extent_of(variable["extent"], in_shapes, out_shapes) > 1


def placeable_table(graph: _core.Graph) -> tuple[Any, dict[str, str]]:
    """Return the strategies of a graph that placements can describe.

    Returns:
        The table, and the operators without any strategy, each with the reason.
    """
    return strategy_table(graph, _Restriction())


class _Restriction:
    """Restricts rows to placements; returns the same row for the same shapes."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Row, Row]] = {}

    def __call__(self, row: Row, ins: Sequence[Shape], outs: Sequence[Shape]) -> Row:
        key = id(row), tuple(map(tuple, ins)), tuple(map(tuple, outs))
        if key not in self._known:
            self._known[key] = row, placeable(row, ins, outs)
        return self._known[key][1]
