"""Losses of sequences, whose labels' lengths are in tensors, are as in plain torch."""

from __future__ import annotations

import itertools
from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tofu.torch
from tofu.errors import GraphError

from .ranks import on_ranks
from .scripts import Wrap, compare


class Speech(nn.Module):
    """A layer with a loss of labels, of which some are padding."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.layer, self.kind, self.options = nn.Linear(5, 7), kind, options

    def forward(self, data, labels, steps):
        logs = self.layer(data).log_softmax(-1).transpose(0, 1)
        kept = labels >= 0
        if self.kind == "selected":
            labels = labels.masked_select(kept)
        elif self.kind == "indexed":
            labels = labels[kept]
        elif self.kind == "in a line":
            labels = labels.flatten()
        return F.ctc_loss(logs, labels, steps, kept.sum(-1), **self.options)


def inputs() -> tuple[Any, ...]:
    """Six samples; the last one has too few steps for its labels."""
    labels = torch.randint(1, 7, (6, 4))
    labels[2, 3:] = labels[4, 1:] = -100
    return torch.randn(6, 9, 5), labels, torch.tensor([9, 8, 9, 7, 9, 2])


def script(kind: str, reduction: str) -> Callable[[Wrap], dict[str, Any]]:
    def run(wrap: Wrap) -> dict[str, Any]:
        given = inputs()
        model = wrap(Speech(kind, reduction=reduction, zero_infinity=True), *given)
        loss = model(*given)
        (loss.sum() * 1.5).backward()
        return {"loss": loss, "gradient": model.layer.weight.grad}

    run.__qualname__ = f"{kind}, {reduction}"
    return run


def test_losses_of_sequences_are_as_in_plain_torch() -> None:
    kinds = itertools.product(("selected", "indexed", "padded"), ("mean", "sum", "none"))
    on_ranks(2, compare, *itertools.starmap(script, kinds))


def test_ranks_share_the_samples() -> None:
    found = tofu.torch.plan(Speech("selected"), inputs(), mesh=(2,))
    assert not found.undescribed
    assert set(found.placements["inputs"].values()) == {"(Shard(0),)"}


def test_labels_in_a_line_are_refused() -> None:
    with pytest.raises(GraphError, match=r"F\.ctc_loss.*cannot be traced"):
        tofu.torch.trace(Speech("in a line"), inputs())


def test_other_uses_of_selected_labels_are_refused() -> None:
    class Counts(Speech):
        def forward(self, data, labels, steps):
            return labels[labels >= 0].sum() * self.layer(data).mean()

    with pytest.raises(GraphError, match=r"labels >= 0.*cannot be traced"):
        tofu.torch.trace(Counts("selected"), inputs())
