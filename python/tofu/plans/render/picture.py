"""Finds each worker's piece of a tensor, and draws the tensor.

Worker w has one digit per step in the mixed radix of the parts, step 1 most significant
(docs/formats.md); a step that cuts a dimension divides every piece of it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from ..plan import TensorPlan

__all__ = ["Cell", "Picture", "draw", "worker_pieces"]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A piece of a drawn tensor and the workers that own it."""

    row: int
    column: int
    workers: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A tensor as a grid of pieces.

    Attributes:
        rows, columns: size of the grid.
        planes: number of grids side by side: pieces along all other dimensions.
        row_dimension, column_dimension: the dimensions that run downwards and to the
            right; None if the tensor has no such dimension.
        cells: the pieces; those of later planes in later columns.
    """

    rows: int
    columns: int
    planes: int
    row_dimension: Optional[int]
    column_dimension: Optional[int]
    cells: tuple[Cell, ...]


def worker_pieces(tensor: TensorPlan, parts: Sequence[int]) -> list[tuple[int, ...]]:
    """Per worker, the number of its piece of `tensor.tiles(parts)` along each dimension.

    >>> matrix = TensorPlan("w", 0, (4, 6), 0, (0, 1))
    >>> worker_pieces(matrix, (2, 2))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    owned = [[0] * len(tensor.shape)]
    for cut, count in zip(tensor.cuts, parts):
        divided = []
        for piece in owned:
            for digit in range(count):
                worker_piece = list(piece)
                if cut >= 0:
                    worker_piece[cut] = worker_piece[cut] * count + digit
                divided.append(worker_piece)
        owned = divided
    return [tuple(piece) for piece in owned]


def draw(tensor: TensorPlan, parts: Sequence[int], axes: Sequence[int] = ()) -> Picture:
    """Lay the pieces of a tensor out in a plane.

    Args:
        tensor: the tensor.
        parts: the parts of the plan's steps.
        axes: the dimensions that run downwards and to the right; none: the first
            dimensions that are cut, then the first of the others.
    """
    counts = tensor.tiles(parts)
    order = list(axes) or sorted(range(len(counts)), key=lambda d: (counts[d] == 1, d))[:2]
    order = [axis for axis in order if axis < len(counts)]
    if not axes:
        order.sort()
    rest = [d for d in range(len(counts)) if d not in order]
    rows = counts[order[0]] if order else 1
    columns = counts[order[1]] if len(order) > 1 else 1
    owners: dict[tuple[int, int], list[int]] = {}
    for worker, piece in enumerate(worker_pieces(tensor, parts)):
        plane = 0
        for dimension in rest:
            plane = plane * counts[dimension] + piece[dimension]
        row = piece[order[0]] if order else 0
        column = piece[order[1]] if len(order) > 1 else 0
        owners.setdefault((row, plane * columns + column), []).append(worker)
    planes = 1
    for dimension in rest:
        planes *= counts[dimension]
    return Picture(
        rows=rows,
        columns=columns,
        planes=planes,
        row_dimension=order[0] if order else None,
        column_dimension=order[1] if len(order) > 1 else None,
        cells=tuple(Cell(row, column, tuple(who)) for (row, column), who in owners.items()),
    )
