"""Tensors that are attributes of modules, but neither parameters nor buffers."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tofu.torch
from tofu.errors import GraphError, PlanError
from tofu.torch.graphs.module_state import ModuleState

from .ranks import on_ranks
from .scripts import Wrap, compare


class Scaled(nn.Module):
    """A linear layer whose outputs a tensor scales, which is kept in some container."""

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.kept = kept

    def forward(self, data: Any) -> Any:
        scale = self.kept
        while not isinstance(scale, torch.Tensor):
            scale = scale["a"] if isinstance(scale, dict) else scale[0]
        return (self.linear(data) * scale).square().mean()


def train(kept: Any) -> None:
    torch.manual_seed(0)
    whole, data = Scaled(kept), torch.randn(4, 4)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,))
    torch.testing.assert_close(parts(data), whole(data))
    for model in (whole, parts):
        if isinstance(model.kept, torch.Tensor):
            model.kept = model.kept + 1
    torch.testing.assert_close(parts(data), whole(data))
    for model in (whole, parts):
        if isinstance(model.kept, torch.Tensor):
            model.kept.mul_(3)
    torch.testing.assert_close(parts(data), whole(data))


SCALE = torch.arange(4.0)


class Held:
    """An object with a tensor."""

    def __init__(self) -> None:
        self.scale = SCALE

    def __getitem__(self, _: int) -> Any:
        return self.scale


@pytest.mark.parametrize(
    "kept", [SCALE, [SCALE], {"a": (SCALE,)}, Held()], ids=["alone", "list", "dict", "object"]
)
def test_they_are_constants_with_their_newest_values(kept) -> None:
    on_ranks(2, train, kept)


def differ() -> None:
    model = Scaled(torch.full((4,), float(dist.get_rank())))
    with pytest.raises(PlanError, match="has another module"):
        tofu.torch.parallelize(model, (2,), (torch.ones(4, 4),))


def test_ranks_must_have_them_alike() -> None:
    on_ranks(2, differ)


def test_one_with_a_gradient_is_refused() -> None:
    model = Scaled(torch.ones(4, requires_grad=True))
    with pytest.raises(GraphError, match="register it as a parameter"):
        tofu.torch.plan(model, (torch.ones(4, 4),), mesh=(2,))


TABLE = torch.ones(4, requires_grad=True)
HEAD = nn.Linear(4, 4)


class Reading(nn.Module):
    """Calls a function on the outputs of a layer, which may read what is no part of the module."""

    def __init__(self, function: Any, kept: Any = None) -> None:
        super().__init__()
        self.linear, self.function, self.kept = nn.Linear(4, 4), function, kept

    def forward(self, data: Any) -> Any:
        return self.function(self, self.linear(data)).square().mean()


@pytest.mark.parametrize(("function", "name"), [
    (lambda own, made: made * TABLE, r"function\.TABLE"),
    (lambda own, made: HEAD(made), r"function\.HEAD\.weight"),
    (lambda own, made: own.kept[0](made), r"kept\.0\.weight"),
    (lambda own, made: made * own.kept[0].weight.detach() + own.kept[1], r"kept\.1"),
])  # fmt: skip
def test_tensors_of_others_that_would_be_trained_are_refused(function, name) -> None:
    kept = [nn.Linear(4, 4), torch.ones(4, requires_grad=True)]
    model, data = Reading(function, kept), torch.ones(4, 4)
    with pytest.raises(GraphError, match=f"forward reads '{name}', which has a gradient but is no"):
        tofu.torch.plan(model, (data,), mesh=(2,))


def taught(own: Any, made: Any) -> Any:
    with torch.no_grad():
        wanted = own.kept[0](made) + HEAD(made)
    return made - wanted


def with_a_teacher(wrap: Wrap) -> dict[str, Any]:
    """A module that reads others without gradients, one of which is in a list."""
    data, teacher = torch.randn(4, 4), nn.Linear(4, 4)
    model = wrap(Reading(taught, [teacher]), data)
    losses = []
    for _ in range(2):
        losses.append(model(data))
        losses[-1].backward()
        with torch.no_grad():
            teacher.weight.mul_(0.5)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return {**dict(enumerate(losses)), **gradients, "teacher": teacher.weight.grad}


def test_tensors_of_others_count_with_their_newest_values_without_gradients() -> None:
    on_ranks(2, compare, with_a_teacher)


def test_an_attribute_that_cannot_be_copied_is_a_clear_error() -> None:
    with pytest.raises(GraphError, match="Scaled: cannot be copied to be traced"):
        tofu.torch.plan(Scaled([SCALE, threading.Lock()]), (torch.ones(4, 4),), mesh=(2,))


def test_one_from_inference_mode_counts_by_itself() -> None:
    """Torch does not count writes to such tensors, and raises if asked for their number."""
    module = nn.Linear(4, 4)
    with torch.inference_mode():
        module.mask = torch.ones(4)
    state = ModuleState(module)
    first = state.number()
    assert state.number() == first
    module.mask = torch.ones(4)
    assert state.number() != first
