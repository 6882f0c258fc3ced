"""Brings regions of tiles from rank to rank: one message per rank, however many regions.

A region is a box that a rank assembles of pieces of its own and others' tiles. Terms of a sum
overlap, and are combined in one order on all ranks. Messages travel while the rank computes: an
exchange starts, and is finished later.

Where tiles lie in memory in another order of dimensions, as transposed weights do, messages and
regions keep it: then nothing is transposed on the way, and readers get what plain torch gives them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tofu.torch.tiles.ranks import connected

__all__ = [
    "APART", "COLLECTIVE_BYTES", "COMBINE", "FILL", "WEIGHTED", "Exchange", "Message", "Pending",
    "Piece", "Region", "Tiles", "Transfers", "shares_of", "weighted_mean",
]  # fmt: skip

FILL = -1
# The most bytes of a message for which an exchange of all ranks is a collective.
COLLECTIVE_BYTES = 64 << 10
# The parts of a collective's buffer begin at multiples of this.
_ALIGNMENT = 16
# By a reducer's name, the operator that combines two parts.
COMBINE = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
    "logsumexp": torch.logaddexp,
}
# Terms of a mean, and their weights, which stay apart.
WEIGHTED, APART = "weighted", "apart"
Shape = tuple[int, ...]
Tiles = dict[Any, Any]
Received = Mapping[int, Iterator[Any]]  # worker -> the pieces that it sent
Join = tuple[int, tuple[int, ...]]  # the dimension, and the pieces' numbers along it


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
        reduction: the operation that combines terms. Those that stay APART lie side by side, in a
            new first dimension.
        weights: the tile of the logarithms of WEIGHTED terms' weights, and the dimensions of the
            region that these have.
        terms: their number.
        fill: the value of elements outside all tiles.
        order: the dimensions in the order in which the tiles probably lie in memory, outermost
            first, as messages and the region do; (): as they come.
    """

    worker: int
    tile: Any
    shape: Shape
    dtype: torch.dtype
    pieces: tuple[Piece, ...]
    reduction: str = "sum"
    terms: int = 1
    fill: float = 0.0
    order: tuple[int, ...] = ()
    weights: Optional[tuple[Any, tuple[int, ...]]] = None

    @functools.cached_property
    def by_term(self) -> tuple[tuple[Piece, ...], ...]:
        """The pieces of each term."""
        return tuple(tuple(t) for _, t in itertools.groupby(self.pieces, lambda p: p.term))

    @functools.cached_property
    def joins(self) -> tuple[Optional[Join], ...]:
        """For each term, how its pieces are joined; None if they do not lie in one line."""
        return tuple(_join(self.shape, pieces) for pieces in self.by_term)

    def stored(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Extents in the order of memory."""
        return tuple(shape[d] for d in self.order) or tuple(shape)

    def as_stored(self, value: Any) -> Any:
        """View a box of the region with its dimensions in the order of memory."""
        return value.permute(self.order) if self.order else value

    def as_read(self, value: Any) -> Any:
        """The reverse of ``as_stored``."""
        return value.permute(self._inverse) if self.order else value

    @functools.cached_property
    def _inverse(self) -> tuple[int, ...]:
        return tuple(sorted(range(len(self.order)), key=self.order.__getitem__))

    @property
    def received(self) -> list[Piece]:
        """The pieces that come from other workers."""
        return [p for p in self.pieces if p.worker not in (FILL, self.worker)]

    @property
    def received_bytes(self) -> int:
        """The bytes that come from other workers."""
        return sum(math.prod(p.shape) for p in self.received) * int(self.dtype.itemsize)


class Message:
    """What one worker sends to another in an exchange: pieces of its tiles.

    The pieces of wider types come first, so that each begins at a multiple of its type's size and
    can be viewed as that type.

    Args:
        pieces: the pieces and their regions.

    Attributes:
        pieces: the pieces.
        bytes: its size.
    """

    def __init__(self, pieces: Sequence[tuple[Piece, Region]]) -> None:
        self.pieces = [piece for piece, _ in pieces]
        self.bytes = 0
        self._regions = [region for _, region in pieces]
        self._shapes = [region.stored(piece.shape) for piece, region in pieces]
        self._blocks: list[tuple[slice, torch.dtype, list[int], list[int]]] = []
        types = [region.dtype for region in self._regions]
        order = sorted(range(len(types)), key=lambda k: (-types[k].itemsize, str(types[k])))
        for dtype, block in itertools.groupby(order, key=types.__getitem__):
            numbers = list(block)
            sizes = [math.prod(self.pieces[k].shape) for k in numbers]
            begin, self.bytes = self.bytes, self.bytes + sum(sizes) * int(dtype.itemsize)
            self._blocks.append((slice(begin, self.bytes), dtype, sizes, numbers))

    def views(self, buffer: Any) -> list[Any]:
        """Views the message's bytes as its pieces, in the order of memory."""
        views: list[Any] = [None] * len(self.pieces)
        for span, dtype, sizes, numbers in self._blocks:
            for view, number in zip(buffer[span].view(dtype).split(sizes), numbers):
                views[number] = view.view(self._shapes[number])
        return views

    def pack(self, tiles: Tiles, buffer: Any) -> None:
        """Copy the pieces into the message's bytes."""
        for span, dtype, sizes, numbers in self._blocks:
            block, begin, end = buffer[span].view(dtype), 0, 0
            whole: list[Any] = []  # neighbours that lie in memory as they do in the message
            for number, size in zip(numbers, sizes):
                source = self._source(number, tiles)
                if source.is_contiguous():
                    whole.append(source.view(-1))
                else:
                    _join_into(block[begin:end], whole)
                    begin = end + size
                    block[end:begin].view(source.shape).copy_(source)
                end += size
            _join_into(block[begin:end], whole)

    def packed(self, tiles: Tiles) -> Any:
        """Returns the message's bytes; those of a single piece may be a view of its tile."""
        first = self._source(0, tiles)
        if len(self.pieces) == 1:
            line = first.contiguous().view(-1)
            return line.as_strided(line.shape, (1,)).view(torch.uint8)  # one element has any stride
        buffer = torch.empty(self.bytes, dtype=torch.uint8, device=first.device)
        self.pack(tiles, buffer)
        return buffer

    def _source(self, number: int, tiles: Tiles) -> Any:
        """A piece in its tile."""
        piece, tile = self.pieces[number], tiles[self.pieces[number].tile]
        box = tile if piece.shape == tuple(tile.shape) else tile[piece.source]
        return self._regions[number].as_stored(box)


def _join_into(buffer: Any, pieces: list[Any]) -> None:
    """Copy lines of elements one after the other into a buffer; empties the list."""
    if len(pieces) == 1:
        buffer.copy_(pieces[0])
    elif pieces:
        torch.cat(pieces, out=buffer)
    pieces.clear()


class Transfers:
    """One worker's part in an exchange: it sends, receives and assembles.

    Args:
        regions: its own regions, in the same order everywhere.
        sent: the pieces that others receive from it, each with its reader and a region of its type
            and order of memory, in the same order.
        worker: the worker.
        is_crowded: whether every worker sends a little to every other, on all workers alike.

    Attributes:
        regions: its own regions.
        sends: worker -> message for it; workers that get the same pieces share one.
        receives: worker -> message from it, whose pieces are in the order of the regions.
        is_crowded: as given.
    """

    def __init__(
        self,
        regions: Iterable[Region],
        sent: Iterable[tuple[int, Piece, Region]],
        worker: int,
        *,
        is_crowded: bool = False,
    ) -> None:
        self.regions = list(regions)
        self.is_crowded = is_crowded
        received: dict[int, list[tuple[Piece, Region]]] = {}
        for region in self.regions:
            for piece in region.received:
                received.setdefault(piece.worker, []).append((piece, region))
        self.receives = {sender: Message(pieces) for sender, pieces in received.items()}
        given: dict[int, list[tuple[Piece, Region]]] = {}
        for reader, piece, region in sent:
            given.setdefault(reader, []).append((piece, region))
        self.sends: dict[int, Message] = {}
        alike: dict[Any, Message] = {}
        for reader, pieces in given.items():
            content = tuple((p.tile, p.start, p.shape, r.dtype, r.order) for p, r in pieces)
            if content not in alike:
                alike[content] = Message(pieces)
            self.sends[reader] = alike[content]

    @classmethod
    def between(cls, regions: Sequence[Region], worker: int, workers: int) -> Transfers:
        """One worker's part, from the regions of all `workers` workers."""
        pairs: dict[tuple[int, int], int] = {}
        sent = []
        for region in regions:
            for piece in region.received:
                pair = piece.worker, region.worker
                size = math.prod(piece.shape) * int(region.dtype.itemsize)
                pairs[pair] = pairs.get(pair, 0) + size
                if piece.worker == worker:
                    sent.append((region.worker, piece, region))
        own = [region for region in regions if region.worker == worker]
        is_crowded = (
            len(pairs) == workers * (workers - 1) > 0 and max(pairs.values()) <= COLLECTIVE_BYTES
        )
        return cls(own, sent, worker, is_crowded=is_crowded)

    @property
    def sent(self) -> tuple[Any, ...]:
        """The tiles of this worker that it sends."""
        pieces = itertools.chain(*(message.pieces for message in self.sends.values()))
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
        sent: worker -> bytes for it. They may be a view of a tile.
        received: worker -> bytes from it, which are there once the works have ended.
        works: torch's handles of the sends and receives.
    """

    transfers: Transfers
    sent: dict[int, Any]
    received: dict[int, Any]
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

    def part_in(self, regions: Sequence[Region]) -> Transfers:
        """This worker's part in an exchange, from the regions of all workers."""
        return Transfers.between(regions, self.worker, len(self._ranks))

    def run(self, transfers: Transfers, tiles: Tiles) -> None:
        """Add a worker's regions to its tiles; all ranks must call this in the same order."""
        self.finish(self.start(transfers, tiles), tiles)

    def start(self, transfers: Transfers, tiles: Tiles) -> Pending:
        """Send a worker's tiles, which must keep their values until the exchange is finished.

        All ranks must start exchanges in the same order.
        """
        self.received_bytes += sum(each.bytes for each in transfers.receives.values())
        with self._connected(transfers):
            if self._is_collective(transfers):
                return self._all_to_all(transfers, tiles)
            return self._point_to_point(transfers, tiles)

    def wait(self, pending: Pending) -> None:
        """Wait for the messages of an exchange. Raises ConnectionLostError."""
        with self._connected(pending.transfers):
            for work in pending.works:
                work.wait()
        pending.works.clear()
        pending.sent.clear()

    def finish(self, pending: Pending, tiles: Tiles) -> None:
        """Wait for the messages of an exchange, and add the worker's regions to its tiles."""
        self.wait(pending)
        received = {
            worker: iter(message.views(pending.received.pop(worker)))
            for worker, message in pending.transfers.receives.items()
        }
        for region in pending.transfers.regions:
            tiles[region.tile] = self._assembled(region, tiles, received)

    def _is_collective(self, transfers: Transfers) -> bool:
        """Whether one call costs less than many."""
        return transfers.is_crowded and len(self._ranks) == dist.get_world_size()

    def _all_to_all(self, transfers: Transfers, tiles: Tiles) -> Pending:
        """Start an exchange as a collective of all ranks."""
        sent, out, spans = self._divided(transfers.sends)
        received, into, own = self._divided(transfers.receives)
        for worker, message in transfers.sends.items():
            message.pack(tiles, out[worker])
        work = dist.all_to_all_single(received, sent, own, spans, async_op=True)
        return Pending(transfers, out, into, [work])

    def _divided(self, messages: Mapping[int, Message]) -> tuple[Any, dict[int, Any], list[int]]:
        """Returns one buffer for messages, their parts of it, and the bytes of each rank's part."""
        sizes = [0] * len(self._ranks)
        for worker, message in messages.items():
            sizes[self._ranks[worker]] = -(-message.bytes // _ALIGNMENT) * _ALIGNMENT
        buffer = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
        parts = buffer.split(sizes)
        own = {w: parts[self._ranks[w]][: each.bytes] for w, each in messages.items()}
        return buffer, own, sizes

    def _point_to_point(self, transfers: Transfers, tiles: Tiles) -> Pending:
        """Start an exchange as a message for each pair of ranks."""
        sent = self._packed(transfers.sends, tiles)
        received = {
            worker: torch.empty(message.bytes, dtype=torch.uint8, device=self._device)
            for worker, message in transfers.receives.items()
        }
        return Pending(transfers, sent, received, self._send(sent, received))

    def _packed(self, sends: Mapping[int, Message], tiles: Tiles) -> dict[int, Any]:
        """Returns worker -> bytes for it."""
        packed = {message: message.packed(tiles) for message in dict.fromkeys(sends.values())}
        return {worker: packed[message] for worker, message in sends.items()}

    def _send(self, sent: Mapping[int, Any], received: Mapping[int, Any]) -> list[Any]:
        """Begin to send to each worker, and to receive from those that send here."""
        works = [dist.P2POp(dist.isend, each, self._ranks[w]) for w, each in sent.items()]
        works += [dist.P2POp(dist.irecv, each, self._ranks[w]) for w, each in received.items()]
        return dist.batch_isend_irecv(works) if works else []

    def _connected(self, transfers: Transfers) -> contextlib.AbstractContextManager[None]:
        workers = {*transfers.sends, *transfers.receives}
        ranks = ", ".join(map(str, sorted(self._ranks[w] for w in workers)))
        return connected(f"rank {self._rank}: tiles of ranks {ranks}")

    def _assembled(self, region: Region, tiles: Tiles, received: Received) -> Any:
        """Makes a region; terms are combined in their order."""
        terms = (
            self._term(region, pieces, join, tiles, received)
            for pieces, join in zip(region.by_term, region.joins)
        )
        if region.reduction == APART:
            return torch.stack([region.as_read(term) for term in terms])
        if region.weights is not None:
            tile, dims = region.weights
            mean = weighted_mean(map(region.as_read, terms), tiles[tile], dims)
            return region.as_read(region.as_stored(mean.to(region.dtype)).contiguous())
        combine, result, is_own = COMBINE[region.reduction], None, False
        for value in terms:
            if result is None:
                result = value
            elif is_own:
                self._combine_into(result, value, region.reduction)
            else:
                result, is_own = combine(result, value), True
        if result is None:
            result = self._empty(region, ())
        return region.as_read(result.contiguous())

    def _combine_into(self, result: Any, value: Any, reduction: str) -> None:
        """Combine a further term with a result, in place."""
        COMBINE[reduction](result, value, out=result)

    def _term(
        self,
        region: Region,
        pieces: Sequence[Piece],
        join: Optional[Join],
        tiles: Tiles,
        received: Received,
    ) -> Any:
        """A term of a region; a view of a tile or of a message if it is all of one."""
        first = pieces[0]
        if join is None:
            value = self._empty(region, pieces)
            self._fill(region, value, pieces, tiles, received)
            return value
        if len(pieces) > 1:
            axis, order = join
            parts = [self._piece(region, piece, tiles, received) for piece in pieces]
            axis = region.order.index(axis) if region.order else axis
            return torch.cat([parts[k] for k in order], axis)
        value = self._piece(region, first, tiles, received)
        if first.worker == self.worker or region.terms > 1:
            return value
        is_alone = value.untyped_storage().nbytes() < value.nbytes + _ALIGNMENT
        return value if is_alone else value.clone()  # which keeps no other pieces alive

    def _piece(self, region: Region, piece: Piece, tiles: Tiles, received: Received) -> Any:
        if piece.worker == self.worker:
            return region.as_stored(tiles[piece.tile][piece.source])
        return next(received[piece.worker])

    def _empty(self, region: Region, pieces: Sequence[Piece]) -> Any:
        shape = region.stored(region.shape)
        empty = torch.empty(shape, dtype=region.dtype, device=self._device)
        return empty.fill_(region.fill) if any(p.worker == FILL for p in pieces) else empty

    def _fill(
        self,
        region: Region,
        value: Any,
        pieces: Sequence[Piece],
        tiles: Tiles,
        received: Received,
    ) -> None:
        """Copy the pieces of a term to their places in a region."""
        boxes = region.as_read(value)
        for piece in pieces:
            if piece.worker != FILL:
                given = region.as_read(self._piece(region, piece, tiles, received))
                boxes[piece.target].copy_(given)


def shares_of(logs: Any) -> Any:
    """Each part's share of a whole, of the logarithms of their sizes, in a first dimension.

    Zero where all parts are empty.
    """
    total = logs.logsumexp(0)
    return (logs - total.masked_fill(total == -torch.inf, 0)).exp()


def weighted_mean(terms: Iterable[Any], logs: Any, dims: Sequence[int]) -> Any:
    """The mean of terms, as precise as their weights.

    Args:
        terms: the terms.
        logs: the logarithms of their weights, a row for each.
        dims: the dimensions of the terms that these have.
    """
    result = None
    for term, share in zip(terms, shares_of(logs)):
        sizes = iter(share.shape)
        share = share.reshape([next(sizes) if d in dims else 1 for d in range(term.ndim)])
        result = term * share if result is None else result.addcmul_(term.to(share.dtype), share)
    return result


def _join(shape: Shape, pieces: Sequence[Piece]) -> Optional[Join]:
    """How pieces are joined to a box; None if they do not fill it side by side."""
    if any(piece.worker == FILL for piece in pieces):
        return None
    if len(pieces) == 1:
        return (0, (0,)) if pieces[0].shape == shape else None
    for axis, size in enumerate(shape):
        order = tuple(sorted(range(len(pieces)), key=lambda k: pieces[k].to[axis]))
        end = 0
        for k in order:
            piece = pieces[k]
            side = (*shape[:axis], piece.shape[axis], *shape[axis + 1 :])
            begin = tuple(end if d == axis else 0 for d in range(len(shape)))
            if piece.shape != side or piece.to != begin:
                break
            end += piece.shape[axis]
        else:
            if end == size:
                return axis, order
    return None


def _box(corner: Shape, shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(low, low + size) for low, size in zip(corner, shape))
