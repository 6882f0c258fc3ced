"""Recurrent layers are one operator where the plan allows it, else timesteps."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.planner.wish import Wish
from tofu.plans import SearchOptions
from tofu.torch.commands.verify import verify_module
from tofu.torch.parallelize import program_of
from tofu.torch.planning import plan_traced
from tofu.torch.tracing.module_trace import trace
from tofu.torch.tracing.recurrent_layers import may_gain_apart

from ..equality.mixed_machine import mixed_machine
from .ranks import on_ranks
from .training import GRADIENT, LOSS, difference


class Layer(nn.Module):
    """A recurrent layer that may get a state, and whose last states may be read."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, data: Any, *state: Any) -> Any:
        given = state[0] if len(state) == 1 else state or None
        hidden, last = self.layer(data, given)
        every = [hidden, *(last if isinstance(last, tuple) else [last])] if state else [hidden]
        return sum(each.square().mean() for each in every)


def layers(dtype: torch.dtype) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Name -> module and inputs, of 24 sequences of 4 words of 3 features."""
    steps = torch.randn(4, 24, 3, dtype=dtype)
    state = torch.randn(2, 24, 4, dtype=dtype, requires_grad=True)
    short = torch.randn(2, 24, 2, dtype=dtype, requires_grad=True)
    return {
        "lstm": (nn.LSTM(3, 4, 2, dropout=0.5).eval(), (steps, state, state.detach())),
        "both ways": (nn.LSTM(3, 4, 2, bidirectional=True, bias=False), (steps,)),
        "projected": (nn.LSTM(3, 4, 2, proj_size=2), (steps, short, state)),
        "gru": (nn.GRU(3, 4, bidirectional=True), (steps, state)),
        "by batch": (nn.GRU(3, 4, 2, batch_first=True), (steps.transpose(0, 1),)),
        "rnn": (nn.RNN(3, 4, nonlinearity="relu"), (steps,)),
    }


def loss_and_gradients(model: Any, inputs: tuple[Any, ...]) -> list[Any]:
    given = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    loss = model(*given)
    loss.backward()
    wanted = [*(x.grad for x in given if x.requires_grad), *(p.grad for p in model.parameters())]
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in wanted]
    return [loss.detach(), *whole]


def trained(dtype: torch.dtype) -> None:
    for name, (layer, inputs) in layers(dtype).items():
        torch.manual_seed(0)
        whole = Layer(layer).to(dtype)
        parts = tofu.torch.parallelize(copy.deepcopy(whole), (3,), inputs)
        assert program_of(parts).plan.traced.layers, name
        for one, other in zip(*(loss_and_gradients(each, inputs) for each in (whole, parts))):
            assert difference(one, other) <= max(LOSS[dtype], GRADIENT[dtype]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whole_layers_train_as_in_plain_torch(dtype) -> None:
    on_ranks(3, trained, dtype)


def trained_for_time(machine: str, alike: bool, dtype: torch.dtype) -> None:
    layer, inputs = layers(dtype)["lstm"]
    torch.manual_seed(0)
    whole = Layer(layer).to(dtype)
    options = SearchOptions(objective="time", machine=machine)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), inputs, options=options)
    details = program_of(parts).plan.details
    assert details.simulated_ns and program_of(parts).plan.traced.layers
    assert bool(details.parts.shares) != alike
    for one, other in zip(*(loss_and_gradients(each, inputs) for each in (whole, parts))):
        assert difference(one, other) <= max(LOSS[dtype], GRADIENT[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alike", [True, False], ids=["equal devices", "a slow device"])
def test_a_plan_for_time_trains_as_in_plain_torch(tmp_path, dtype, alike) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(mixed_machine(2 if alike else 1)), encoding="utf-8")
    on_ranks(2, trained_for_time, str(path), alike, dtype)


@pytest.mark.parametrize("name", layers(torch.float64))
def test_parts_of_a_layer_equal_the_whole(name) -> None:
    layer, inputs = layers(torch.float64)[name]
    report = verify_module(Layer(layer).double(), inputs)
    assert not report.false
    assert {"tofu.recurrent.default", "tofu.recurrent_backward.default"} <= report.operators


def lstm(steps: int, batch: int, width: int) -> tuple[Any, tuple[Any]]:
    return Layer(nn.LSTM(width, width)), (torch.randn(steps, batch, width),)


@pytest.mark.parametrize(
    ("sizes", "in_timesteps"),
    [((12, 16, 8), False), ((2, 2, 8), True), ((2, 4, 64), True)],
    ids=["states larger", "few sequences", "weights larger"],
)
def test_layers_are_taken_apart_where_that_is_cheaper(sizes, in_timesteps) -> None:
    model, inputs = lstm(*sizes)
    plan = tofu.torch.plan(model, inputs, mesh=(4,))
    assert plan.traced.in_timesteps == in_timesteps
    assert bool(plan.traced.layers) != in_timesteps


def test_timesteps_are_not_traced_where_they_cannot_be_cheaper() -> None:
    """Else a plan of long sequences would take minutes."""
    traced = trace(*lstm(12, 16, 8))
    assert traced.timesteps is not None
    plan_traced(traced, (4,))
    assert traced.timesteps.cache_info().currsize == 0


@pytest.mark.parametrize("replication", [True, False])
def test_no_plan_of_timesteps_is_cheaper_where_none_is_looked_for(replication) -> None:
    wish, compared = Wish(options=SearchOptions(allow_replication=replication)), 0
    for steps, batch, ranks in itertools.product((2, 3), (8, 24), (2, 4)):
        traced = trace(*lstm(steps, batch, 2))
        if not may_gain_apart(traced, ranks):
            assert traced.timesteps is not None
            plans = [plan_traced(x, (ranks,), wish=wish) for x in (traced, traced.timesteps())]
            assert plans[0].bytes <= plans[1].bytes, (steps, batch, ranks)
            compared += 1
    assert compared >= 4


def test_a_pin_of_a_timestep_takes_layers_apart() -> None:
    model, inputs = lstm(4, 16, 4)
    apart = trace(model, inputs).timesteps
    assert apart is not None
    name = next(o.name for o in apart().operators if "tanh" in o.name)
    options = SearchOptions(pins=((name, (1,)),))
    plan = tofu.torch.plan(model, inputs, mesh=(4,), options=options)
    assert plan.traced.in_timesteps


def other_sizes(folder: str) -> None:
    """Ranks read a plan in timesteps, and take calls of other sizes apart, too."""
    model, inputs = lstm(2, 4, 64)
    file = Path(folder) / "plan.json"
    text = tofu.torch.plan(model, inputs, mesh=(2,)).to_json()
    file.write_text(text, encoding="utf-8")
    for plan in (None, file):
        parts = tofu.torch.parallelize(copy.deepcopy(model), (2,), inputs, plan=plan)
        for batch in (4, 3):
            data = (torch.randn(2, batch, 64),)
            one, other = model(*data), parts(*data)
            assert difference(one.detach(), other.detach()) <= LOSS[torch.float32]
        programs = parts.forward.programs.values()
        assert [each.plan.traced.in_timesteps for each in programs] == [True, True]


def test_ranks_agree_on_timesteps(tmp_path) -> None:
    on_ranks(2, other_sizes, str(tmp_path))
