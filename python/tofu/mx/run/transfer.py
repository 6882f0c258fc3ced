"""Whole arrays to tiles and back, and tiles of one layout to tiles of another.

layout = compiled.variables["fc1_weight"].layout
tiles = scatter(weight, layout, [mx.cpu(0), mx.cpu(1)])
weight = gather(tiles, layout, mx.cpu(0))
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import _LIB, check_call

from tofu.boxes import Box
from tofu.errors import GraphError
from tofu.plans.layout import Layout, Shape

__all__ = [
    "MIN_BLOCKED_RANK",
    "Tiles",
    "Views",
    "gather",
    "parts_of",
    "relay",
    "scatter",
    "spread_parts",
    "views_of",
]

MIN_BLOCKED_RANK = 3  # oneDNN always stores vectors and matrices in the plain layout
_BLOCKED_DTYPES = ("float32", "int8", "uint8")


class Tiles(NamedTuple):
    """A divided tensor.

    Attributes:
        arrays: the tile of each worker, on its context.
        layout: the part of the tensor that each one is.
    """

    arrays: Sequence[mx.nd.NDArray]
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
        out = _empty_tiles(layout, contexts)
        if _can_write(whole) and all(map(_can_write, out)):
            _write(whole, layout, out)
            return list(out)
    parts: dict[Box, mx.nd.NDArray] = {}
    with autograd.pause():
        for box, tile in zip(layout.boxes, out):
            if box not in parts:
                parts[box] = _part(whole, box)
            _overwrite(parts[box], tile, blocked=blocked)
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
        _collect(Tiles(tiles, layout), Box.whole(layout.shape), out)
    return out


def relay(
    tiles: Tiles,
    layout: Layout,
    contexts: Sequence[mx.Context],
    out: Optional[Sequence[mx.nd.NDArray]] = None,
    *,
    blocked: bool = False,
) -> list[mx.nd.NDArray]:
    """Copy tiles into another layout, from worker to worker: no device holds the whole tensor.

    out: arrays to fill instead of new ones, one per worker.
    blocked: whether oneDNN may have left these in its blocked layout.

    Raises GraphError when shapes or counts do not agree.
    """
    _check("relay", tiles.layout.shape, layout, len(contexts))
    if out is None:
        out = _empty_tiles(layout, contexts)
    with autograd.pause():
        for box, target in zip(layout.boxes, out):
            in_between = blocked and _may_be_blocked(target)
            plain = (
                mx.nd.empty(target.shape, target.context, target.dtype) if in_between else target
            )
            _collect(tiles, box, plain)
            if in_between:
                _overwrite(plain, target, blocked=True)
    return list(out)


def parts_of(tiles: Tiles, layout: Layout, contexts: Sequence[mx.Context]) -> list[mx.nd.NDArray]:
    """Return tiles in another layout, to read; a view of the worker's own tile if possible.

    After writing to them, call ``spread_parts``.
    """
    parts = []
    with autograd.pause():
        for box, context, tile_box, tile in zip(
            layout.boxes, contexts, tiles.layout.boxes, tiles.arrays
        ):
            if box.common(tile_box) == box:
                parts.append(_part(tile, box.relative_to(tile_box)))
            else:
                parts.append(mx.nd.empty(box.shape, context, layout.dtype))
                _collect(tiles, box, parts[-1])
    return parts


def spread_parts(parts: Tiles, tiles: Tiles) -> None:
    """Write the parts of a tensor, with new values, to all of its tiles.

    Args:
        parts: the result of ``parts_of`` for the tiles.
        tiles: arrays that oneDNN may have left in its blocked layout.
    """
    with autograd.pause():
        targets = [
            mx.nd.empty(tile.shape, tile.context, tile.dtype) if _may_be_blocked(tile) else tile
            for tile in tiles.arrays
        ]
        for source, worker in _exchanges(parts.layout.boxes):
            box = parts.layout.boxes[source]
            if source != worker or not _is_view(tiles, worker, box):
                _insert(parts.arrays[source], box, targets[worker], tiles.layout.boxes[worker])
        for target, tile in zip(targets, tiles.arrays):
            if target is not tile:
                _overwrite(target, tile, blocked=True)


class Views(NamedTuple):
    """Parts of tiles in the tiles' own memory, to be used in every step.

    Attributes:
        arrays: the part of each worker.
        copies: pairs of views: a part in one tile, and its place in another tile.
    """

    arrays: list[mx.nd.NDArray]
    copies: list[tuple[mx.nd.NDArray, mx.nd.NDArray]]

    def spread(self) -> None:
        """Carries out ``spread_parts``."""
        with autograd.pause():
            for part, target in self.copies:
                mx.nd._internal._copyto(part, out=target)


def views_of(tiles: Tiles, layout: Layout) -> Optional[Views]:
    """The parts of another layout, where all lie in the workers' own tiles and in one piece."""
    arrays, boxes = tiles.arrays, layout.boxes
    if not all(_is_view(tiles, worker, box) for worker, box in enumerate(boxes)):
        return None
    copies = []
    with autograd.pause():
        owns = zip(arrays, boxes, tiles.layout.boxes)
        parts = [_part(tile, box.relative_to(tile_box)) for tile, box, tile_box in owns]
        for source, worker in _exchanges(boxes):
            common = boxes[source].common(tiles.layout.boxes[worker])
            if source == worker or common is None:
                continue
            if common.shape[1:] != arrays[worker].shape[1:] or common != boxes[source]:
                return None
            target = common.relative_to(tiles.layout.boxes[worker])
            copies.append((parts[source], _part(arrays[worker], target)))
    return Views(parts, copies)


def _exchanges(boxes: Sequence[Box]) -> Iterator[tuple[int, int]]:
    """Pairs (source, worker): the worker that each one takes a part from, its own part first.

    A worker takes a part from the nearest one that has it. In each turn two workers exchange their
    parts, as MXNet's engine orders all that reads or writes some of a tile.
    """
    count = len(boxes)
    received: list[set[Box]] = [set() for _ in range(count)]
    for turn in range(1 << (count - 1).bit_length()):
        for worker, source in ((worker, worker ^ turn) for worker in range(count)):
            if source < count and boxes[source] not in received[worker]:
                received[worker].add(boxes[source])
                yield source, worker


def _is_view(tiles: Tiles, worker: int, box: Box) -> bool:
    """Whether ``parts_of`` has returned memory of the worker's own tile."""
    tile, tile_box = tiles.arrays[worker], tiles.layout.boxes[worker]
    if _may_be_blocked(tile):
        return False
    return box == tile_box or (box.common(tile_box) == box and box.shape[1:] == tile_box.shape[1:])


def _write(whole: mx.nd.NDArray, layout: Layout, tiles: Sequence[mx.nd.NDArray]) -> None:
    """Copy every worker's part to its tile, which is new, without MXNet's engine.

    Cutting a part with an operator, and copying that, takes longer for all but large arrays.
    """
    whole.wait_to_read()
    values = _memory(whole)
    for box, tile in zip(layout.boxes, tiles):
        _memory(tile)[...] = values[tuple(slice(*bounds) for bounds in box)]


def _can_write(array: mx.nd.NDArray) -> bool:
    return array.context.device_type != "gpu" and np.dtype(array.dtype).isbuiltin == 1


def _memory(array: mx.nd.NDArray) -> np.ndarray[Any, Any]:
    """The memory of an array on a CPU, in the plain layout; the array must be there."""
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    size = array.size * np.dtype(array.dtype).itemsize
    if address.value is None or not size:
        return np.empty(array.shape, array.dtype)
    bytes_of = (ctypes.c_char * size).from_address(address.value)
    return np.frombuffer(bytes_of, array.dtype).reshape(array.shape)


def _empty_tiles(layout: Layout, contexts: Sequence[mx.Context]) -> list[mx.nd.NDArray]:
    return [mx.nd.empty(box.shape, ctx, layout.dtype) for box, ctx in zip(layout.boxes, contexts)]


def _overwrite(value: mx.nd.NDArray, tile: mx.nd.NDArray, *, blocked: bool) -> None:
    if blocked and _refuses_copies(tile):
        mx.nd.identity(value.copyto(tile.context), out=tile)
    else:
        value.copyto(tile)


def _collect(tiles: Tiles, box: Box, out: mx.nd.NDArray) -> None:
    """Fill `out`, the part of a tensor in `box`, from tiles that cover it."""
    pieces = _distinct(tiles, out.context)
    if box in pieces:
        pieces[box].copyto(out)
        return
    for source, tile in pieces.items():
        _insert(tile, source, out, box)


def _insert(tile: mx.nd.NDArray, source: Box, out: mx.nd.NDArray, box: Box) -> None:
    """Copy the elements that lie in both boxes from one part of a tensor to another."""
    common = box.common(source)
    if common is None:
        return
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


def _distinct(tiles: Tiles, ctx: mx.Context) -> dict[Box, mx.nd.NDArray]:
    """Choose a tile for every part, preferably one on `ctx`."""
    chosen: dict[Box, mx.nd.NDArray] = {}
    for box, tile in zip(tiles.layout.boxes, tiles.arrays):
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
