"""Segments between exchanges are compiled, and compute the same."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable
from unittest import mock

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.torch.commands.models import MODELS
from tofu.torch.programs.compiling import Segment

from .ranks import on_ranks
from .training import difference


def eagerly(run: Callable[..., None], *args: Any) -> None:
    """Let torch.compile trace, and run the traced graphs without a compiler."""
    eager = functools.partial(torch.compile, backend="aot_eager")
    with mock.patch.object(torch, "compile", eager):
        run(*args)


def compiled(name: str) -> None:
    torch.manual_seed(0)
    whole, inputs = MODELS[name](torch.float64)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), inputs, compiled=True)
    for _ in range(2):
        one, other = whole(*inputs), parts(*inputs)
        assert difference(one.detach(), other.detach()) <= 1e-9
        one.backward()
        other.backward()
        for p, q in zip(whole.parameters(), parts.parameters()):
            assert difference(p.grad, q.grad.full_tensor()) <= 1e-9
    program = parts.forward.programs.popitem()[1]
    for steps in (program.forward_steps, program.backward_steps):
        assert sum(isinstance(step, Segment) for step in steps) > 1


def test_compiled_segments_compute_the_same() -> None:
    on_ranks(2, eagerly, compiled, "mlp")


class Noisy(nn.Module):
    """Dropout between products."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, data):
        hidden = nn.functional.dropout(torch.relu(self.one(data)).tanh(), 0.5)
        return (self.other(hidden).sigmoid() * hidden).sum()


def noisy() -> None:
    torch.manual_seed(0)
    whole, data = Noisy().double(), torch.randn(8, 8, dtype=torch.float64)
    given = [
        tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,), compiled=each)
        for each in (False, True)
    ]
    for seed in range(2):
        found = []
        for model in given:
            torch.manual_seed(seed)
            found.append(model(data).detach())
        assert difference(*found) <= 1e-9


def test_random_calls_draw_the_same() -> None:
    on_ranks(2, eagerly, noisy)


@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_a_compiler_computes_the_same(name) -> None:
    on_ranks(2, compiled, name)
