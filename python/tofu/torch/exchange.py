"""Brings regions of tiles from rank to rank: one message per rank, however many regions.

A region is a box that a rank assembles of pieces of its own and others' tiles. Terms of a sum
overlap, and are combined in one order on all ranks. Messages travel while the rank computes: an
exchange starts, and is finished later.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tofu.torch.ranks import connected

__all__ = ["FILL", "Exchange", "Message", "Pending", "Piece", "Region", "Tiles", "Transfers"]

FILL = -1
_COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}
Shape = tuple[int, ...]
Tiles = dict[Any, Any]


@dataclass(frozen=True)
class Piece:
    """A box of a tile that becomes a box of a region.

    Attributes:
        worker: the worker that has the tile; FILL: the region's fill.
        tile: the tile's name.
        term: number of the term that it is part of.
        start: its lowest corner in the tile.
        to: its lowest corner in the region.
        shape: its extents.
    """

    worker: int
    tile: Any
    term: int
    start: Shape
    to: Shape
    shape: Shape

    @functools.cached_property
    def source(self) -> tuple[slice, ...]:
        """Its place in the tile."""
        return _box(self.start, self.shape)

    @functools.cached_property
    def target(self) -> tuple[slice, ...]:
        """Its place in the region."""
        return _box(self.to, self.shape)


@dataclass(frozen=True)
class Region:
    """A region that a worker assembles.

    Attributes:
        worker: the worker.
        tile: the region's name.
        shape: its extents.
        dtype: its type.
        pieces: the pieces, by term.
        reduction: the operation that combines terms.
        terms: their number.
        fill: the value of elements outside all tiles.
    """

    worker: int
    tile: Any
    shape: Shape
    dtype: torch.dtype
    pieces: tuple[Piece, ...]
    reduction: str = "sum"
    terms: int = 1
    fill: float = 0.0

    @property
    def received(self) -> list[Piece]:
        """The pieces that come from other workers."""
        return [p for p in self.pieces if p.worker not in (FILL, self.worker)]

    @property
    def received_bytes(self) -> int:
        """The bytes that come from other workers."""
        return sum(math.prod(p.shape) for p in self.received) * int(self.dtype.itemsize)


class Transfers:
    """One worker's part in an exchange: it sends, receives and assembles.

    Args:
        regions: the regions of all workers, in the same order everywhere.
        worker: the worker.

    Attributes:
        regions: its own regions.
        sends: worker -> pieces of this worker's tiles, in the order of its regions.
        receives: worker -> shapes and types of its pieces, in the order of this worker's regions.
    """

    def __init__(self, regions: Iterable[Region], worker: int) -> None:
        self.regions: list[Region] = []
        self.sends: dict[int, list[Piece]] = {}
        self.receives: dict[int, list[tuple[Shape, torch.dtype]]] = {}
        for region in regions:
            if region.worker == worker:
                self.regions.append(region)
            for piece in region.received:
                if region.worker == worker:
                    pieces = self.receives.setdefault(piece.worker, [])
                    pieces.append((piece.shape, region.dtype))
                elif piece.worker == worker:
                    self.sends.setdefault(region.worker, []).append(piece)

    @property
    def sent(self) -> tuple[Any, ...]:
        """The tiles of this worker that it sends."""
        pieces = itertools.chain(*self.sends.values())
        return tuple(dict.fromkeys(piece.tile for piece in pieces))

    @property
    def reads(self) -> tuple[Any, ...]:
        """The tiles of this worker that its own regions have pieces of."""
        pieces = (p for r in self.regions for p in r.pieces if p.worker == r.worker)
        return tuple(dict.fromkeys(piece.tile for piece in pieces))


@dataclass
class Pending:
    """An exchange whose messages travel.

    Attributes:
        transfers: what the rank sends, receives and assembles.
        messages: worker -> message for it. A message may be a view of a tile.
        received: worker -> message from it, which is there once the works have ended.
        works: torch's handles of the sends and receives.
    """

    transfers: Transfers
    messages: dict[int, Any]
    received: dict[int, Message]
    works: list[Any]


class Exchange:
    """Runs exchanges between the ranks of a mesh, and counts the bytes that this rank receives.

    Attributes:
        worker: this rank's number among the mesh's devices.
        received_bytes: bytes received so far.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self._ranks = mesh.mesh.flatten().tolist()
        self._device = mesh.device_type
        self._rank = mesh.get_rank()
        self.worker = self._ranks.index(self._rank)
        self.received_bytes = 0

    def run(self, transfers: Transfers, tiles: Tiles) -> None:
        """Add a worker's regions to its tiles; all ranks must call this in the same order."""
        self.finish(self.start(transfers, tiles), tiles)

    def start(self, transfers: Transfers, tiles: Tiles) -> Pending:
        """Send a worker's tiles, which must keep their values until the exchange is finished.

        All ranks must start exchanges in the same order.
        """
        received = {w: Message(each, self._device) for w, each in transfers.receives.items()}
        self.received_bytes += sum(message.received_bytes for message in received.values())
        messages = self._messages(transfers.sends, tiles)
        works = self._send(messages, {w: message.buffer for w, message in received.items()})
        return Pending(transfers, messages, received, works)

    def wait(self, pending: Pending) -> None:
        """Wait for the messages of an exchange. Raises ConnectionLostError."""
        with self._connected({*pending.messages, *pending.received}):
            for work in pending.works:
                work.wait()
        pending.works.clear()
        pending.messages.clear()

    def finish(self, pending: Pending, tiles: Tiles) -> None:
        """Wait for the messages of an exchange, and add the worker's regions to its tiles."""
        self.wait(pending)
        for region in pending.transfers.regions:
            tiles[region.tile] = self._assembled(region, tiles, pending.received)

    def _messages(self, sends: Mapping[int, Sequence[Piece]], tiles: Tiles) -> dict[int, Any]:
        """Returns worker -> message for it."""
        return {
            worker: _packed([tiles[piece.tile][piece.source] for piece in pieces])
            for worker, pieces in sends.items()
        }

    def _send(self, messages: Mapping[int, Any], buffers: Mapping[int, Any]) -> list[Any]:
        """Begin to send to each worker, and to fill the buffers of those that send here."""
        works = [dist.P2POp(dist.isend, each, self._ranks[w]) for w, each in messages.items()]
        works += [dist.P2POp(dist.irecv, each, self._ranks[w]) for w, each in buffers.items()]
        with self._connected({*messages, *buffers}):
            return dist.batch_isend_irecv(works) if works else []

    def _connected(self, workers: Iterable[int]) -> contextlib.AbstractContextManager[None]:
        ranks = ", ".join(map(str, sorted(self._ranks[w] for w in workers)))
        return connected(f"rank {self._rank}: tiles of ranks {ranks}")

    def _assembled(self, region: Region, tiles: Tiles, received: Mapping[int, Message]) -> Any:
        result = None
        for _, term in itertools.groupby(region.pieces, lambda piece: piece.term):
            pieces = list(term)
            if len(pieces) == 1 and pieces[0].worker != FILL and pieces[0].shape == region.shape:
                value = self._piece(pieces[0], tiles, received)
            else:
                value = self._empty(region, pieces)
                self._fill(value, pieces, tiles, received)
            result = value if result is None else _COMBINE[region.reduction](result, value)
        return self._empty(region, ()) if result is None else result.contiguous()

    def _piece(self, piece: Piece, tiles: Tiles, received: Mapping[int, Message]) -> Any:
        if piece.worker == self.worker:
            return tiles[piece.tile][piece.source]
        return received[piece.worker].take()

    def _empty(self, region: Region, pieces: Sequence[Piece]) -> Any:
        empty = torch.empty(region.shape, dtype=region.dtype, device=self._device)
        return empty.fill_(region.fill) if any(p.worker == FILL for p in pieces) else empty

    def _fill(
        self, value: Any, pieces: Sequence[Piece], tiles: Tiles, received: Mapping[int, Message]
    ) -> None:
        """Copy the pieces of a term to their places in a region."""
        for piece in pieces:
            if piece.worker == FILL:
                continue
            own = piece.worker == self.worker
            value[piece.target] = (
                tiles[piece.tile][piece.source] if own else received[piece.worker].next()
            )


def _box(corner: Shape, shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(low, low + size) for low, size in zip(corner, shape))


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
