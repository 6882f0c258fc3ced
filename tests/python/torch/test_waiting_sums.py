"""Gradients of weights that several layers share wait as terms until all are added up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tofu.tdl.aten
import tofu.torch
from tofu.analysis.terms import linear_inputs
from tofu.lang import lookup
from tofu.plans import SearchOptions
from tofu.plans.plan import TERMS

from . import hugging
from .ranks import on_ranks
from .training import compare

WIDTH, USES, MICRO_BATCHES = 12, 3, 4
OPTIONS = SearchOptions(allow_replication=True)


class Shared(torch.nn.Module):
    """A table whose rows are words and classes, and a layer that is used several times."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WIDTH, WIDTH)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, words: Any, label: Any) -> Any:
        hidden = self.words(words)
        for _ in range(USES):
            hidden = torch.tanh(self.layer(hidden)) - hidden / 2
        classes = torch.nn.functional.linear(hidden, self.words.weight)
        return torch.nn.functional.cross_entropy(classes, label)


def shared(dtype: torch.dtype, batch: int = 96) -> Any:
    words, label = torch.randint(0, WIDTH, (batch,)), torch.randint(0, WIDTH, (batch,))
    return Shared().to(dtype), (words, label)


class Siamese(torch.nn.Module):
    """One net that is called on two inputs, and the distances of what it makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 4)
        )

    def forward(self, one: Any, other: Any, alike: Any) -> Any:
        distance = (self.net(one) - self.net(other)).square().mean(1)
        return torch.where(alike, distance, torch.relu(1 - distance)).mean()


def siamese(dtype: torch.dtype) -> Any:
    one, other = torch.randn(2, 480, WIDTH, dtype=dtype).unbind()
    return Siamese().to(dtype), (one, other, torch.arange(480) % 2 == 0)


class MicroBatches(torch.nn.Module):
    """Adds up the losses of micro-batches."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
        )

    def forward(self, data: Any, label: Any) -> Any:
        losses = map(torch.nn.functional.cross_entropy, map(self.net, data), label)
        return sum(losses) / MICRO_BATCHES


def micro_batches(dtype: torch.dtype) -> Any:
    data = torch.randn(MICRO_BATCHES, 120, WIDTH, dtype=dtype)
    return MicroBatches().to(dtype), (data, torch.randint(0, WIDTH, (MICRO_BATCHES, 120)))


def albert(dtype: torch.dtype) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    return hugging.made("albert", transformers, dtype, batch=64)


def once(model: torch.nn.Module, ranks: int) -> int:
    """The bytes of gradients that are reduced once, and few more of losses and their scales."""
    size = sum(weight.nbytes for weight in model.parameters())
    return (ranks - 1) * (2 * size + 128)


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize(
    "options", [OPTIONS, SearchOptions("data-parallel")], ids=["replication", "data-parallel"]
)
def test_each_gradient_is_reduced_once(mesh, options) -> None:
    """Activations are larger than all weights, so data parallelism is the cheapest."""
    model, inputs = shared(torch.float32, 480)
    plan = tofu.torch.plan(model, inputs, mesh=mesh, options=options)
    assert plan.bytes <= once(model, plan.details.workers)


def trained(make: Any, dtype: torch.dtype) -> None:
    compare(make, (2,), dtype, 2, options=OPTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [shared, siamese, micro_batches, albert])
def test_ranks_add_up_terms(make, dtype) -> None:
    model, inputs = make(dtype)
    plan = tofu.torch.plan(model, inputs, mesh=(2,), options=OPTIONS)
    assert any(TERMS in tensor.cuts for tensor in plan.details.tensors)
    assert plan.bytes <= once(model, 2)
    on_ranks(2, trained, make, dtype)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("add.Tensor", "self other", [{0, 1}]),
        ("add.Tensor", "self", []),
        ("sub.Tensor", "self other", [{0, 1}]),
        ("mul.Tensor", "self other", [{0}, {1}]),
        ("mul.Scalar", "self", [{0}]),
        ("div.Tensor", "self other", [{0}]),
        ("div.Tensor", "self", [{0}]),
        ("div.Tensor", "other", []),
        ("div.Tensor_mode", "self other", []),
        ("neg.default", "self", [{0}]),
        ("relu.default", "self", []),
    ],
)
def test_additions_and_products_pass_terms_through(name, given, expected) -> None:
    description = lookup(f"aten.{name}")
    assert description is not None
    shapes = [(6, 4)] * len(given.split())
    found = linear_inputs(description.trace(shapes, [(6, 4)], {"given": given}))
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
