"""Modules train distributed as they do whole."""

from __future__ import annotations

import pytest
import torch

from tofu.torch.models import MODELS, SMALL

from .ranks import on_ranks
from .training import compare

# Of the others it takes minutes to train one.
QUICK = ("resnet", "unet", "llama")


def received_as_planned(name: str) -> None:
    share = compare(MODELS[name], (2, 2), torch.float32, 1)
    assert 0.9 <= share <= 1.1, share


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_losses_and_gradients_are_those_of_the_whole(name, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, MODELS[name], mesh, dtype)


@pytest.mark.parametrize("name", QUICK)
def test_every_module_trains(name) -> None:
    on_ranks(4, compare, MODELS[name], (2, 2), torch.float64, 2)


@pytest.mark.parametrize("name", ["gpt"])
def test_ranks_receive_what_the_plan_counts(name) -> None:
    on_ranks(4, received_as_planned, name)


@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2, 2)])
@pytest.mark.parametrize("name", SMALL)
def test_every_module_trains_on_every_mesh(name, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, MODELS[name], mesh, dtype)
