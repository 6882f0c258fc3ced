"""Every strategy of every operator that small modules call gives the whole operator's result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tofu.torch.models import MODELS, SMALL
from tofu.torch.verify import verify_module

# Models that every run verifies; for others, the rotating sample is enough.
ALWAYS = ("gpt", "unet", "functions")


def every(names: Sequence[str]) -> list[object]:
    return [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.whole) for n in names]


@pytest.mark.parametrize("name", every(SMALL))
def test_parts_are_the_whole(name) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name](torch.float64)
    report = verify_module(model, inputs)
    assert report.false == []
    assert report.undescribed == set()
    assert report.strategies > 100


class Masked(torch.nn.Module):
    """Puts values where masks of one dimension and of several are true."""

    def forward(self, data, mask):
        first, second, third = (data * k for k in (1.0, 2.0, 3.0))
        first[mask] = 0.5
        second[mask] = torch.ones(8, dtype=data.dtype)
        third[:, mask[0]] = 0.25
        return (first + second + third).square().sum()


def test_parts_of_masks_are_the_whole() -> None:
    torch.manual_seed(0)
    data = torch.randn(4, 6, 8, dtype=torch.float64, requires_grad=True)
    report = verify_module(Masked(), (data, torch.rand(4, 6) > 0.5))
    assert report.false == []
    assert report.undescribed == set()
    assert "aten.index_put.default" in report.operators
