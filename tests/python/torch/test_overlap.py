"""Exchanges are under way while a rank computes, and bring the same values."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import tofu.torch
from tofu.errors import ConnectionLostError
from tofu.torch.commands.models import MODELS
from tofu.torch.parallelize import program_of
from tofu.torch.programs.rank_program import Program
from tofu.torch.programs.rank_steps import Fetch, Start
from tofu.torch.tiles.exchange import Exchange, Piece, Region

from .ranks import on_ranks
from .training import compare


class Work:
    """A message's work that notes when it is waited for."""

    def __init__(self, work: Any, events: list[str]) -> None:
        self._work, self._events = work, events

    def wait(self) -> None:
        """Wait for the message."""
        self._events.append("waited")
        self._work.wait()


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """Notes in order: messages that set off, operators, and waits for messages."""
    events: list[str] = []
    send, send_all, run = dist.batch_isend_irecv, dist.all_to_all_single, Program._run

    def sent(works: Any) -> Any:
        events.append("sent")
        return [Work(work, events) for work in send(works)]

    def sent_all(*args: Any, **named: Any) -> Any:
        events.append("sent")
        return Work(send_all(*args, **named), events)

    def ran(program: Any, call: Any, tiles: Any) -> None:
        run(program, call, tiles)
        events.append("ran")

    with (
        mock.patch.object(dist, "batch_isend_irecv", sent),
        mock.patch.object(dist, "all_to_all_single", sent_all),
        mock.patch.object(Program, "_run", ran),
    ):
        yield events


def during(events: list[str]) -> list[int]:
    """The number of operators that ran while each exchange was under way."""
    found = []
    for event in events:
        if event == "sent":
            found.append(0)
            under_way = True
        elif event == "waited":
            under_way = False
        elif found and under_way:
            found[-1] += 1
    return found


def trains(name: str, mesh: tuple[int, ...], dtype: torch.dtype) -> None:
    with noted() as events:
        compare(MODELS[name], mesh, dtype, 2)
    counts = during(events)
    assert sum(counts) >= 20 and sum(map(bool, counts)) >= 4, counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (3,), (4,), (2, 2)])
def test_operators_run_while_messages_travel(mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), trains, "gpt", mesh, dtype)


def ends_under_way(errors: str) -> None:
    exchange = Exchange(init_device_mesh("cpu", (2,)))
    pieces = tuple(Piece(w, "tile", 0, (0,), (4 * w,), (4,)) for w in range(2))
    regions = [Region(w, "whole", (8,), torch.float32, pieces) for w in range(2)]
    if dist.get_rank() == 1:
        os._exit(0)
    tiles = {"tile": torch.ones(4)}
    with pytest.raises(ConnectionLostError, match=r"rank 0: tiles of ranks 1 .* has ended"):
        exchange.finish(exchange.start(exchange.part_in(regions), tiles), tiles)
    with open(errors, "w", encoding="utf-8") as file:
        file.write("told")
    os._exit(0)  # no barrier: there is no other rank


def test_a_rank_that_ends_meanwhile_is_told_at_the_end(tmp_path) -> None:
    on_ranks(2, ends_under_way, str(tmp_path / "errors"))
    assert (tmp_path / "errors").read_text() == "told"


def fails_and_goes_on() -> None:
    torch.manual_seed(0)
    model, inputs = MODELS["gpt"](torch.float32)
    parts = tofu.torch.parallelize(model, (2,), inputs)
    expected = parts(*inputs)
    run = Program._run
    steps = program_of(parts).forward_steps
    begin = next(
        k for k, (a, b) in enumerate(zip(steps, steps[1:]))
        if isinstance(a, Start) and not isinstance(b, Fetch)
    )  # fmt: skip
    failing = steps[begin + 1]

    def raises(program: Any, call: Any, tiles: Any) -> None:
        if call is failing:
            raise ValueError("as planned")
        run(program, call, tiles)

    with mock.patch.object(Program, "_run", raises), pytest.raises(ValueError, match="planned"):
        parts(*inputs)
    for _ in range(2):
        assert torch.equal(parts(*inputs), expected)


def test_a_call_that_fails_leaves_no_message() -> None:
    on_ranks(2, fails_and_goes_on)
