"""Tensors that are attributes of modules, but neither parameters nor buffers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tofu.torch
from tofu.errors import GraphError, PlanError
from tofu.torch.graphs.module_state import ModuleState

from .ranks import on_ranks


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


@pytest.mark.parametrize("kept", [SCALE, [SCALE], {"a": (SCALE,)}], ids=["alone", "list", "dict"])
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


class Held:
    """An object with a tensor."""

    def __init__(self) -> None:
        self.scale = torch.ones(4)

    def __getitem__(self, _: int) -> Any:
        return self.scale


def test_one_in_an_object_is_a_clear_error() -> None:
    with pytest.raises(GraphError, match="Scaled: cannot be copied to be traced"):
        tofu.torch.plan(Scaled(Held()), (torch.ones(4, 4),), mesh=(2,))


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
