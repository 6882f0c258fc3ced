"""Tiles get from every placement to every other one, along the routes that send least."""

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

import tofu.torch
from tofu.plans import SearchOptions
from tofu.torch.exchange import Exchange, Moving
from tofu.torch.models import MODELS
from tofu.torch.moves import received_bytes
from tofu.torch.redistribution import WHOLE, Placement, received_elements, route

from .ranks import on_ranks

SHAPE = (8, 16)
SIZE = 8 * 16


def elements(source: Placement, target: Placement, sizes: tuple[int, ...]) -> int:
    stages = route(SHAPE, source, target, sizes)
    return sum(received_elements(SHAPE, stage, sizes) for stage in stages)


# --- Counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "source", "target", "received"),
    [
        ((8,), (0,), (WHOLE,), 7 * SIZE),
        ((8,), ("sum",), (0,), 7 * SIZE),
        ((8,), ("sum",), (WHOLE,), 14 * SIZE),
        ((8,), (0,), (1,), 7 * SIZE // 8),
        ((8,), (WHOLE,), (0,), 0),
        ((2, 4), ("sum", "sum"), (WHOLE, WHOLE), 14 * SIZE),
        ((2, 4), ("sum", WHOLE), (WHOLE, 0), 2 * SIZE),
        ((2, 4), (WHOLE, "sum"), (1, WHOLE), 6 * SIZE),
        ((2, 4), ("sum", 0), (WHOLE, WHOLE), 2 * SIZE + 6 * SIZE),
        # Of the ranks with equal terms, each reduces a part: 3 / 8 + 7 / 8 tensors a rank.
        ((2, 4), (WHOLE, "sum"), (WHOLE, WHOLE), 10 * SIZE),
    ],
)
def test_a_route_sends_no_more_than_collectives(sizes, source, target, received) -> None:
    assert elements(source, target, sizes) == received


def test_indivisible_terms_are_reduced_by_all() -> None:
    (stage,) = route((3, 5), ("sum", "sum"), (WHOLE, WHOLE), (2, 2))
    assert received_elements((3, 5), stage, (2, 2)) == 4 * 3 * 15


@pytest.mark.parametrize("mode", ["tofu", "data-parallel"])
@pytest.mark.parametrize("mesh", [(4,), (2, 4)])
def test_moves_send_what_the_search_counts(mode, mesh) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=mesh, options=SearchOptions(mode=mode))
    # Readers that share a region receive it once; ranks that then use zeros receive theirs.
    assert received_bytes(plan) == pytest.approx(plan.bytes, rel=0.02)


# --- Values ---------------------------------------------------------------------------------


def every_move(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    exchange = Exchange(init_device_mesh("cpu", sizes))
    torch.manual_seed(0)
    whole = torch.randint(-9, 9, SHAPE).to(dtype)
    places = list(itertools.product((0, 1, WHOLE, "sum"), repeat=len(sizes)))
    at = exchange.mesh.get_coordinate()
    count = 0
    for source, target in itertools.product(places, places):
        if "sum" in target:
            continue
        tile = whole
        for cut, digit, parts in zip(source, at, sizes):
            if cut == "sum":  # the first rank has as many times the value as make one in all
                tile = tile * (2 - parts if digit == 0 else 1)
            elif cut != WHOLE:
                tile = tile.chunk(parts, cut)[digit]
        expected = whole
        for cut, digit, parts in zip(target, at, sizes):
            if cut != WHOLE:
                expected = expected.chunk(parts, cut)[digit]
        before = tile.clone()
        made = exchange.move(tile, SHAPE, source, target)
        assert torch.equal(made, expected), (source, target)
        assert torch.equal(tile, before), (source, target)
        count += elements(source, target, sizes) * whole.element_size()
    received = torch.tensor([exchange.received_bytes])
    dist.all_reduce(received)
    assert int(received) == count


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("sizes", [(4,), (2, 2)])
def test_tiles_move_between_all_placements(sizes, dtype) -> None:
    on_ranks(4, every_move, sizes, dtype)


@pytest.mark.whole(rotates=False)
def test_tiles_move_between_all_placements_of_a_cube() -> None:
    on_ranks(8, every_move, (2, 2, 2), torch.float32)


def move_together(sizes: tuple[int, ...]) -> None:
    exchange, alone = (Exchange(init_device_mesh("cpu", sizes)) for _ in range(2))
    torch.manual_seed(dist.get_rank())
    moving = [
        Moving(torch.randn(4, 16), SHAPE, (0, WHOLE), (WHOLE, 1)),
        Moving(torch.randint(9, (8, 8)), SHAPE, (WHOLE, 1), (1, WHOLE)),
        Moving(torch.rand(4, 16) > 0.5, SHAPE, (0, WHOLE), (WHOLE, WHOLE)),
        Moving(torch.randn(()), (), ("sum", WHOLE), (WHOLE, WHOLE)),
        Moving(torch.randn(8, 16), SHAPE, ("sum", "sum"), (WHOLE, WHOLE)),
        Moving(torch.randn(3), (3,), ("sum", WHOLE), (WHOLE, WHOLE)),
        Moving(torch.randn(3).to(torch.bfloat16), (3,), ("max", WHOLE), (WHOLE, WHOLE)),
        Moving(torch.randn(8, 16), SHAPE, (WHOLE, WHOLE), (0, 1)),
        Moving(torch.randn(8, 16), SHAPE, (0, 1), (0, 1)),
    ]
    moving[-1] = dataclasses.replace(moving[-1], tile=torch.randn(4, 8))
    with messages() as sent:
        together = exchange.move_all(moving)
    expected = [alone.move(m.tile, m.shape, m.source, m.target) for m in moving]
    for made, one, m in zip(together, expected, moving):
        assert made.dtype == one.dtype and torch.equal(made, one), m
    assert exchange.received_bytes == alone.received_bytes > 0
    assert max(sent.values()) <= 2, sent  # one in each stage
    for made in together[:3]:  # a tile keeps no message alive
        assert made.untyped_storage().nbytes() <= made.nbytes + 16


@contextlib.contextmanager
def messages() -> Iterator[collections.Counter[int]]:
    """Counts messages by the rank to which they go."""
    sent: collections.Counter[int] = collections.Counter()
    before = dist.P2POp

    def counted(op: Any, tensor: Any, peer: int) -> Any:
        sent[peer] += op is dist.isend
        return before(op, tensor, peer)

    dist.P2POp = counted  # type: ignore[assignment,misc]
    try:
        yield sent
    finally:
        dist.P2POp = before  # type: ignore[misc]


def test_several_tiles_move_in_one_message() -> None:
    on_ranks(4, move_together, (2, 2))
