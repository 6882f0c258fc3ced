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

from .ranks import on_ranks
from .training import compare

WIDTH, USES = 12, 3
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


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize(
    "options", [OPTIONS, SearchOptions("data-parallel")], ids=["replication", "data-parallel"]
)
def test_each_gradient_is_reduced_once(mesh, options) -> None:
    """Activations are larger than all weights, so data parallelism is the cheapest."""
    model, inputs = shared(torch.float32, 480)
    plan = tofu.torch.plan(model, inputs, mesh=mesh, options=options)
    size = sum(weight.nbytes for weight in model.parameters())
    rest = 64 * (plan.details.workers - 1)  # of the loss and its scale
    assert plan.bytes <= 2 * (plan.details.workers - 1) * size + rest


def trained() -> None:
    compare(shared, (2,), torch.float64, 2, options=OPTIONS)


def test_ranks_add_up_terms() -> None:
    plan = tofu.torch.plan(*shared(torch.float64), mesh=(2,), options=OPTIONS)
    assert any(TERMS in tensor.cuts for tensor in plan.details.tensors)
    on_ranks(2, trained)


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
