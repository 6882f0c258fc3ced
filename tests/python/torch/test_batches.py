"""Moves go together: none too early, none too late, and no more wait than may."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import tofu.torch
from tofu.plans import SearchOptions
from tofu.torch.batches import Task, batched
from tofu.torch.models import MODELS
from tofu.torch.module_trace import Entry
from tofu.torch.moves import moves_of
from tofu.torch.order import arranged
from tofu.torch.rank_program import Program

STAGES = frozenset([(0, False), (1, False)])


def task(ready: int, due: int, size: int = 1, after: Task | None = None) -> Task:
    return Task(Entry(f"t{ready}.{due}"), ("sum",), (0,), size, ready, due, after)


def test_what_can_wait_goes_with_what_is_needed() -> None:
    gradient, needed = task(0, 9), task(3, 5)
    assert batched([gradient, needed], 9)[5] == [(needed, gradient)]


def test_what_is_needed_soon_comes_early() -> None:
    now, soon, later = task(-1, 1), task(-1, 2), task(-1, 3)
    found = batched([later, soon, now], 4, limit=1)
    assert [found[1], found[3]] == [[(now, soon)], [(later,)]]


def test_no_more_than_the_limit_waits() -> None:
    tasks = [task(k, 9, 3) for k in range(4)]
    found = batched(tasks, 9, limit=5)
    assert found[2] == [tuple(tasks[:2])] and found[4] == [tuple(tasks[2:])]


def test_a_tile_that_is_there_is_cut_when_it_is_needed() -> None:
    free, needed = task(0, 7, 0), task(0, 3)
    found = batched([free, needed], 9)
    assert [found[3], found[7]] == [[(needed,)], [(free,)]]


def test_what_would_add_a_message_waits_for_others() -> None:
    two = [dataclasses.replace(task(k, 9), messages=STAGES) for k in range(2)]
    needed = task(3, 5)
    found = batched([*two, needed], 9)
    assert [found[5], found[9]] == [[(needed,)], [tuple(two)]]
    needed = dataclasses.replace(needed, messages=STAGES)
    assert batched([*two, needed], 9)[5] == [(needed, *two)]


def test_moves_follow_those_that_make_their_source() -> None:
    made = task(2, 9)
    moved = task(2, 4, after=made)
    assert batched([made, moved], 9)[4] == [(made,), (moved,)]


@pytest.mark.parametrize("seed", range(50))
def test_every_move_is_made_once_and_in_time(seed: int) -> None:
    draw = random.Random(seed)
    count, tasks = 30, []
    for _ in range(40):
        ready = draw.randrange(-1, count - 1)
        tasks.append(task(ready, draw.randrange(ready + 1, count + 1), draw.randrange(4)))
        if draw.random() < 0.3:
            tasks[-1].messages = STAGES
        if draw.random() < 0.4:
            due = draw.randrange(ready + 1, count + 1)
            tasks.append(task(ready, due, draw.randrange(4), tasks[-1]))
    found = batched(tasks, count, limit=draw.randrange(1, 12))
    order = [(n, t) for n, batches in enumerate(found) for k, b in enumerate(batches) for t in b]
    at = {id(t): (n, k) for n, bs in enumerate(found) for k, b in enumerate(bs) for t in b}
    assert len(order) == len(at) == len(tasks)
    for each in tasks:
        assert each.ready < at[id(each)][0] <= each.due
        assert each.after is None or at[id(each.after)] < at[id(each)]


@pytest.fixture
def four_ranks() -> Iterator[DeviceMesh]:
    """A mesh of this process and three that do not exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def exchanges(program: Program) -> list[int]:
    passes = (program._forward, program._backward)
    return [sum(map(len, each.batches)) for each in passes]


def test_gradients_of_a_module_are_exchanged_together(four_ranks) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    options = SearchOptions(mode="data-parallel")
    plan = tofu.torch.plan(model, inputs, mesh=(4,), options=options)
    assert exchanges(Program(plan, four_ranks)) == [1, 1]  # the loss, and all gradients


def test_parameters_of_a_module_come_together(four_ranks) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(4,))
    moves = sum(1 for _ in moves_of(plan))
    forward, backward = exchanges(Program(plan, four_ranks))
    assert 0 < forward + backward < moves // 3, (forward, backward, moves)


# --- The order of calls ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Out:
    entry: Entry
    made: tuple[int | str, ...]
    kept: tuple[int | str, ...] = (0,)


@dataclasses.dataclass(frozen=True)
class Call:
    name: str
    inputs: tuple[tuple[Entry, tuple[int | str, ...], bool], ...]
    outputs: tuple[Out, ...]


def call(name: str, *reads: str, made: int | str = 0) -> Call:
    """A call that reads tensors as they are kept."""
    ins = tuple((Entry(each), (0,), False) for each in reads)
    return Call(name, ins, (Out(Entry(name), (made,)),))


def names(calls: list[Call]) -> list[str]:
    return [each.name for each in calls]


def test_calls_that_are_ready_run_before_an_exchange() -> None:
    calls = [
        call("x"), call("a", "x", made="sum"), call("view", "a"), call("b", "x", made="sum"),
        call("both", "view", "b"), call("later"),
    ]  # fmt: skip
    assert names(arranged(calls)) == ["x", "a", "b", "view", "both", "later"]
    assert names(arranged(calls, 1)) == names(calls)


def test_calls_that_need_nothing_of_the_pass_do_not_run_early() -> None:
    calls = [call("x", made="sum"), call("y", "x"), call("mask"), call("z", "y", "mask")]
    assert names(arranged(calls)) == ["x", "y", "mask", "z"]


@pytest.mark.parametrize("seed", range(30))
def test_calls_follow_those_whose_outputs_they_read(seed: int) -> None:
    draw = random.Random(seed)
    calls: list[Call] = []
    for k in range(60):
        reads = draw.sample([each.name for each in calls], min(len(calls), draw.randrange(3)))
        calls.append(call(f"c{k}", *reads, made=draw.choice([0, 0, "sum", 1])))
    found = arranged(calls, draw.randrange(1, 20))
    assert sorted(names(found)) == sorted(names(calls))
    place = {each.name: k for k, each in enumerate(found)}
    for each in calls:
        assert all(place[entry.node] < place[each.name] for entry, _, _ in each.inputs)


def test_a_module_needs_fewer_exchanges(four_ranks, monkeypatch) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(2, 2))
    mesh = init_device_mesh("cpu", (2, 2))
    few = exchanges(Program(plan, mesh))
    monkeypatch.setattr("tofu.torch.rank_program.arranged", list)
    assert sum(few) < sum(exchanges(Program(plan, mesh)))
