"""Ranks exchange regions: whole, in pieces, as terms, in one message, in one call."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

import tofu.torch
from tofu.boxes import Box, piece
from tofu.plans import SearchOptions
from tofu.torch.commands.models import MODELS
from tofu.torch.programs.rank_graph import RankGraph
from tofu.torch.tiles.exchange import COLLECTIVE_BYTES, FILL, Exchange, Message, Piece, Region
from tofu.torch.tiles.placements import WHOLE, Boxes, regions_between, tiles_of, to_dtensor

from .ranks import on_ranks

SHAPE = (7, 5)


def planned_tiles(cuts: tuple[int, ...], sizes: tuple[int, ...]) -> Boxes:
    """The tiles that a plan gives the ranks."""
    boxes = []
    for at in itertools.product(*map(range, sizes)):
        sides = [(0, size) for size in SHAPE]
        for cut, count, digit in zip(cuts, sizes, at):
            if cut != WHOLE:
                sides[cut] = piece(sides[cut], count, digit)
        boxes.append(Box(sides))
    return tuple(boxes)


def of(whole: Any, box: Box) -> Any:
    return whole[tuple(slice(*side) for side in box)]


# --- Counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["tofu", "data-parallel"])
@pytest.mark.parametrize("mesh", [(4,), (2, 4), (3,), (2, 3)])
def test_ranks_fetch_what_the_search_counts(mode, mesh) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=mesh, options=SearchOptions(mode=mode))
    program = plan.program(0)
    assert program.fetched_bytes + program.shared_bytes == plan.bytes
    assert plan.details.fetched_bytes == program.fetched_bytes


@pytest.mark.parametrize(
    ("source", "target", "received"),
    [((0,), (WHOLE,), 5 * 35), ((0,), (1,), 29), ((WHOLE,), (0,), 0), ((0,), (0,), 20)],
)
def test_a_rank_receives_what_it_lacks(source, target, received) -> None:
    before, after = planned_tiles(source, (6,)), tiles_of(SHAPE, target, (6,))
    regions = regions_between(before, after, 0, 1, torch.int8, (6,))
    found = sum(region.received_bytes for region in regions)
    lacked = 0
    for had, gets in zip(before, after):
        both = had.common(gets)
        lacked += torch.Size(gets.shape).numel() - torch.Size(both.shape if both else (0,)).numel()
    assert found == lacked == received


# --- Values ---------------------------------------------------------------------------------


def every_move(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    mesh = init_device_mesh("cpu", sizes)
    exchange = Exchange(mesh)
    whole = torch.arange(35).reshape(SHAPE).to(dtype)
    places = list(itertools.product((0, 1, WHOLE), repeat=len(sizes)))
    layouts = [tiles_of(SHAPE, place, sizes) for place in places]
    for place, boxes in zip(places, layouts):
        local = distribute_tensor(whole, mesh, to_dtensor(place)).to_local()
        assert torch.equal(local, of(whole, boxes[exchange.worker])), place
    layouts += [planned_tiles(place, sizes) for place in places]
    count = 0
    for source, target in itertools.product(layouts, layouts):
        tiles = {0: of(whole, source[exchange.worker]).clone()}
        before = tiles[0].clone()
        regions = regions_between(source, target, 0, 1, dtype, sizes)
        exchange.run(exchange.part_in(regions), tiles)
        assert torch.equal(tiles[1], of(whole, target[exchange.worker])), (source, target)
        assert torch.equal(tiles[0], before), (source, target)
        count += sum(r.received_bytes for r in regions if r.worker == exchange.worker)
    assert exchange.received_bytes == count


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("sizes", [(4,), (3,), (2, 3)])
def test_tiles_move_between_all_layouts(sizes, dtype) -> None:
    on_ranks(torch.Size(sizes).numel(), every_move, sizes, dtype)


def every_order() -> None:
    """Tiles that are transposed in memory, as their regions expect, or are not."""
    sizes = (2, 2)
    exchange = Exchange(init_device_mesh("cpu", sizes))
    whole = torch.arange(35.0).reshape(SHAPE)
    layouts = [
        tiles_of(SHAPE, place, sizes) for place in itertools.product((0, 1, WHOLE), repeat=2)
    ]
    for source, target in itertools.product(layouts, layouts):
        own = of(whole, source[exchange.worker])
        regions = [
            dataclasses.replace(region, order=(1, 0))
            for region in regions_between(source, target, 0, 1, whole.dtype, sizes)
        ]
        for tile in (own.clone(), own.t().contiguous().t()):
            tiles = {0: tile}
            exchange.run(exchange.part_in(regions), tiles)
            assert torch.equal(tiles[1], of(whole, target[exchange.worker])), (source, target)
            assert tiles[1].t().is_contiguous()
    terms = tuple(Piece(k, "own", k, (0, 0), (0, 0), SHAPE) for k in range(4))
    regions = [Region(w, "sum", SHAPE, whole.dtype, terms, terms=4, order=(1, 0)) for w in range(4)]
    tiles = {"own": whole + exchange.worker}
    exchange.run(exchange.part_in(regions), tiles)
    assert torch.equal(tiles["sum"], 4 * whole + 6) and tiles["sum"].t().is_contiguous()


def test_regions_keep_the_order_of_memory() -> None:
    on_ranks(4, every_order)


def test_transposed_weights_are_not_transposed_on_the_way() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    data = torch.randn(256, 8)  # so large that weights are gathered
    graph = RankGraph(tofu.torch.plan(model, (data,), mesh=(4,)), 1)
    orders = {name: graph.region(group).order for name, group in graph.fetches.items()}
    assert orders["0.addmm/in2"] == orders["2.addmm/in2"] == (1, 0)
    assert orders["0.mm_backward/out0"] == ()


def every_reduction() -> None:
    exchange = Exchange(init_device_mesh("cpu", (3,)))
    terms = [torch.tensor([[2.0, 1.0], [1.0, 4.0], [3.0, 1.0]]) + k for k in range(3)]
    expected = {
        "sum": terms[0] + terms[1] + terms[2],
        "prod": terms[0] * terms[1] * terms[2],
        "max": terms[2],
        "min": terms[0],
    }
    for kind, value in expected.items():
        pieces = tuple(Piece(k, "term", k, (0, 0), (0, 0), (3, 2)) for k in range(3))
        regions = [Region(w, "made", (3, 2), torch.float32, pieces, kind, 3) for w in range(3)]
        tiles = {"term": terms[exchange.worker]}
        exchange.run(exchange.part_in(regions), tiles)
        assert torch.equal(tiles["made"], value), kind


def test_terms_are_reduced() -> None:
    on_ranks(3, every_reduction)


def halo() -> None:
    """The region of a rank with a row of each neighbour, and fill beyond the ends."""
    exchange = Exchange(init_device_mesh("cpu", (3,)))
    whole = torch.arange(14.0).reshape(7, 2)
    rows = [piece((0, 7), 3, k) for k in range(3)]
    regions = []
    for worker, (low, high) in enumerate(rows):
        pieces = []
        for row in range(low - 1, high + 1):
            to = (row - low + 1, 0)
            holder = next((k for k, (a, b) in enumerate(rows) if a <= row < b), FILL)
            start = (row - rows[holder][0], 0) if holder != FILL else (0, 0)
            pieces.append(Piece(holder, "tile", 0, start, to, (1, 2)))
        shape = (high - low + 2, 2)
        regions.append(Region(worker, "made", shape, torch.float32, tuple(pieces), fill=-1.0))
    low, high = rows[exchange.worker]
    tiles = {"tile": whole[low:high]}
    exchange.run(exchange.part_in(regions), tiles)
    padded = torch.cat([torch.full((1, 2), -1.0), whole, torch.full((1, 2), -1.0)])
    assert torch.equal(tiles["made"], padded[low : high + 2])


def test_a_region_may_reach_outside_its_tensor() -> None:
    on_ranks(3, halo)


def move_together() -> None:
    sizes = (2, 2)
    exchange, alone = (Exchange(init_device_mesh("cpu", sizes)) for _ in range(2))
    wholes = [
        torch.randn(SHAPE), torch.randint(9, SHAPE), torch.rand(SHAPE) > 0.5,
        torch.randn(SHAPE).to(torch.bfloat16), torch.randn(SHAPE),
    ]  # fmt: skip
    places = [((0, 1), (1, 0)), ((WHOLE, 1), (1, WHOLE)), ((0, 0), (WHOLE, WHOLE))]
    places += [((WHOLE, WHOLE), (0, 1)), ((1, 1), (0, WHOLE))]
    regions, tiles = [], {}
    for k, (whole, place) in enumerate(zip(wholes, places)):
        source, target = (tiles_of(SHAPE, each, sizes) for each in place)
        tiles[2 * k] = of(whole, source[exchange.worker])
        regions += regions_between(source, target, 2 * k, 2 * k + 1, whole.dtype, sizes)
    apart = dict(tiles)
    with messages() as sent:
        exchange.run(exchange.part_in(regions), tiles)
    assert max(sent.values()) == 1, sent
    for k in range(len(wholes)):
        own = [region for region in regions if region.tile == 2 * k + 1]
        alone.run(alone.part_in(own), apart)
        made = tiles[2 * k + 1]
        assert made.dtype == apart[2 * k + 1].dtype and torch.equal(made, apart[2 * k + 1]), k
    assert exchange.received_bytes == alone.received_bytes > 0
    gathered = tiles[5]  # a tile keeps no message alive
    assert gathered.untyped_storage().nbytes() <= gathered.nbytes + 16


def one_call(rows: int) -> None:
    """All ranks gather rows of all others, and reduce to their own."""
    exchange = Exchange(init_device_mesh("cpu", (3,)))
    own = torch.randn(rows, 3, generator=torch.Generator().manual_seed(exchange.worker))
    gather = tuple(Piece(k, "own", 0, (0, 0), (rows * k, 0), (rows, 3)) for k in range(3))
    regions = [Region(w, "whole", (3 * rows, 3), own.dtype, gather) for w in range(3)]
    for w in range(3):
        terms = tuple(Piece(k, "own", k, (w, 0), (0, 0), (rows - 2, 3)) for k in range(3))
        regions.append(Region(w, "sum", (rows - 2, 3), own.dtype, terms, terms=3))
    tiles = {"own": own}
    with messages() as sent:
        exchange.run(exchange.part_in(regions), tiles)
    size = rows * 3 * 4 + (rows - 2) * 3 * 4
    others = {k: 1 for k in range(3) if k != exchange.worker}
    assert sent == ({"all": 1} if size <= COLLECTIVE_BYTES else others)
    assert exchange.received_bytes == 2 * size
    every = [torch.randn(rows, 3, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    assert torch.equal(tiles["whole"], torch.cat(every))
    a, b, c = (each[exchange.worker : exchange.worker + rows - 2] for each in every)
    assert torch.equal(tiles["sum"], a + b + c)
    assert torch.equal(tiles["own"], every[exchange.worker])


@pytest.mark.parametrize("rows", [5, 10_000])
def test_an_exchange_of_little_among_all_ranks_is_one_call(rows) -> None:
    on_ranks(3, one_call, rows)


def test_a_message_of_one_element_may_be_of_any_stride() -> None:
    tile = torch.tensor(2.5).expand(3)
    region = Region(1, "region", (1,), tile.dtype, ())
    message = Message([(Piece(0, "tile", 0, (1,), (), (1,)), region)])
    assert message.packed({"tile": tile}).view(tile.dtype).tolist() == [2.5]


def packed_once() -> None:
    """Workers that get the same pieces get one message, which is packed once."""
    exchange = Exchange(init_device_mesh("cpu", (3,)))
    pieces = [Piece(0, name, 0, (0, 0), (3 * k, 0), (3, 2)) for k, name in enumerate("ab")]
    regions = [Region(w, "both", (6, 2), torch.float32, tuple(pieces)) for w in (1, 2)]
    alone = (Piece(0, "a", 0, (0, 0), (0, 0), (3, 2)),)
    regions += [Region(w, "one", (3, 2), torch.float32, alone) for w in (1, 2)]
    transfers = exchange.part_in(regions)
    made = {name: torch.randn(3, 2, generator=torch.Generator().manual_seed(1)) for name in "ab"}
    tiles = dict(made) if exchange.worker == 0 else {}
    pending = exchange.start(transfers, tiles)
    sent = [each.data_ptr() for each in pending.sent.values()]
    assert len(sent) == (2 if exchange.worker == 0 else 0) and len(set(sent)) <= 1
    exchange.finish(pending, tiles)
    if exchange.worker:
        assert torch.equal(tiles["both"], torch.cat([made["a"], made["b"]]))
        assert torch.equal(tiles["one"], made["a"])  # and keeps no message alive
        assert tiles["one"].untyped_storage().nbytes() <= tiles["one"].nbytes + 16


def test_a_message_for_several_ranks_is_packed_once() -> None:
    on_ranks(3, packed_once)


@contextlib.contextmanager
def messages() -> Iterator[collections.Counter[Any]]:
    """Counts messages by the rank to which they go, and calls of all ranks as "all"."""
    sent: collections.Counter[Any] = collections.Counter()
    before, call = dist.P2POp, dist.all_to_all_single

    def counted(op: Any, tensor: Any, peer: int) -> Any:
        sent[peer] += op is dist.isend
        return before(op, tensor, peer)

    def counted_call(*args: Any, **named: Any) -> Any:
        sent["all"] += 1
        return call(*args, **named)

    patch = pytest.MonkeyPatch()
    patch.setattr(dist, "P2POp", counted)
    patch.setattr(dist, "all_to_all_single", counted_call)
    yield sent
    patch.undo()


def test_several_tiles_move_in_one_message() -> None:
    on_ranks(4, move_together)
