"""Brings a tensor's tiles from one placement to another, each rank receiving what it lacks.

A placement has an entry for each dimension of the mesh: the dimension of the tensor that it cuts,
WHOLE, or the reduction of the terms that its ranks hold. Cuts of one dimension nest as in DTensor:
the first dimension of the mesh is the outermost.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard

from tofu.boxes import Box

__all__ = ["WHOLE", "Exchange", "Placement", "of_dtensor", "to_dtensor"]

WHOLE = -1
Placement = tuple[Union[int, str], ...]
_OPS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
_COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}


def to_dtensor(placement: Placement) -> tuple[Any, ...]:
    """A placement without terms as DTensor's."""
    return tuple(Replicate() if cut == WHOLE else Shard(int(cut)) for cut in placement)


def of_dtensor(placements: Sequence[Any]) -> Placement:
    """DTensor's placements, without terms, as ours."""
    return tuple(placement.dim if placement.is_shard() else WHOLE for placement in placements)


@dataclass(frozen=True)
class _Piece:
    """A box that another rank and this one have in common, counted from the tile's begin."""

    rank: int
    slices: tuple[slice, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Route:
    """What this rank does to bring one placement to another.

    Attributes:
        reduces: dimensions of the mesh whose terms all ranks need whole, with the reduction.
        sends: pieces of the own tile.
        receives: pieces of the new tile, by term.
        shape: that of the new tile.
        reduction: how terms are put together.
    """

    reduces: tuple[tuple[int, str], ...]
    sends: tuple[_Piece, ...]
    receives: tuple[tuple[tuple[_Piece, tuple[slice, ...]], ...], ...]
    shape: tuple[int, ...]
    reduction: str


class Exchange:
    """Moves tiles between the ranks of a mesh, and counts the bytes that this rank receives.

    Attributes:
        received_bytes: so far; of an all-reduce over k ranks 2 (k - 1) / k of the tensor.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.received_bytes = 0
        self._sizes = tuple(mesh.mesh.shape)
        coordinate = mesh.get_coordinate()
        assert coordinate is not None
        self._here = tuple(coordinate)
        self._route = functools.cache(self._routed)

    def move(self, tile: Any, shape: Sequence[int], source: Placement, target: Placement) -> Any:
        """This rank's tile in another placement; all ranks call it in the same order."""
        if source == target:
            return tile
        route = self._route(tuple(shape), source, target)
        for dim, reduction in route.reduces:
            tile = tile.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(tile, _OPS[reduction], group=self.mesh.get_group(dim))
            size = self._sizes[dim]
            self.received_bytes += 2 * (size - 1) * tile.nbytes // size
        return self._exchanged(tile, route)

    def _exchanged(self, tile: Any, route: _Route) -> Any:
        me = self.mesh.get_rank()
        works, buffers = [], {}
        wire = _wire_type(tile.dtype)
        for piece in route.sends:
            if piece.rank != me:
                part = tile[piece.slices].contiguous().view(wire)
                works.append(dist.P2POp(dist.isend, part, piece.rank))
        for term in route.receives:
            for piece, _ in term:
                if piece.rank != me:
                    buffer = torch.empty(piece.shape, dtype=tile.dtype, device=tile.device)
                    buffers[piece.rank] = buffer
                    works.append(dist.P2POp(dist.irecv, buffer.view(wire), piece.rank))
                    self.received_bytes += buffer.nbytes
        if works:
            for work in dist.batch_isend_irecv(works):
                work.wait()
        result = None
        for term in route.receives:
            if len(term) == 1 and term[0][0].shape == route.shape:
                piece, inside = term[0]
                value = tile[inside] if piece.rank == me else buffers[piece.rank]
            else:
                value = torch.empty(route.shape, dtype=tile.dtype, device=tile.device)
                for piece, inside in term:
                    value[piece.slices] = tile[inside] if piece.rank == me else buffers[piece.rank]
            result = value if result is None else _COMBINE[route.reduction](result, value)
        assert result is not None
        return result.contiguous()

    # --- Routes -------------------------------------------------------------------------

    def _routed(self, shape: tuple[int, ...], source: Placement, target: Placement) -> _Route:
        reduces, left = [], list(source)
        for dim, (before, after) in enumerate(zip(source, target)):
            if isinstance(before, str) and after == WHOLE:
                reduces.append((dim, before))
                left[dim] = WHOLE
        given = tuple(left)
        terms = [dim for dim, before in enumerate(given) if isinstance(before, str)]
        reductions = {str(given[dim]) for dim in terms} or {"sum"}
        assert len(reductions) == 1, f"terms of several kinds: {given}"
        mine = self._box(shape, target, self._here)
        own = self._box(shape, given, self._here)
        sends, receives = [], []
        for there in self._ranks():
            if self._serves(given, self._here, there):
                wanted = self._box(shape, target, there)
                common = wanted.common(own)
                if common is not None:
                    sends.append(self._piece(there, common, own))
        for digits in itertools.product(*(range(self._sizes[dim]) for dim in terms)):
            term = []
            for there in self._ranks():
                if tuple(there[dim] for dim in terms) != digits:
                    continue
                box = self._box(shape, given, there)
                common = box.common(mine) if self._serves(given, there, self._here) else None
                if common is not None:
                    inside = _slices(common.relative_to(own)) if there == self._here else ()
                    term.append((self._piece(there, common, mine), inside))
            receives.append(tuple(term))
        return _Route(tuple(reduces), tuple(sends), tuple(receives), mine.shape, reductions.pop())

    def _ranks(self) -> itertools.product[tuple[int, ...]]:
        return itertools.product(*map(range, self._sizes))

    def _serves(self, given: Placement, giver: tuple[int, ...], taker: tuple[int, ...]) -> bool:
        """Whether a rank takes from another: of equal tiles, it takes from the one nearest."""
        return all(g == t for g, t, cut in zip(giver, taker, given) if cut == WHOLE)

    def _piece(self, there: tuple[int, ...], common: Box, tile: Box) -> _Piece:
        rank = int(self.mesh.mesh[there])
        return _Piece(rank, _slices(common.relative_to(tile)), common.shape)

    def _box(self, shape: tuple[int, ...], placement: Placement, at: tuple[int, ...]) -> Box:
        begin, size = [0] * len(shape), list(shape)
        for cut, digit, parts in zip(placement, at, self._sizes):
            if isinstance(cut, int) and cut != WHOLE:
                size[cut] //= parts
                begin[cut] += digit * size[cut]
        return Box((b, b + n) for b, n in zip(begin, size))


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


def _wire_type(dtype: torch.dtype) -> torch.dtype:
    """The type as which a backend sends elements: not all of them know all types."""
    return torch.uint8 if dtype == torch.bool else dtype
