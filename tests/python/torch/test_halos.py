"""Convolutions cut along the height or the width of images: ranks exchange the rows between."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tofu.torch

from .ranks import on_ranks
from .training import compare


class Filter(nn.Module):
    """Convolutions of one large image, with borders, strides and dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3, padding=1)
        self.second = nn.Conv2d(2, 2, 3, stride=2, padding=1)
        self.third = nn.Conv2d(2, 1, (5, 3), padding=(4, 2), dilation=2, bias=False)
        self.fourth = nn.Conv2d(1, 2, (2, 3), padding="valid")

    def forward(self, images):
        hidden = self.second(self.first(images).tanh()).tanh()
        return self.fourth(self.third(hidden).tanh()).square().mean()


def made(dtype: torch.dtype, images: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Filter().to(dtype), (torch.randn(images, 1, 26, 22, dtype=dtype),)


def test_a_plan_cuts_images() -> None:
    plan = tofu.torch.plan(*made(torch.float32), mesh=(2,))
    cuts = {name: each[0] for name, each in plan.splits.items() if "convolution" in name}
    assert not plan.undescribed
    assert len(cuts) == 11  # four, with gradients of all weights, and of data but the first
    stride = cuts.pop("second.convolution_backward")  # which parts of space do not share
    assert stride == "ci" and set(cuts.values()) <= {"x0", "x1", "y0", "y1"}


@pytest.mark.parametrize(("images", "calls"), [(7, 7), (8, 4)])
def test_gradients_of_many_images_are_one_call(images, calls) -> None:
    """The first of four convolutions needs the gradient of its weight alone."""
    plan = tofu.torch.plan(*made(torch.float32, images), mesh=(2,))
    assert sum("convolution_backward" in name for name in plan.splits) == calls


def train(mesh: tuple[int, ...], dtype: torch.dtype) -> None:
    compare(made, mesh, dtype, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (3,), (4,), (2, 2)], ids=str)
def test_ranks_exchange_the_rows_between(mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), train, mesh, dtype)
