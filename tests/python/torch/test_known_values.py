"""Values of tensors that are made of numbers alone are known in a trace, and no others."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tofu.torch
from tofu.errors import GraphError

MULTIPLIES = torch.ops.aten.mul.Tensor


class Asks(nn.Module):
    """A layer whose output, (4, 4), depends on a value."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.ask = nn.Linear(4, 4), ask

    def forward(self, data):
        hidden = self.layer(data)
        return hidden * 2 if self.ask(hidden) else hidden * 3


def a_mask_of_ones(hidden):
    return not (torch.ones(len(hidden), 4, device=hidden.device) == 0).any()


def a_mask_like_another(hidden):
    return torch.ones_like(hidden, dtype=torch.long).sum().item() == 16


def places(hidden):
    place = torch.arange(0, len(hidden)) * 2
    return len(torch.arange(place[-1], place[0] - 1, -1)) == 7 and int(place.max()) == 6


def halves(_):
    return float(torch.arange(0, 2, 0.5, dtype=torch.float32)[::2].cumsum(0)[-1]) == 1.0


def written(hidden):
    mask = torch.ones(4)
    mask[0] = hidden.detach().sum()
    return mask.sum() > 3


def written_by_another_name(hidden):
    mask = torch.ones(4, 4)
    mask.view_as(hidden).add_(hidden.detach())
    return mask.sum() > 3


def added(hidden):
    mask = torch.ones(4)
    mask += hidden.detach().sum()
    return mask.sum() > 3


def written_in_place(hidden):
    mask = -torch.ones(4, 4)
    F.relu(mask.view_as(hidden), inplace=True)
    return mask.sum() < 0


def dropped(_):
    return F.dropout(torch.ones(4), 0.5).sum() > 1


def drawn(_):
    return torch.bernoulli(torch.ones(4) * 0.5).sum() > 1


def of_data(hidden):
    return hidden.sum() > 0


@pytest.mark.parametrize("ask", [a_mask_of_ones, a_mask_like_another, places, halves])
def test_values_made_of_numbers_are_known(ask) -> None:
    model, data = Asks(ask), torch.randn(4, 4)
    assert ask(data)
    found = tofu.torch.trace(model, (data,))
    factors = {o.arguments["other"] for o in found.operators if o.target is MULTIPLIES}
    assert factors == {2}


@pytest.mark.parametrize("ask", [
    written, written_by_another_name, added, written_in_place, dropped, drawn, of_data,
])  # fmt: skip
def test_other_values_are_refused(ask) -> None:
    with pytest.raises(GraphError, match="cannot be traced"):
        tofu.torch.trace(Asks(ask), (torch.randn(4, 4),))
