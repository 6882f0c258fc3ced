"""Modules train distributed as they do whole."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import tofu.torch
from tofu.torch.commands.models import MODELS, SMALL, _Gpt, _ResNet

from .ranks import on_ranks
from .training import STEPS, compare

# Each of the other models takes minutes to train.
QUICK = ("resnet", "unet", "llama")

# At a learning rate of 0.1, the loss of some grows without limit.
RATES = {"functions": 1e-5, "resnet-50": 1e-3}


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
    rate = RATES.get(name, 0.1)
    on_ranks(torch.Size(mesh).numel(), compare, MODELS[name], mesh, dtype, STEPS, rate)


class Odd(torch.nn.Module):
    """Layers of 257 features and 1,001 classes, a convolution and a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 5, 3, padding=1, bias=False)
        self.batch = torch.nn.BatchNorm2d(5)
        self.first = torch.nn.Linear(5 * 7 * 9, 257)
        self.norm = torch.nn.LayerNorm(257)
        self.last = torch.nn.Linear(257, 1001)

    def forward(self, data: Any, label: Any) -> Any:
        image = torch.relu(self.batch(self.conv(data)))
        hidden = self.norm(torch.tanh(self.first(image.flatten(1))))
        return torch.nn.functional.cross_entropy(self.last(hidden), label)


def odd(name: str, dtype: torch.dtype) -> Any:
    """A batch of 7 and sizes with few divisors."""
    if name == "features":
        data, label = torch.randn(7, 1, 7, 9, dtype=dtype), torch.randint(0, 1001, (7,))
        return Odd().to(dtype), (data, label)
    words, label = torch.randint(0, 1001, (7, 5)), torch.randint(0, 1001, (7, 5))
    return _Gpt(1001, 5, 33, 3, 1).to(dtype), (words, label)


@pytest.mark.parametrize(
    ("name", "mesh", "dtype"),
    [
        ("features", (3,), torch.float32),
        ("features", (2, 3), torch.float64),
        ("gpt", (3,), torch.float64),
        ("gpt", (2, 3), torch.float32),
    ],
)
def test_sizes_need_not_divide(name, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, functools.partial(odd, name), mesh, dtype, 3)


@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (3,), (4,), (6,), (2, 3)])
@pytest.mark.parametrize("name", ["features", "gpt"])
def test_sizes_need_not_divide_on_any_mesh(name, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, functools.partial(odd, name), mesh, dtype)


@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("mesh", [(3,), (2, 3)])
@pytest.mark.parametrize("name", SMALL)
def test_every_module_trains_on_three_and_six(name, mesh) -> None:
    rate = RATES.get(name, 0.1)
    on_ranks(torch.Size(mesh).numel(), compare, MODELS[name], mesh, torch.float64, 2, rate)


@pytest.mark.parametrize("mesh", [(3,), (2, 3)])
@pytest.mark.parametrize("name", ["features", "gpt"])
def test_nothing_large_stays_whole(name, mesh) -> None:
    model, inputs = odd(name, torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=mesh)
    count = torch.Size(mesh).numel()
    serial, fullest = plan.serial_memory["parameters"], plan.memory["parameters"]
    copies = 2  # a program copies its tile where DTensor's pieces differ
    assert fullest <= copies * 1.12 * serial / count < serial, (fullest, serial)


def deep(name: str, dtype: torch.dtype) -> Any:
    """ResNet-50, and a GPT of 12 layers, with all their layers but few channels."""
    if name == "resnet-50":
        data, label = torch.randn(8, 3, 64, 64, dtype=dtype), torch.randint(0, 8, (8,))
        model = _ResNet((3, 4, 6, 3), 8, 8)
        for block in model.body:  # else float32 is 2 % from float64 in plain torch, too
            torch.nn.init.constant_(block.main[-1].weight, 0.02)
        return model.to(dtype), (data, label)
    words, label = torch.randint(0, 64, (8, 16)), torch.randint(0, 64, (8, 16))
    return _Gpt(64, 16, 32, 4, 12).to(dtype), (words, label)


@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2, 2)])
@pytest.mark.parametrize("name", ["resnet-50", "gpt-12"])
def test_deep_modules_train_on_every_mesh(name, mesh, dtype) -> None:
    make = functools.partial(deep, name)
    on_ranks(torch.Size(mesh).numel(), compare, make, mesh, dtype, STEPS, RATES.get(name, 0.1))
