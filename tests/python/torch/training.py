"""Trains a module whole and distributed, with the same values, and compares."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import tofu.torch
from tofu.plans import SearchOptions
from tofu.torch.parallelize import program_of

STEPS = 5
# The allowed differences of losses and gradients, relative to the largest value.
LOSS = {torch.float32: 1e-5, torch.float64: 1e-9}
GRADIENT = {torch.float32: 1e-4, torch.float64: 1e-9}


def difference(one: Any, other: Any) -> float:
    """The largest difference, relative to the largest value."""
    return float((one - other).abs().max() / (one.abs().max() + 1e-3))


def compare(
    make: Callable[[torch.dtype], Any],
    mesh: tuple[int, ...],
    dtype: torch.dtype,
    steps: int = STEPS,
    rate: float = 0.1,
    options: Optional[SearchOptions] = None,
) -> float:
    """Train for some steps, and compare; returns the received share of the plan's bytes."""
    torch.manual_seed(0)
    whole, inputs = make(dtype)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), mesh, inputs, options=options)
    one = torch.optim.SGD(whole.parameters(), lr=rate, momentum=0.9)
    other = torch.optim.SGD(parts.parameters(), lr=rate, momentum=0.9)
    for step in range(steps):
        losses = whole(*inputs), parts(*inputs)
        assert losses[0].isfinite(), step
        for loss in losses:
            loss.backward()
        assert difference(losses[0].detach(), losses[1].detach()) <= LOSS[dtype], step
        for (name, w), p in zip(whole.named_parameters(), parts.parameters()):
            assert isinstance(p, DTensor)
            found = difference(w.grad, p.grad.full_tensor())
            assert found <= GRADIENT[dtype], (step, name, found)
        for (name, w), b in zip(whole.named_buffers(), parts.buffers()):
            assert difference(w.double(), b.full_tensor().double()) <= GRADIENT[dtype], name
        for optimizer in (one, other):
            optimizer.step()
            optimizer.zero_grad()
    program = program_of(parts)
    received = torch.tensor([program.exchange.received_bytes])
    dist.all_reduce(received)
    assert int(received) == steps * program.plan.details.fetched_bytes
    return int(received) / steps / program.plan.bytes
