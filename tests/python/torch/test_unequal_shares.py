"""Ranks on devices that differ: faster ones compute larger tiles."""

from __future__ import annotations

import copy
import json

import torch

import tofu.torch
from tofu.plans import Plan, SearchOptions
from tofu.torch.commands.models import MODELS
from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.parallelize import program_of
from tofu.torch.programs.rank_memory import held_bytes, with_memory

from ..equality.mixed_machine import mixed_machine
from .ranks import on_ranks
from .training import difference


def test_slower_devices_get_smaller_tiles(tmp_path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(mixed_machine(1)))
    model, inputs = MODELS["mlp"](torch.float32)
    for equal in (True, False):
        options = SearchOptions(objective="time", machine=str(path), equal_tiles=equal)
        plan = tofu.torch.plan(model, inputs, mesh=(2,), options=options)
        times = dict(plan.details.simulated_ns)
        if equal:
            slowest = min(times.values())
            assert not plan.details.parts.shares
    assert min(times.values()) < 0.8 * slowest
    ((fast, slow),) = plan.details.parts.shares
    assert 2 * slow < fast
    of_fast, of_slow = held_bytes(plan)
    assert of_slow < of_fast == sum(plan.memory.values())


def shared(plan: TorchPlan, *shares: tuple[int, ...]) -> TorchPlan:
    """The same cuts with shares."""
    searched = plan.details.in_graph(plan.problem.table)
    changed = searched.with_shares(shares=shares, multiple=1, time=None)
    return plan.replaced(Plan.of(changed, bytes_per_worker=changed.estimate_memory()))


def trained_unequally(name: str, folder: str) -> None:
    torch.manual_seed(0)
    whole, inputs = MODELS[name](torch.float64)
    plan = shared(tofu.torch.plan(whole, inputs, mesh=(3,)), (5, 2, 1))
    path = f"{folder}/plan{torch.distributed.get_rank()}"
    with open(path, "w") as file:
        file.write(plan.to_json())
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (3,), inputs, plan=path)
    one, other = (torch.optim.Adam(each.parameters(), lr=0.01) for each in (whole, parts))
    for _ in range(3):
        losses = [each(*inputs) for each in (whole, parts)]
        for loss in losses:
            loss.backward()
        assert difference(*(loss.detach() for loss in losses)) <= 1e-12
        for parameter, own in zip(whole.parameters(), parts.parameters()):
            assert difference(parameter.grad, own.grad.full_tensor()) <= 1e-12
        for optimizer in (one, other):
            optimizer.step()
            optimizer.zero_grad()
    fast, *_, slow = program_of(parts).boxes("words.weight")
    assert fast.shape[1] > 3 * slow.shape[1]


def test_ranks_with_unequal_shares_train_as_one_does(tmp_path) -> None:
    on_ranks(3, trained_unequally, "gpt", str(tmp_path))


def test_memory_counts_copies_of_parameters_that_are_kept_otherwise() -> None:
    model = torch.nn.Linear(240, 80, bias=False)
    plan = tofu.torch.plan(model, (torch.randn(240, 240),), mesh=(2,), optimizer="adam")
    before = plan.memory
    after = with_memory(shared(plan, (3, 1))).memory
    half = 240 * 80 * 4 // 2
    assert before["parameters"] == half and before["optimizer_state"] == 2 * half
    # The DTensor is half of the parameter, and the program's tile three quarters of it.
    assert after["parameters"] == half + half * 3 // 2
    assert after["optimizer_state"] == 2 * half
