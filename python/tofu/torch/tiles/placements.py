"""Converts DTensor's placements, and finds the tiles that ranks hold by them.

A plan cuts n elements into pieces of floor or ceil of n / p elements (design 0020), DTensor into
pieces of ceil and a smaller last one. If the rules differ, a user's DTensor is
brought to the plan's tiles, and back.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard

from tofu.boxes import Box
from tofu.torch.tiles.exchange import Piece, Region

__all__ = ["WHOLE", "Boxes", "Placement", "of_dtensor", "regions_between", "tiles_of", "to_dtensor"]

WHOLE = -1
Placement = tuple[int, ...]  # by dimension of the mesh, the dimension that it cuts, or WHOLE
Boxes = tuple[Box, ...]


def to_dtensor(placement: Placement) -> tuple[Any, ...]:
    """Converts a placement to DTensor's."""
    return tuple(Replicate() if cut == WHOLE else Shard(cut) for cut in placement)


def of_dtensor(placements: Sequence[Any]) -> Placement:
    """Converts DTensor's placements, without terms, to ours."""
    return tuple(placement.dim if placement.is_shard() else WHOLE for placement in placements)


@functools.lru_cache(maxsize=1 << 12)
def tiles_of(shape: tuple[int, ...], placement: Placement, sizes: tuple[int, ...]) -> Boxes:
    """The box that each device of a mesh of these sizes holds of a DTensor."""
    return tuple(_tile(shape, placement, sizes, at) for at in itertools.product(*map(range, sizes)))


def _tile(
    shape: Sequence[int], placement: Placement, sizes: Sequence[int], at: Sequence[int]
) -> Box:
    sides = [(0, size) for size in shape]
    for cut, count, digit in zip(placement, sizes, at):
        if cut != WHOLE:
            low, high = sides[cut]
            size = -(-(high - low) // count)
            begin = min(low + digit * size, high)
            sides[cut] = begin, min(begin + size, high)
    return Box(sides)


@functools.lru_cache(maxsize=1 << 12)
def regions_between(
    source: Boxes, target: Boxes, tile: int, made: int, dtype: torch.dtype, sizes: tuple[int, ...]
) -> tuple[Region, ...]:
    """The regions that bring a tensor from the boxes that devices hold to others.

    Args:
        source: the boxes before, of the mesh's devices in order.
        target: the boxes after.
        tile: the name of each device's tile before.
        made: its name after.
        dtype: the tensor's type.
        sizes: the mesh's sizes; a device reads from the nearest of those that hold the same.
    """
    places = list(itertools.product(*map(range, sizes)))
    regions = []
    for worker, box in enumerate(target):
        holders: dict[Box, int] = {}
        for other in sorted(range(len(source)), key=lambda k: _distance(places[worker], places[k])):
            holders.setdefault(source[other], other)
        if box.common(source[worker]) == box:
            holders = {source[worker]: worker}
        pieces = []
        for held, holder in sorted(holders.items()):
            common = box.common(held)
            if common is not None:
                start, to = common.relative_to(held).begin, common.relative_to(box).begin
                pieces.append(Piece(holder, tile, 0, start, to, common.shape))
        regions.append(Region(worker, made, box.shape, dtype, tuple(pieces)))
    return tuple(regions)


def _distance(one: Sequence[int], other: Sequence[int]) -> tuple[bool, ...]:
    """Orders devices by the first dimension of the mesh along which they differ."""
    return tuple(a != b for a, b in zip(one, other))
