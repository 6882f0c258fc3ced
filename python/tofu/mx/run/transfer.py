"""Whole arrays to tiles and back, and tiles of one layout to tiles of another.

layout = compiled.variables["fc1_weight"].layout
tiles = scatter(weight, layout, [mx.cpu(0), mx.cpu(1)])
weight = gather(tiles, layout, mx.cpu(0))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

from tofu.boxes import Box
from tofu.errors import GraphError
from tofu.plan.layout import Layout, Shape

__all__ = ["MIN_BLOCKED_RANK", "Tiles", "gather", "relay", "scatter"]

MIN_BLOCKED_RANK = 3  # oneDNN always stores vectors and matrices in the plain layout
_BLOCKED_DTYPES = ("float32", "int8", "uint8")


class Tiles(NamedTuple):
    """A divided tensor.

    Attributes:
        arrays: the tile of each worker, on its context.
        layout: which part of the tensor each one is.
    """

    arrays: list[mx.nd.NDArray]
    layout: Layout


def scatter(
    whole: mx.nd.NDArray,
    layout: Layout,
    contexts: Sequence[mx.Context],
    out: Optional[Sequence[mx.nd.NDArray]] = None,
    *,
    blocked: bool = False,
) -> list[mx.nd.NDArray]:
    """Copy every worker's part to its context; cut a part only once if several workers share it.

    out: arrays to fill instead of new ones, one per worker.
    blocked: whether oneDNN may have left these in its blocked layout.

    Raises GraphError if shapes or counts do not agree.
    """
    _check("scatter", whole.shape, layout, len(contexts))
    if out is None:
        out = [
            mx.nd.empty(box.shape, ctx, layout.dtype) for box, ctx in zip(layout.boxes, contexts)
        ]
    parts: dict[Box, mx.nd.NDArray] = {}
    with autograd.pause():
        for box, tile in zip(layout.boxes, out):
            if box not in parts:
                parts[box] = _part(whole, box)
            if blocked and _refuses_copies(tile):
                mx.nd.identity(parts[box].copyto(tile.context), out=tile)
            else:
                parts[box].copyto(tile)
    return list(out)


def gather(
    tiles: Sequence[mx.nd.NDArray],
    layout: Layout,
    ctx: mx.Context,
    out: Optional[mx.nd.NDArray] = None,
) -> mx.nd.NDArray:
    """Assemble the whole array on `ctx`; read a part only once if several workers share it.

    out: an array on `ctx` to fill instead of a new one.

    Raises GraphError if shapes or counts do not agree.
    """
    _check("gather", layout.shape if out is None else out.shape, layout, len(tiles))
    if out is None:
        out = mx.nd.empty(layout.shape, ctx, layout.dtype)
    with autograd.pause():
        _assemble(_distinct(tiles, layout, ctx), Box.whole(layout.shape), out)
    return out


def relay(
    tiles: Tiles,
    layout: Layout,
    contexts: Sequence[mx.Context],
    out: Optional[Sequence[mx.nd.NDArray]] = None,
) -> list[mx.nd.NDArray]:
    """Tiles of another layout, from worker to worker: no device holds the whole tensor.

    out: arrays to fill instead of new ones, one per worker.

    Raises GraphError when shapes or counts do not agree.
    """
    _check("relay", tiles.layout.shape, layout, len(tiles.arrays))
    if out is None:
        out = [
            mx.nd.empty(box.shape, ctx, layout.dtype) for box, ctx in zip(layout.boxes, contexts)
        ]
    with autograd.pause():
        for box, target in zip(layout.boxes, out):
            _assemble(_distinct(tiles.arrays, tiles.layout, target.context), box, target)
    return list(out)


def _assemble(pieces: Mapping[Box, mx.nd.NDArray], box: Box, out: mx.nd.NDArray) -> None:
    """Fill `out`, the part of a tensor in `box`, from parts that cover it."""
    if box in pieces:
        pieces[box].copyto(out)
        return
    for source, tile in pieces.items():
        common = box.common(source)
        if common is None:
            continue
        part = _part(tile, common.relative_to(source))
        target = common.relative_to(box)
        if target.shape == out.shape:
            part.copyto(out)
        elif target.shape[1:] == out.shape[1:]:
            part.copyto(out[target.begin[0] : target.end[0]])
        else:
            mx.nd._internal._slice_assign(
                out, part.as_in_context(out.context), begin=target.begin, end=target.end, out=out
            )


def _distinct(
    tiles: Sequence[mx.nd.NDArray], layout: Layout, ctx: mx.Context
) -> dict[Box, mx.nd.NDArray]:
    """One tile for every part, preferably one on `ctx`."""
    chosen: dict[Box, mx.nd.NDArray] = {}
    for box, tile in zip(layout.boxes, tiles):
        if box not in chosen or (tile.context == ctx and chosen[box].context != ctx):
            chosen[box] = tile
    return chosen


def _part(whole: mx.nd.NDArray, box: Box) -> mx.nd.NDArray:
    if box.shape == whole.shape:
        return whole
    if _may_be_blocked(whole):
        for axis, (begin, end) in enumerate(zip(box.begin, box.end)):
            if end - begin < whole.shape[axis]:
                whole = mx.nd.slice_axis(whole, axis=axis, begin=begin, end=end)
        return whole
    if box.shape[1:] == whole.shape[1:]:
        return whole[box.begin[0] : box.end[0]]
    return mx.nd.slice(whole, begin=box.begin, end=box.end)


def _may_be_blocked(array: mx.nd.NDArray) -> bool:
    """Whether oneDNN may have left an array in its blocked layout.

    Convolutions do so with their outputs, and in prediction with their weights. MXNet cannot
    copy a view of such an array, and its ``slice`` divides by zero on some; ``slice_axis``
    converts it to the plain layout first. The true layout is unknown until the array is
    computed, and this function does not wait for that.
    """
    return (
        array.context.device_type != "gpu"
        and array.ndim >= MIN_BLOCKED_RANK
        and np.dtype(array.dtype).name in _BLOCKED_DTYPES
    )


def _refuses_copies(array: mx.nd.NDArray) -> bool:
    """Whether MXNet cannot copy to an array in the blocked layout, but an operator can.

    It copies only shapes that it hands to oneDNN: the weights of Conv2D, not those of Conv1D
    and Conv3D.
    """
    return _may_be_blocked(array) and array.ndim != 4


def _check(what: str, shape: Shape, layout: Layout, count: int) -> None:
    if tuple(shape) != layout.shape or count != len(layout.boxes):
        raise GraphError(
            f"{what}: found an array of shape {tuple(shape)} and {count} workers, expected "
            f"shape {layout.shape} and {len(layout.boxes)} workers"
        )
