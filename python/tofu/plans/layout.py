"""Layouts of tensors over the workers: the tiles of variables and heads.

    weight = variables_of(step)["fc1_weight"]
    weight.layout.boxes[0].shape      # worker 0's tile

Framework-independent: ``tofu.mx.run.transfer`` moves the arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from tofu import _core
from tofu.boxes import Box

from .parts import Parts

__all__ = ["Head", "Layout", "Variable", "boxes_of", "cuts_of", "heads_of", "variables_of"]

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Division of a tensor into workers' tiles.

    Attributes:
        shape: the shape of the whole tensor.
        dtype: NumPy's name of the data type.
        boxes: the tile of each worker; workers may hold the same one.
    """

    shape: Shape
    dtype: str
    boxes: tuple[Box, ...]


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of a training graph, divided.

    Attributes:
        name: its name in the training graph.
        role: "data", "parameter", "aux", "head_grad:0" or "state:w".
        layout: how it is divided.
        tiles: the name of each worker's tile in the partitioned graph.
    """

    name: str
    role: str
    layout: Layout
    tiles: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Head:
    """A head of a training graph, divided.

    Attributes:
        role: "output", "gradient:w", "aux:mean" or "update:w".
        layout: how it is divided.
        numbers: for each worker, the number of its tile's head in the partitioned graph.
    """

    role: str
    layout: Layout
    numbers: tuple[int, ...]


def variables_of(step: Union[_core.Partitioned, _core.TrainingStep]) -> dict[str, Variable]:
    """The variables by name."""
    return {
        name: Variable(name, role, _layout(shape, dtype, tiles), tuple(tile[0] for tile in tiles))
        for name, role, shape, dtype, tiles in step.variables
    }


def heads_of(records: Iterable[tuple[Any, ...]]) -> list[Head]:
    """The heads, from ``_core``'s list."""
    return [
        Head(role, _layout(shape, dtype, tiles), tuple(tile[0] for tile in tiles))
        for role, shape, dtype, tiles in records
    ]


def cuts_of(layout: Layout, parts: Sequence[int]) -> Optional[tuple[int, ...]]:
    """The dimension that each step cuts to reach a layout, -1 for none; None if no cuts do.

    parts: number of parts of each step.
    """
    cuts, stride = [], len(layout.boxes)
    for count in parts:
        stride //= count  # from a worker to the one in the next part of this step
        first, second = layout.boxes[0], layout.boxes[stride]
        differing = (d for d, (a, b) in enumerate(zip(first.begin, second.begin)) if a != b)
        cuts.append(next(differing, -1))
    return tuple(cuts) if _boxes_of(layout.shape, cuts, parts) == layout.boxes else None


@functools.lru_cache(maxsize=1 << 10)
def boxes_of(shape: Shape, cuts: tuple[int, ...], parts: Parts) -> tuple[Box, ...]:
    """The tile of each worker of a tensor that steps cut along these dimensions, -1 for none."""
    return _boxes_of(shape, cuts, parts)


def _boxes_of(shape: Shape, cuts: Sequence[int], parts: Sequence[int]) -> tuple[Box, ...]:
    bounds = Parts(parts).bounds(shape, cuts)
    boxes = []
    for digits in itertools.product(*map(range, parts)):
        numbers = [0] * len(shape)
        for cut, count, digit in zip(cuts, parts, digits):
            if cut >= 0:
                numbers[cut] = numbers[cut] * count + digit
        boxes.append(Box(each[number] for each, number in zip(bounds, numbers)))
    return tuple(boxes)


def _layout(shape: Shape, dtype: str, tiles: Sequence[tuple[Any, Shape, Shape]]) -> Layout:
    return Layout(shape, dtype, tuple(Box.between(begin, end) for _, begin, end in tiles))
