"""Every strategy of every operator that small modules call gives the whole operator's result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tofu.torch.commands import verify
from tofu.torch.commands.models import MODELS, SMALL
from tofu.torch.commands.verify import verify_module

# Models that every run verifies; for others, the rotating sample is enough.
ALWAYS = ("gpt", "unet", "functions")


def every(names: Sequence[str]) -> list[object]:
    return [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.whole) for n in names]


@pytest.mark.parametrize("name", every(SMALL))
def test_parts_are_the_whole(name) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name](torch.float64)
    report = verify_module(model, inputs)
    assert report.false == []
    assert report.undescribed == set()
    assert report.strategies > 100


class Masked(torch.nn.Module):
    """Puts values where masks of one dimension and of several are true."""

    def forward(self, data, mask):
        first, second, third = (data * k for k in (1.0, 2.0, 3.0))
        first[mask] = 0.5
        second[mask] = torch.ones(8, dtype=data.dtype)
        third[:, mask[0]] = 0.25
        return (first + second + third).square().sum()


def test_parts_of_masks_are_the_whole() -> None:
    torch.manual_seed(0)
    data = torch.randn(4, 6, 8, dtype=torch.float64, requires_grad=True)
    report = verify_module(Masked(), (data, torch.rand(4, 6) > 0.5))
    assert report.false == []
    assert report.undescribed == set()
    assert "aten.index_put.default" in report.operators


class Cumulated(torch.nn.Module):
    def forward(self, data):
        return data.cumsum(1)


def test_a_false_strategy_is_found_in_its_own_module_only(monkeypatch) -> None:
    """A sum up to each element, as if every element were computed alone."""
    described = verify.row_for

    def row_for(op, attrs, ins, outs):
        return described("aten.neg.default" if "cumsum" in op else op, attrs, ins, outs)

    monkeypatch.setattr(verify, "row_for", row_for)
    data = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    split = "aten.cumsum.default[(4, 6)], split by "
    false = verify_module(Cumulated(), (data,)).false
    assert [each.partition(": differs")[0] for each in false] == [
        f"{split}{names}: output 0"
        for names in ("i1 in 2", "i1 in 4", "i0 in 2, i1 in 2", "i1 in 2, i1 in 2")
    ]
    monkeypatch.undo()
    assert verify_module(Cumulated(), (data,)).false == []


class Rectified(torch.nn.Module):
    def forward(self, data):
        return data.relu()


def test_an_operator_that_passes_no_terms_through_is_found(monkeypatch) -> None:
    data = torch.randn(4, 6, dtype=torch.float64)
    assert verify_module(Rectified(), (data,)).false == []
    monkeypatch.setattr(verify, "linear_inputs", lambda trace: {frozenset({0})})
    (false,) = verify_module(Rectified(), (data,)).false
    assert false.startswith("aten.relu.default[(4, 6)], terms of inputs [0]: output 0: differs by")
