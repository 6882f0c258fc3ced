"""The memory of a rank over a step, compared with a second count and with a run."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tofu.torch
from tofu.plans import SearchOptions
from tofu.torch.commands.models import MODELS
from tofu.torch.parallelize import program_of
from tofu.torch.planning import plan_traced
from tofu.torch.programs import rank_memory
from tofu.torch.programs.rank_memory import Lives, step_memory
from tofu.torch.programs.rank_program import Program
from tofu.torch.tracing.module_trace import trace

from .ranks import on_ranks


def planned(name: str, mesh: tuple[int, ...], **options: Any) -> tofu.torch.TorchPlan:
    model, inputs = MODELS[name](torch.float32)
    return tofu.torch.plan(model, inputs, mesh=mesh, options=SearchOptions(**options))


@pytest.mark.parametrize("name", ["mlp", "gpt", "unet"])
def test_the_worst_moment_is_that_of_a_recount(name) -> None:
    found = step_memory(planned(name, (2, 2)))
    end = len(found.lives) * 2
    sums = [
        sum(x.bytes for x in found.lives if x.born <= at < (end if x.died is None else x.died))
        for at in range(end)
    ]
    assert max(sums) + found.peak.fixed_bytes == found.bytes
    assert max(found.peak.bytes) == max(sums) == sum(held.bytes for held in found.peak.held)
    at = found.peak.moment
    assert {
        kind: found.peak.fixed.get(kind, 0) + of_kind[at]
        for kind, of_kind in found.peak.between.items()
    } == {kind: found.kinds[kind] for kind in found.peak.between}


@pytest.mark.parametrize("name", ["gpt", "unet", "mlp"])
def test_an_equal_call_has_the_effect_of_the_first(name, monkeypatch) -> None:
    plan, calls = planned(name, (2, 2)), []
    run = Program._results
    monkeypatch.setattr(Program, "_results", lambda *args: calls.append(args[1]) or run(*args))
    repeated, few = step_memory(plan), len(calls)
    calls.clear()
    monkeypatch.setattr(rank_memory, "_effect", lambda *_: None)
    assert step_memory(plan) == repeated and few < len(calls)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.t(),  # a view of what it was given
        lambda x: (x * 2).t()[1:],  # a view of memory of its own
        lambda x: x.add_(1),
        lambda x: torch.stack([x, x + 1]).unbind(),  # results that share memory
        lambda x: torch.relu(x + 1),  # memory that is freed before it returns
        lambda x: [x.sum(), None],
    ],
)
def test_effects_of_views_writes_and_memory_that_is_freed(call) -> None:
    given = torch.empty(4, 6)[:, 2:]
    with Lives([given]) as lives:
        made = call(given)
        effect = rank_memory._effect(lives, 0, 0, [given], made)
        shapes = [(x.shape, x.stride()) for x in pytree.tree_leaves(made) if x is not None]
        del made
    with Lives([given]) as again:
        made = effect.repeat([given])
        found = [(x.shape, x.stride()) for x in pytree.tree_leaves(made) if x is not None]
        del made
    assert found == shapes and again.lives[: len(lives.lives)] == lives.lives


def test_views_take_no_memory_and_keep_what_they_view() -> None:
    kept = torch.empty(4, 4)
    with Lives([kept]) as lives:
        assert kept.t()[1:] is not None and lives.bytes == 0
        made = torch.empty(8, 8)
        part = made[2:3].t()
        assert lives.bytes == 256
        del made
        assert lives.bytes == 256
        made = part + 1
        del part
        assert lives.bytes == 32
        del made
        assert lives.bytes == 0 and lives.most_bytes == 288
    assert [life.bytes for life in lives.lives] == [256, 32]


def test_weights_are_received_one_layer_at_a_time() -> None:
    with torch.device("meta"):
        module = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(8)])
        data = torch.empty(16384, 1024)
    plan = plan_traced(trace(module, (data,)), (4,))
    lives = [life for life in step_memory(plan).lives if life.fetched]
    weights = [life for life in lives if life.bytes == module[0].weight.nbytes]
    alive = (sum(o.born <= w.born < (o.died or math.inf) for o in weights) for w in weights)
    assert len(weights) > 8 and max(alive) <= 2


def test_parameters_and_states_are_tiles() -> None:
    plan = planned("gpt", (2, 2))
    sizes = {v.name: v.meta.nbytes for v in plan.traced.variables if v.kind == "parameter"}
    assert plan.serial_memory["parameters"] == sum(sizes.values())
    assert plan.serial_memory["fetch_buffers"] == 0 < plan.memory["fetch_buffers"]
    tiles = plan.memory["parameters"]
    assert sum(sizes.values()) / 4 <= tiles < sum(sizes.values()) / 2
    assert plan.memory["optimizer_state"] == 2 * tiles  # adam
    assert sum(plan.memory.values()) < sum(plan.serial_memory.values())
    assert plan.details.bytes_per_worker == plan.memory


def test_memory_is_told_and_read_back() -> None:
    plan = planned("mlp", (2,))
    text = plan.to_text()
    assert "at the worst moment: parameters" in text and "one device" in text
    again = tofu.torch.graphs.torch_plan.read_plan(plan.to_json(), plan.traced, (2,), "file")
    assert again.memory == plan.memory and again.serial_memory == plan.serial_memory


def test_over_many_ranks_memory_is_counted_too() -> None:
    few, many = planned("mlp", (2,)), planned("mlp", (3, 6))
    assert many.details.memory == few.details.memory == "lives"
    assert sum(many.memory.values()) < sum(few.memory.values())
    assert many.received_bytes <= many.bytes


class Measured(TorchDispatchMode):
    """Measures the most bytes of tensors alive at a time, besides those of earlier tensors."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self._before = {x.untyped_storage()._cdata for x in before}
        self._alive: dict[int, tuple[Any, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in pytree.tree_leaves(made):
            if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata not in self._before:
                storage = x.untyped_storage()
                self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._alive = {k: each for k, each in self._alive.items() if not each[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._alive.values()))
        return made


def measured(name: str, mesh: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name](torch.float32)
    parts = tofu.torch.parallelize(model, mesh, inputs)
    parts(*inputs).backward()
    parts.zero_grad()
    tiles = [x.to_local() for x in [*parts.parameters(), *parts.buffers()]]
    with Measured([*tiles, *inputs]) as step:
        parts(*inputs).backward()
    expected = max(step_memory(program_of(parts).plan).peak.bytes)
    assert expected == pytest.approx(step.most, rel=1e-3), (expected, step.most)


@pytest.mark.parametrize("name", ["gpt", "unet"])
def test_a_run_holds_what_is_told(name) -> None:
    on_ranks(2, measured, name, (2,))
