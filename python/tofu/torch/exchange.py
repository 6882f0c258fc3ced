"""Brings tiles from one placement to another along the routes of ``torch/routes``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard

from tofu.boxes import Box
from tofu.torch.ranks import connected
from tofu.torch.routes import WHOLE, Layout, Placement, Stage, route, tile_box

__all__ = ["Exchange", "of_dtensor", "to_dtensor"]

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
class _Transfers:
    """What this rank does in a stage.

    Attributes:
        sends: pieces of the own tile.
        receives: pieces of the new tile, by term, each with its place in the own tile.
        shape: that of the new tile.
        reduction: how terms are put together.
    """

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
        self._transfers = functools.cache(self._planned)

    def move(self, tile: Any, shape: Sequence[int], source: Placement, target: Placement) -> Any:
        """This rank's tile in another placement; all ranks call it in the same order."""
        for stage in route(tuple(shape), source, target, self._sizes):
            if stage.all_reduce is None:
                tile = self._exchanged(tile, self._transfers(tuple(shape), stage))
            else:
                tile = self._reduced(tile, stage.all_reduce, stage.reduction)
        return tile

    def _reduced(self, tile: Any, dim: int, reduction: str) -> Any:
        result = tile.clone(memory_format=torch.contiguous_format)
        group = self.mesh.get_group(dim)
        with connected(f"rank {self.mesh.get_rank()}: an all-reduce over dimension {dim}"):
            dist.all_reduce(result, _OPS[reduction], group=group)
        size = self._sizes[dim]
        self.received_bytes += 2 * (size - 1) * result.nbytes // size
        return result

    def _exchanged(self, tile: Any, transfers: _Transfers) -> Any:
        me = self.mesh.get_rank()
        works, buffers = [], {}
        wire = _wire_type(tile.dtype)
        for piece in transfers.sends:
            if piece.rank != me:
                part = tile[piece.slices].contiguous().view(wire)
                works.append(dist.P2POp(dist.isend, part, piece.rank))
        for term in transfers.receives:
            for piece, _ in term:
                if piece.rank != me:
                    buffer = torch.empty(piece.shape, dtype=tile.dtype, device=tile.device)
                    buffers[piece.rank] = buffer
                    works.append(dist.P2POp(dist.irecv, buffer.view(wire), piece.rank))
                    self.received_bytes += buffer.nbytes
        if works:
            with connected(f"rank {me}: tiles of ranks {_numbers(works)}"):
                for work in dist.batch_isend_irecv(works):
                    work.wait()
        result = None
        for term in transfers.receives:
            if len(term) == 1 and term[0][0].shape == transfers.shape:
                piece, inside = term[0]
                value = tile[inside] if piece.rank == me else buffers[piece.rank]
            else:
                value = torch.empty(transfers.shape, dtype=tile.dtype, device=tile.device)
                for piece, inside in term:
                    value[piece.slices] = tile[inside] if piece.rank == me else buffers[piece.rank]
            result = value if result is None else _COMBINE[transfers.reduction](result, value)
        assert result is not None
        return result.contiguous()

    # --- Preparing ----------------------------------------------------------------------

    def _planned(self, shape: tuple[int, ...], stage: Stage) -> _Transfers:
        source, target, sizes = stage.source, stage.target, self._sizes
        mine = tile_box(shape, target, sizes, self._here)
        own = tile_box(shape, source, sizes, self._here)
        sends, receives = [], []
        for there in self._ranks():
            if self._serves(source, self._here, there):
                common = tile_box(shape, target, sizes, there).common(own)
                if common is not None:
                    sends.append(self._piece(there, common, own))
        for digits in itertools.product(*(range(sizes[dim]) for dim in source.terms)):
            term = []
            for there in self._ranks():
                if tuple(there[dim] for dim in source.terms) != digits:
                    continue
                box = tile_box(shape, source, sizes, there)
                common = box.common(mine) if self._serves(source, there, self._here) else None
                if common is not None:
                    inside = _slices(common.relative_to(own)) if there == self._here else ()
                    term.append((self._piece(there, common, mine), inside))
            receives.append(tuple(term))
        return _Transfers(tuple(sends), tuple(receives), mine.shape, stage.reduction)

    def _ranks(self) -> itertools.product[tuple[int, ...]]:
        return itertools.product(*map(range, self._sizes))

    def _serves(self, source: Layout, giver: tuple[int, ...], taker: tuple[int, ...]) -> bool:
        """Whether a rank takes from another: of equal tiles, it takes from the one nearest."""
        return all(
            giver[dim] == taker[dim]
            for dim in range(len(self._sizes))
            if dim not in source.different
        )

    def _piece(self, there: tuple[int, ...], common: Box, tile: Box) -> _Piece:
        rank = int(self.mesh.mesh[there])
        return _Piece(rank, _slices(common.relative_to(tile)), common.shape)


def _numbers(works: Sequence[dist.P2POp]) -> str:
    return ", ".join(str(rank) for rank in sorted({work.peer for work in works}))


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


def _wire_type(dtype: torch.dtype) -> torch.dtype:
    """The type as which a backend sends elements: not all of them know all types."""
    return torch.uint8 if dtype == torch.bool else dtype
