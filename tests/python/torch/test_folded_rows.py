"""Products of data with several dimensions, whose rows torch folds into those of one matrix."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tofu.torch
from tofu.torch.commands.verify import verify_module

from .ranks import on_ranks
from .training import compare

aten = torch.ops.aten
SAMPLES, WORDS, FEATURES = 2, 16, 6


class _Layers(nn.Module):
    """Layers for every word, with a bias, without one, and with a weight that lies transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.second = nn.Linear(8, FEATURES, bias=False)
        self.weight = nn.Parameter(torch.randn(FEATURES, FEATURES))
        self.bias = nn.Parameter(torch.randn(FEATURES))
        self.head = nn.Linear(FEATURES, 5)

    def forward(self, data, label):
        hidden = data + self.second(self.first(data).relu())
        rows = torch.addmm(self.bias, hidden.flatten(0, 1), self.weight)
        hidden = hidden + rows.view(hidden.shape).tanh()
        return F.cross_entropy(self.head(hidden).flatten(0, 1), label.flatten())


def made(dtype: torch.dtype):
    torch.manual_seed(0)
    data = torch.randn(SAMPLES, WORDS, FEATURES, dtype=dtype)
    return _Layers().to(dtype), (data, torch.arange(SAMPLES * WORDS).view(SAMPLES, -1) % 5)


def test_rows_are_folded_only_where_they_are_read_so() -> None:
    traced = tofu.torch.trace(*made(torch.float32))
    targets = [each.target for each in traced.operators]
    assert targets.count(aten.linear.default) == 2
    assert targets.count(aten.tensordot.default) == 3
    assert targets.count(aten.addmm.default) == 1  # the head's, whose loss reads rows


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_ranks_share_the_words_of_every_sample(mesh) -> None:
    plan = tofu.torch.plan(*made(torch.float32), mesh=mesh)
    linear = {name: each for name, each in plan.splits.items() if "linear" in name}
    assert linear and all("i1" in each for each in linear.values()), linear


def test_parts_are_the_whole() -> None:
    report = verify_module(*made(torch.float64))
    assert report.false == [] and report.undescribed == set()
    assert {f"aten.{each}.default" for each in ("linear", "matmul", "tensordot")} <= set(
        report.operators
    )


@pytest.mark.parametrize("mesh", [(2,), (4,)])
def test_ranks_train_as_one_does(mesh) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, made, mesh, torch.float64, 3)
