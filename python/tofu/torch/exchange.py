"""Brings tiles from one placement to another along the routes of ``torch/redistribution``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard

from tofu.boxes import Box
from tofu.torch.ranks import connected
from tofu.torch.redistribution import WHOLE, Layout, Placement, Stage, route, tile_box

__all__ = ["Exchange", "Message", "Moving", "Transfers", "of_dtensor", "to_dtensor"]

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
_COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}


def to_dtensor(placement: Placement) -> tuple[Any, ...]:
    """Converts a placement without terms to DTensor's."""
    return tuple(Replicate() if cut == WHOLE else Shard(int(cut)) for cut in placement)


def of_dtensor(placements: Sequence[Any]) -> Placement:
    """Converts DTensor's placements, without terms, to ours."""
    return tuple(placement.dim if placement.is_shard() else WHOLE for placement in placements)


@dataclass(frozen=True)
class _Piece:
    """A box that this rank shares with another, relative to the start of the tile."""

    rank: int
    slices: tuple[slice, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Transfers:
    """Pieces that this rank sends and receives in a stage.

    Attributes:
        sends: pieces of the old tile.
        receives: pieces of the new tile, by term, each with its place in the old tile.
        shape: the new tile's shape.
        reduction: the reduction that combines the terms.
    """

    sends: tuple[_Piece, ...]
    receives: tuple[tuple[tuple[_Piece, tuple[slice, ...]], ...], ...]
    shape: tuple[int, ...]
    reduction: str


@dataclass(frozen=True)
class Moving:
    """A tile that gets another placement.

    Attributes:
        tile: this rank's tile.
        shape: shape of the whole tensor.
        source, target: placements before and after.
    """

    tile: Any
    shape: tuple[int, ...]
    source: Placement
    target: Placement


class Exchange:
    """Moves tiles between the ranks of a mesh, and counts the bytes that this rank receives.

    Attributes:
        received_bytes: bytes received so far; an all-reduce over k ranks counts 2 (k - 1) / k of
            the tensor.
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
        """Bring a tile to another placement; all ranks must call this in the same order."""
        return self.move_all([Moving(tile, tuple(shape), source, target)])[0]

    def move_all(self, moving: Sequence[Moving]) -> list[Any]:
        """Bring several tiles to other placements, with one message per rank and stage."""
        tiles = [each.tile for each in moving]
        routes = [route(m.shape, m.source, m.target, self._sizes) for m in moving]
        for number in range(max(map(len, routes), default=0)):
            stages = [(k, way[number]) for k, way in enumerate(routes) if number < len(way)]
            self._all_reduce(tiles, [(k, s) for k, s in stages if s.all_reduce is not None])
            self._swap(
                tiles,
                [
                    (k, self._transfers(moving[k].shape, s))
                    for k, s in stages
                    if s.all_reduce is None
                ],
            )
        return tiles

    def _all_reduce(self, tiles: list[Any], stages: Sequence[tuple[int, Stage]]) -> None:
        """All-reduce tiles; tiles of one kind share a message."""
        kinds: dict[Any, list[int]] = {}
        for k, stage in stages:
            kind = stage.all_reduce, stage.reduction, tiles[k].dtype
            kinds.setdefault(kind, []).append(k)
        for (dim, reduction, _), numbers in kinds.items():
            flat = torch.cat([tiles[k].reshape(-1) for k in numbers])
            self._reduce(flat, reduction, dim)
            size = self._sizes[dim]
            self.received_bytes += 2 * (size - 1) * flat.nbytes // size
            parts = flat.split([tiles[k].numel() for k in numbers])
            for k, part in zip(numbers, parts):
                tiles[k] = part.view(tiles[k].shape)

    def _swap(self, tiles: list[Any], swapped: Sequence[tuple[int, Transfers]]) -> None:
        """Send and receive pieces, and assemble the new tiles."""
        me = self.mesh.get_rank()
        by_rank: dict[int, list[tuple[Any, torch.dtype]]] = {}
        for k, transfers in swapped:
            for piece, _ in itertools.chain(*transfers.receives):
                if piece.rank != me:
                    by_rank.setdefault(piece.rank, []).append((piece.shape, tiles[k].dtype))
        device = self.mesh.device_type
        messages = self._messages(tiles, swapped)
        received = {rank: Message(pieces, device) for rank, pieces in by_rank.items()}
        self.received_bytes += sum(message.received_bytes for message in received.values())
        self._send(messages, {rank: message.buffer for rank, message in received.items()})
        for k, transfers in swapped:
            tiles[k] = self._joined(tiles[k], transfers, received)

    def _messages(
        self, tiles: Sequence[Any], swapped: Sequence[tuple[int, Transfers]]
    ) -> dict[int, Any]:
        """Returns rank -> message for it."""
        me = self.mesh.get_rank()
        sent: dict[int, list[Any]] = {}
        for k, transfers in swapped:
            for piece in transfers.sends:
                if piece.rank != me:
                    sent.setdefault(piece.rank, []).append(tiles[k][piece.slices])
        return {rank: _packed(parts) for rank, parts in sent.items()}

    def _reduce(self, flat: Any, reduction: str, dim: int) -> None:
        """Reduce a tensor in place over a dimension of the mesh."""
        with connected(f"rank {self.mesh.get_rank()}: an all-reduce over dimension {dim}"):
            dist.all_reduce(flat, _OPS[reduction], group=self.mesh.get_group(dim))

    def _send(self, messages: Mapping[int, Any], buffers: Mapping[int, Any]) -> None:
        """Send a message to each rank, and fill the buffers of the ranks that send here."""
        works = [dist.P2POp(dist.isend, message, rank) for rank, message in messages.items()]
        works += [dist.P2POp(dist.irecv, buffer, rank) for rank, buffer in buffers.items()]
        if works:
            with connected(f"rank {self.mesh.get_rank()}: tiles of ranks {_numbers(works)}"):
                for work in dist.batch_isend_irecv(works):
                    work.wait()

    def _joined(self, tile: Any, transfers: Transfers, received: Mapping[int, Message]) -> Any:
        """Assembles a new tile from the pieces of all its terms."""
        me = self.mesh.get_rank()
        result = None
        for term in transfers.receives:
            if len(term) == 1 and term[0][0].shape == transfers.shape:
                piece, inside = term[0]
                value = tile[inside] if piece.rank == me else received[piece.rank].take()
            else:
                value = torch.empty(transfers.shape, dtype=tile.dtype, device=tile.device)
                self._fill(value, tile, term, received)
            result = value if result is None else _COMBINE[transfers.reduction](result, value)
        assert result is not None
        return result.contiguous()

    def _fill(
        self, value: Any, tile: Any, term: Sequence[Any], received: Mapping[int, Message]
    ) -> None:
        """Copy the pieces of a term to their places in a new tile."""
        for piece, inside in term:
            own = piece.rank == self.mesh.get_rank()
            value[piece.slices] = tile[inside] if own else received[piece.rank].next()

    # --- Preparing ----------------------------------------------------------------------

    def _planned(self, shape: tuple[int, ...], stage: Stage) -> Transfers:
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
        return Transfers(tuple(sends), tuple(receives), mine.shape, stage.reduction)

    def _ranks(self) -> itertools.product[tuple[int, ...]]:
        return itertools.product(*map(range, self._sizes))

    def _serves(self, source: Layout, giver: tuple[int, ...], taker: tuple[int, ...]) -> bool:
        """Whether `taker` reads from `giver`, the nearest of the ranks with equal tiles."""
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


# Pieces in a message begin at multiples of this, so that each can be viewed as its own type.
_ALIGNMENT = 16


def _starts(sizes: Sequence[int]) -> list[int]:
    """Offsets of pieces of these sizes in a message, and the end of the message."""
    return list(itertools.accumulate((-(-n // _ALIGNMENT) * _ALIGNMENT for n in sizes), initial=0))


def _bytes_of(tensor: Any) -> Any:
    """Views a contiguous tensor as bytes: backends do not support all types."""
    return tensor.reshape(-1).view(torch.uint8)


def _packed(parts: Sequence[Any]) -> Any:
    """Packs pieces into one message."""
    starts = _starts([part.nbytes for part in parts])
    if len(parts) == 1 and starts[-1] == parts[0].nbytes:
        return _bytes_of(parts[0].contiguous())
    message = torch.empty(starts[-1], dtype=torch.uint8, device=parts[0].device)
    for start, part in zip(starts, parts):
        inside = message[start : start + part.nbytes].view(part.dtype).view(part.shape)
        inside.copy_(part)
    return message


class Message:
    """A message from one rank, whose pieces are taken in order.

    Attributes:
        buffer: its bytes.
        received_bytes: bytes of its pieces, without padding.
    """

    def __init__(self, pieces: Sequence[tuple[Any, torch.dtype]], device: str) -> None:
        sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in pieces]
        starts = _starts(sizes)
        self.buffer = torch.empty(starts[-1], dtype=torch.uint8, device=device)
        self.received_bytes = sum(sizes)
        self._left = iter(zip(starts, sizes, pieces))

    def next(self) -> Any:
        """The next piece, as a view of the message."""
        start, size, (shape, dtype) = next(self._left)
        return self.buffer[start : start + size].view(dtype).view(shape)

    def skip(self) -> None:
        """Skip the next piece."""
        next(self._left)

    def take(self) -> Any:
        """The next piece, without keeping the others alive."""
        piece = self.next()
        return piece if piece.nbytes > len(self.buffer) - _ALIGNMENT else piece.clone()
