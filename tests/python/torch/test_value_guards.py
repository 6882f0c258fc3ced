"""Checks of values that only raise are passed in a trace, and other decisions are refused."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import GraphError

from .ranks import on_ranks
from .scripts import Wrap, compare

LIMIT = 10


class Checked(nn.Module):
    """A layer whose outputs and inputs are checked."""

    def __init__(self, check: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.layer, self.check = nn.Linear(4, 4), check

    def forward(self, data, labels):
        hidden = self.layer(data)
        self.check(hidden, labels)
        return hidden.square().mean()


def too_large(_, labels):
    if labels is not None and labels.max() >= LIMIT:
        raise ValueError("too large")


def as_numbers(_, labels):
    if labels.max().item() >= LIMIT or labels.min().item() < 0:
        message = "out of bounds"
        raise ValueError(message)
    assert labels.max().item() > LIMIT // 2, "no large label"


def of_all(hidden, labels):
    checks = True
    if (checks and not (labels < LIMIT).all()) or hidden.isnan().any():
        raise ValueError
    if any(each.isnan().any() for each in (hidden, labels)):
        raise ValueError


def asserted(hidden, labels):
    assert not hidden.isnan().any(), "not finite"
    assert (
        labels.min() >= 0
        and labels.max() < LIMIT
    )  # fmt: skip
    assert torch.equal(labels, labels) and all((x < 1e9).all() for x in (hidden, labels))


def inside_torch(hidden, _):
    torch.distributions.Normal(hidden, hidden.abs() + 1, validate_args=True)


def turned(_, labels):
    if bool(labels.max() < LIMIT) is False:
        raise ValueError


def decides(hidden, labels):
    if labels.max() < LIMIT:
        hidden.mul_(2)


def decides_and_raises(hidden, labels):
    if labels.max() < LIMIT:
        hidden.mul_(2)
    else:
        raise ValueError


def catches(hidden, labels):
    try:
        if labels.max() >= LIMIT:
            raise ValueError
    except ValueError:
        hidden.mul_(2)


def solves(hidden, labels):
    matrix = torch.eye(4) * 8 + labels.float().mean()
    hidden.add_(torch.linalg.solve(torch.linalg.inv(matrix), torch.linalg.cholesky(matrix)).sum())


def of_another_kind(hidden, labels):
    try:
        solves(hidden, labels)
    except KeyError:
        hidden.mul_(2)


def falls_back(hidden, labels):
    try:
        solves(hidden, labels)
    except RuntimeError:
        hidden.mul_(2)


def inputs() -> tuple[Any, Any]:
    return torch.randn(6, 4), torch.arange(6)


CHECKS = too_large, as_numbers, of_all, asserted, inside_torch, solves, of_another_kind


@pytest.mark.parametrize("check", CHECKS)
def test_checks_that_only_raise_are_passed_with_a_warning(check) -> None:
    with pytest.warns(UserWarning, match=r"\.py:\d+: .*planned calls do not check this"):
        tofu.torch.trace(Checked(check), inputs())


class Solves(nn.Module):
    """Solves equations with a matrix of its own, by an inverse and by factors."""

    def __init__(self) -> None:
        super().__init__()
        self.root = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, data):
        matrix = self.root @ self.root.mT + torch.eye(4)
        found = torch.linalg.solve(matrix[0], data.T) + torch.linalg.inv(matrix)[1] @ data.T
        return found + torch.cholesky_solve(data.T, torch.linalg.cholesky(matrix))


def solved(wrap: Wrap) -> dict[str, Any]:
    data = torch.randn(6, 4)
    model = wrap(Solves(), data)
    loss = model(data).square().mean()
    loss.backward()
    return {"loss": loss, "gradient": model.root.grad}


def test_solvers_give_what_plain_torch_gives() -> None:
    on_ranks(2, compare, solved)


@pytest.mark.parametrize("check", [turned, decides, decides_and_raises, catches, falls_back])
def test_other_decisions_by_values_are_refused(check) -> None:
    with pytest.raises(GraphError, match="cannot be traced"):
        tofu.torch.trace(Checked(check), inputs())
