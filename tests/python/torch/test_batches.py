"""Moves go together: none too early, none too late, and as few waits as possible."""

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
from tofu.torch.commands.models import MODELS
from tofu.torch.programs.batches import Task, batched, reordered, started
from tofu.torch.programs.order import arranged
from tofu.torch.programs.rank_graph import Group
from tofu.torch.programs.rank_program import Program
from tofu.torch.programs.rank_steps import Fetch
from tofu.torch.tracing.module_trace import trace

BOTH = frozenset([(0, 1), (1, 0)])


def task(ready: int, due: int, size: int = 1, *after: Task) -> Task:
    return Task(f"t{ready}.{due}", size, ready, due, after)


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


def test_what_frees_nothing_comes_when_it_is_needed() -> None:
    tasks = [dataclasses.replace(task(k, 60 * k + 60, 9), frees=False) for k in range(3)]
    found = batched(tasks, 200, limit=5)
    assert {k: joined for k, joined in enumerate(found) if joined} == {
        60 * k + 60: [(each,)] for k, each in enumerate(tasks)
    }


def test_views_that_receive_what_they_read_do_not_come_first() -> None:
    module = torch.nn.Sequential(*[torch.nn.Linear(2, 2, bias=False) for _ in range(3)])
    traced = trace(module, (torch.ones(1, 2),))
    second = [o for o in traced.operators if o.name not in traced.forward]
    first, view = "2.t_backward_2", "1.t_backward_2"
    assert {first, view} <= {o.name for o in reordered(second)[:3]}
    found = [o.name for o in reordered(second, fetching=[view])]
    assert found.index(first) < 3 and found.index(view) == found.index("1.mm_backward_1") - 1


def test_a_tile_that_is_there_is_cut_when_it_is_needed() -> None:
    free, needed = task(0, 7, 0), task(0, 3)
    found = batched([free, needed], 9)
    assert [found[3], found[7]] == [[(needed,)], [(free,)]]


def test_what_would_add_a_message_waits_for_others() -> None:
    two = [dataclasses.replace(task(k, 9), messages=BOTH) for k in range(2)]
    needed = task(3, 5)
    found = batched([*two, needed], 9)
    assert [found[5], found[9]] == [[(needed,)], [tuple(two)]]
    needed = dataclasses.replace(needed, messages=BOTH)
    assert batched([*two, needed], 9)[5] == [(needed, *two)]


def test_moves_follow_those_that_make_their_source() -> None:
    made = task(2, 9)
    moved = task(2, 4, 1, made)
    assert batched([made, moved], 9)[4] == [(made,), (moved,)]


@pytest.mark.parametrize("seed", range(50))
def test_every_move_is_made_once_and_in_time(seed: int) -> None:
    draw = random.Random(seed)
    count, tasks = 30, []
    for _ in range(40):
        ready = draw.randrange(-1, count - 1)
        tasks.append(task(ready, draw.randrange(ready + 1, count + 1), draw.randrange(4)))
        if draw.random() < 0.3:
            tasks[-1].messages = BOTH
        if draw.random() < 0.4:
            due = draw.randrange(ready + 1, count + 1)
            tasks.append(task(ready, due, draw.randrange(4), tasks[-1]))
    moved = batched(tasks, count, limit=draw.randrange(1, 12))
    for found in (moved, started(moved)):
        order = [t for batches in found for batch in batches for t in batch]
        at = {id(t): (n, k) for n, bs in enumerate(found) for k, b in enumerate(bs) for t in b}
        assert len(order) == len(at) == len(tasks)
        for each in tasks:
            assert each.ready < at[id(each)][0] <= each.due
            assert all(at[id(before)] < at[id(each)] for before in each.after)


def test_an_exchange_starts_once_its_tiles_are_there() -> None:
    needed, other, free = task(2, 7), task(4, 9), task(1, 8, 0)
    found = started(batched([needed, other, free], 9))
    assert [found[5], found[8]] == [[(needed, other)], [(free,)]]


def test_an_exchange_starts_when_the_one_before_is_needed() -> None:
    first, second, third = task(-1, 3, 2), task(-1, 6, 2), task(6, 8)
    found = started(batched([first, second, third], 9, limit=1))
    assert [found[0], found[3], found[7]] == [[(first,)], [(second,)], [(third,)]]


def test_what_would_delay_an_exchange_waits_for_the_next() -> None:
    needed, gradient, last = task(3, 50), task(40, 200), task(150, 190)
    found = batched([needed, gradient, last], 200)
    assert [found[50], found[190]] == [[(needed,)], [(last, gradient)]]


@pytest.fixture
def four_ranks() -> Iterator[DeviceMesh]:
    """A mesh of this process and three that do not exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def exchanges(program: Program) -> list[int]:
    passes = (program.forward_steps, program.backward_steps)
    sent = ([s for s in steps if isinstance(s, Fetch) and s.moves.sent] for steps in passes)
    return [len(fetches) for fetches in sent]


def test_gradients_of_a_module_are_exchanged_together(four_ranks) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    options = SearchOptions(mode="data-parallel")
    plan = tofu.torch.plan(model, inputs, mesh=(4,), options=options)
    # One exchange for the loss, and two for gradients: their pieces, and the whole gradients.
    assert exchanges(Program(plan, four_ranks)) == [1, 2]


def test_parameters_of_a_module_come_together(four_ranks) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(4,))
    program = Program(plan, four_ranks)
    forward, backward = exchanges(program)
    fetches = len(program.graph.fetches)
    assert 0 < forward + backward < fetches // 3, (forward, backward, fetches)


# --- The order of calls ---------------------------------------------------------------------


class Pass:
    """Calls, and fetches of the outputs of some."""

    def __init__(self) -> None:
        self.calls: list[Group] = []
        self.fetches: dict[str, Group] = {}

    def call(self, name: str, *reads: str, exchanged: bool = False) -> None:
        """Add a call that reads the tiles of other calls' outputs, after an exchange or not."""
        own = {f"{read}/out0" if f"{read}/out0" in self.fetches else read for read in reads}
        self.calls.append(Group(name, 0, own))
        if exchanged:
            self.fetches[f"{name}/out0"] = Group(f"{name}/out0", 0, {name}, 8)

    def arranged(self, window: int = 48) -> list[str]:
        """The names of the calls in their new order."""
        return [call.name for call in arranged(self.calls, self.fetches, window)]


def test_calls_that_are_ready_run_before_an_exchange() -> None:
    given = Pass()
    given.call("x")
    given.call("a", "x", exchanged=True)
    given.call("view", "a")
    given.call("b", "x", exchanged=True)
    given.call("both", "view", "b")
    given.call("later")
    assert given.arranged() == ["x", "a", "b", "view", "both", "later"]
    assert given.arranged(1) == [call.name for call in given.calls]


def test_calls_that_need_nothing_of_the_pass_do_not_run_early() -> None:
    given = Pass()
    given.call("x", exchanged=True)
    given.call("y", "x")
    given.call("mask")
    given.call("z", "y", "mask")
    assert given.arranged() == ["x", "y", "mask", "z"]


def test_calls_that_an_exchange_does_not_need_run_meanwhile() -> None:
    given = Pass()
    given.call("x")
    given.call("before", "x")
    given.call("a", "x", exchanged=True)
    given.call("b", "a")
    given.call("after", "x")
    given.call("c", "b")
    assert given.arranged() == ["x", "a", "before", "after", "b", "c"]


@pytest.mark.parametrize("seed", range(30))
def test_calls_follow_those_whose_outputs_they_read(seed: int) -> None:
    draw = random.Random(seed)
    given = Pass()
    reads = {}
    for k in range(60):
        reads[f"c{k}"] = draw.sample(sorted(reads), min(len(reads), draw.randrange(3)))
        given.call(f"c{k}", *reads[f"c{k}"], exchanged=draw.random() < 0.5)
    place = {name: k for k, name in enumerate(given.arranged(draw.randrange(1, 20)))}
    assert sorted(place) == sorted(reads)
    for name, before in reads.items():
        assert all(place[each] < place[name] for each in before)


def test_a_module_needs_fewer_exchanges(four_ranks, monkeypatch) -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(2, 2))
    mesh = init_device_mesh("cpu", (2, 2))
    few = exchanges(Program(plan, mesh))
    monkeypatch.setattr(
        "tofu.torch.programs.rank_program.arranged", lambda calls, _, late: list(calls)
    )
    assert sum(few) < sum(exchanges(Program(plan, mesh)))


def test_late_calls_overtake_no_others() -> None:
    names = ("a", "far", "b", "again")
    calls = [Group(name, k, set(), 0) for k, name in enumerate(names)]
    fetches = {"fetch": Group("fetch", 9, {"a"}, 8)}
    calls[1].reads, calls[2].reads, calls[3].reads = {"fetch"}, {"a"}, {"a"}
    assert [call.name for call in arranged(calls, fetches)] == ["a", "b", "again", "far"]
    kept = arranged(calls, fetches, late={"again"})
    assert [call.name for call in kept] == ["a", "b", "far", "again"]
