"""Layers that are dropped by chance, with a chance of none or all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import GraphError

from .hugging import NAMES, made

COMPARISONS = {
    "lt": lambda drawn, share: drawn < share,
    "ge": lambda drawn, share: not drawn >= share,
    "torch.lt": lambda drawn, share: bool(torch.lt(drawn, share)),
    "reversed": lambda drawn, share: share > drawn,
    "a tensor's": lambda drawn, share: drawn.lt(share).item(),
}


class Dropped(nn.Module):
    """Drops its layer if a number is below the share."""

    def __init__(self, how: str, share: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.is_dropped = COMPARISONS[how]
        self.share = share

    def forward(self, data):
        return data if self.is_dropped(torch.rand([]), self.share) else self.layer(data)


@pytest.mark.parametrize("how", COMPARISONS)
@pytest.mark.parametrize("share", [0, 0.0, 1, 1.0])
def test_a_layer_is_dropped_never_or_always(how, share) -> None:
    traced = tofu.torch.trace(Dropped(how, share), (torch.randn(3, 4),))
    assert any("addmm" in str(each.target) for each in traced.operators) == (not share)


@pytest.mark.parametrize("share", [0.1, torch.tensor(0.0)])
def test_chance_cannot_be_traced(share) -> None:
    with pytest.raises(GraphError, match="not depend on the values of tensors"):
        tofu.torch.trace(Dropped("lt", share), (torch.randn(3, 4),))


CHANGES = {
    "another": lambda drawn: drawn.neg(),
    "in place": lambda drawn: drawn.sub_(0.5),
    "as an output": lambda drawn: torch.sub(drawn, 0.5, out=drawn),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_number_that_was_changed_is_not_known(change) -> None:
    class Changed(nn.Module):
        def forward(self, data):
            return data if change(torch.rand([])) < 0 else data + 1

    with pytest.raises(GraphError):
        tofu.torch.trace(Changed(), (torch.randn(3, 4),))


@pytest.mark.parametrize("name", NAMES)
def test_models_are_traced_in_training(name) -> None:
    transformers = pytest.importorskip("transformers")
    model, inputs = made(name, transformers)
    tofu.torch.trace(model.train(), inputs)
