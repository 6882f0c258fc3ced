"""How tensors lie on the workers: what partitioning says of variables and heads.

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
        shape: of the whole tensor.
        dtype: numpy's name of it.
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
        role: what it is: "data", "parameter", "aux", "head_grad:0", "state:w".
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
        role: what it is: "output", "gradient:w", "aux:mean", "update:w".
        layout: how it is divided.
        numbers: which head of the partitioned graph each worker's tile is.
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
    """The heads, from what ``_core`` lists of them."""
    return [
        Head(role, _layout(shape, dtype, tiles), tuple(tile[0] for tile in tiles))
        for role, shape, dtype, tiles in records
    ]


def _layout(shape: Shape, dtype: str, tiles: Sequence[tuple[Any, Shape, Shape]]) -> Layout:
    return Layout(shape, dtype, tuple(Box.between(begin, end) for _, begin, end in tiles))
