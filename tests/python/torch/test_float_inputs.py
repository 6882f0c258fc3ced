"""Floats among the arguments are inputs of one program, unless it depends on their values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tofu.torch
from tofu.errors import GraphError, PlanError
from tofu.torch.tracing.module_trace import trace_open

from .ranks import on_ranks
from .training import GRADIENT, LOSS, difference


class Scheduled(nn.Module):
    """A module with a schedule whose value is an argument of every call."""

    def __init__(self, kind: str = "smooth") -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, data: Any, rate: float, *, beta: float = 1.0) -> Any:
        found = nn.functional.softplus(self.layers(data) * rate, beta=2 * beta) + rate / 3
        if self.kind == "stepped" and rate > 0.5:
            found = found * 2
        if self.kind == "padded":
            found = nn.functional.pad(found, (1, 1), value=rate)
        return {"loss": found.square().mean(), "rate": rate * beta}


def called(kind: str, programs: int) -> None:
    torch.manual_seed(0)
    whole, data = Scheduled(kind), torch.randn(6, 8)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data, 0.0))
    for rate, beta in [(0.0, 1.0), (0.1, 1.0), (0.7, 1.5), (0.9, 1.0), (0.3, 2.0)]:
        found = [model(data, rate, beta=beta) for model in (whole, parts)]
        assert found[0]["rate"] == found[1]["rate"]
        assert (
            difference(found[0]["loss"].detach(), found[1]["loss"].detach()) <= LOSS[torch.float32]
        )
        for each in found:
            each["loss"].backward()
        for one, other in zip(whole.parameters(), parts.parameters()):
            assert difference(one.grad, other.grad.full_tensor()) <= GRADIENT[torch.float32]
        whole.zero_grad()
        parts.zero_grad()
    assert len(parts.forward.programs) == programs, list(parts.forward.programs)


@pytest.mark.parametrize(
    ("kind", "programs"),
    # Without beta; the first values; then for any values, or for each, as where the partitioner
    # fills what is outside of a tensor with the value.
    [("smooth", 3), ("stepped", 6), ("padded", 6)],
)
def test_one_program_serves_all_values(kind, programs) -> None:
    on_ranks(2, called, kind, programs)


def different_floats() -> None:
    data = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    parts = tofu.torch.parallelize(Scheduled(), (2,), (data, 0.0))
    for rate in (0.1, 0.2):
        parts(data, rate)
    with pytest.raises(PlanError, match="rank 1"):
        parts(data, 0.3 + dist.get_rank())
    parts(data, 0.4)


def test_ranks_that_are_called_with_other_floats_are_told() -> None:
    on_ranks(2, different_floats)


def test_a_trace_tells_what_depends_on_values() -> None:
    data = torch.randn(6, 8)
    traced = trace_open(Scheduled(), (data, 0.1), {}, ()).at({0: (6, 8)})
    assert traced is not None
    assert len(traced.hints) == 1
    with pytest.raises(GraphError, match="depends on the values of floats"):
        trace_open(Scheduled("stepped"), (data, 0.1), {}, ())
