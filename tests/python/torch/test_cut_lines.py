"""Losses over a vocabulary that ranks cut: nothing of its size is communicated."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tofu.torch
from tofu.torch.commands.verify import verify_module
from tofu.torch.tiles import cut_lines
from tofu.torch.tracing.decompositions import table

from .ranks import on_ranks
from .training import compare

aten = torch.ops.aten
WORDS, FEATURES, TOKENS = 96, 8, 6


class Head(nn.Module):
    """Losses of few tokens over many words."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, FEATURES)
        self.words = nn.Linear(FEATURES, WORDS)
        self.register_buffer("weight", torch.rand(WORDS))

    def forward(self, data, target):
        scores = self.words(self.first(data).tanh())
        loss = F.cross_entropy(scores, target, self.weight, label_smoothing=0.1)
        chosen = scores.log_softmax(1).gather(1, target.clamp(0).unsqueeze(1))
        return loss + chosen.square().mean() + scores.logsumexp(1).square().mean()


def made(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    target = torch.arange(TOKENS) * (WORDS // TOKENS)
    target[1] = -100  # ignored
    return Head().to(dtype), (torch.randn(TOKENS, 4, dtype=dtype), target)


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_a_plan_cuts_the_vocabulary_and_sends_none_of_it(mesh) -> None:
    plan = tofu.torch.plan(*made(torch.float32), mesh=mesh)
    ranks = torch.Size(mesh).numel()
    lines = [each for name, each in plan.splits.items() if "log_sum_exp" in name]
    assert lines and all(set(each) == {"i1"} for each in lines)
    assert all(str(plan.placements["parameters"]["words.weight"]).count("Shard(0)") for _ in mesh)
    # Each rank receives some numbers for each token, and the features; not the scores.
    assert plan.bytes < 2 * (ranks - 1) * 4 * TOKENS * WORDS / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,)])
def test_ranks_that_cut_the_vocabulary_train_as_one_does(mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, made, mesh, dtype, 3)


def test_parts_of_losses_are_the_whole() -> None:
    model, inputs = made(torch.float64)
    report = verify_module(model, inputs)
    assert report.false == [] and report.undescribed == set()
    own = {"tofu.log_sum_exp.default", "tofu.gather.default", "tofu.scatter_add.default"}
    assert own <= set(report.operators)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logarithms_of_sums_come_in_blocks(monkeypatch, dtype) -> None:
    monkeypatch.setattr(cut_lines, "_CPU_BLOCK", 12)
    data = torch.randn(7, 3, 5).to(dtype)
    data[2] = -torch.inf
    found = torch.ops.tofu.log_sum_exp(data, [1])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, data.float().logsumexp(1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype) -> None:
    data = (3 * torch.randn(5, 40)).to(dtype)
    decomposed = table()[aten._log_softmax.default](data, 1, False)
    assert decomposed.dtype == dtype
    error = 1e-4 if dtype == torch.float32 else torch.finfo(dtype).eps
    exact = data.double().log_softmax(1).to(dtype)
    torch.testing.assert_close(decomposed, exact, rtol=error, atol=0)
    grad = torch.randn(5, 40).to(dtype)
    backward = table()[aten._log_softmax_backward_data.default](grad, exact, 1, dtype)
    expected = grad.double() - exact.double().exp() * grad.double().sum(1, keepdim=True)
    torch.testing.assert_close(backward, expected.to(dtype), rtol=4 * error, atol=error)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gradients_come_in_blocks(monkeypatch, dim) -> None:
    monkeypatch.setattr(cut_lines, "_CPU_BLOCK", 12)
    grad, data = torch.randn(2, 7, 1, 3, dtype=torch.float64)
    output = data.log_softmax(dim)
    found = torch.ops.tofu.log_softmax_backward(grad, output, grad.sum(dim, keepdim=True))
    expected = aten._log_softmax_backward_data(grad, output, dim, torch.float64)
    torch.testing.assert_close(found, expected)


def test_a_part_finds_the_elements_that_are_its_own() -> None:
    data, index = torch.randn(4, 9), torch.randint(0, 9, (4, 3))
    source = torch.randn(4, 3)
    parts = [(data[:, :5], 0), (data[:, 5:], 5)]
    chosen = sum(torch.ops.tofu.gather(part, index, 1, begin) for part, begin in parts)
    torch.testing.assert_close(chosen, data.gather(1, index))
    added = [torch.ops.tofu.scatter_add(part, index, source, 1, begin) for part, begin in parts]
    torch.testing.assert_close(torch.cat(added, 1), data.scatter_add(1, index, source))
