"""How tensors are divided over the workers: the tiles of variables and heads.

    weight = variables_of(step)["fc1_weight"]
    weight.layout.boxes[0].shape      # worker 0's tile

Framework-independent: ``tofu.mx.run.transfer`` moves the arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Union

from tofu import _core
from tofu.boxes import Box

__all__ = ["Head", "Layout", "Variable", "heads_of", "variables_of"]

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a tensor is divided.

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
        numbers: for each worker, which head of the partitioned graph its tile is.
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


def _layout(shape: Shape, dtype: str, tiles: Sequence[tuple[Any, Shape, Shape]]) -> Layout:
    return Layout(shape, dtype, tuple(Box.between(begin, end) for _, begin, end in tiles))
