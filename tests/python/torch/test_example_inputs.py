"""Example inputs are a tensor, a tuple, or a dict by name, everywhere."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import ConfigError
from tofu.torch.commands.loading import load
from tofu.torch.tracing.example_inputs import by_position_and_name

from .ranks import on_ranks
from .scripts import Wrap


class Pair(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, data, target):
        return nn.functional.mse_loss(self.layer(data), target)


def batch() -> dict[str, Any]:
    return {"data": torch.randn(6, 4), "target": torch.randn(6, 4)}


def named() -> tuple[nn.Module, dict[str, Any]]:
    """A module and its inputs by name, for `load`."""
    return Pair(), batch()


def test_inputs_become_those_by_position_and_by_name() -> None:
    one, other = torch.ones(1), torch.ones(2)
    assert by_position_and_name(one) == ((one,), {})
    assert by_position_and_name([one, other]) == ((one, other), {})
    assert by_position_and_name((one,), {"x": other}) == ((one,), {"x": other})
    assert by_position_and_name({"x": one}, {"y": other}) == ((), {"x": one, "y": other})
    assert by_position_and_name(collections.UserDict(x=one)) == ((), {"x": one})
    for wrong in (None, "text", 3):
        with pytest.raises(ConfigError, match=r"expected a tensor, a tuple .*, or a dict"):
            by_position_and_name(wrong)


def test_a_dict_of_a_loader_is_planned_and_loaded() -> None:
    assert tofu.torch.plan(Pair(), batch(), mesh=(2,)).bytes > 0
    _, args, kwargs = load(f"{__name__}:named")
    assert args == () and kwargs.keys() == {"data", "target"}


def by_name(wrap: Wrap) -> dict[str, Any]:
    given = batch()
    model = wrap(Pair(), given)
    loss = model(**given)
    loss.backward()
    return {"loss": loss, "gradient": model.layer.weight.grad}


def alone(wrap: Wrap) -> dict[str, Any]:
    data = torch.randn(6, 4)
    model = wrap(nn.Linear(4, 2), data)
    return {"made": model(data)}


def test_a_dict_and_a_tensor_train() -> None:
    on_ranks(2, trained)


def trained() -> None:
    for script in (by_name, alone):
        torch.manual_seed(0)
        whole = script(lambda model, _: model)
        torch.manual_seed(0)
        parts = script(lambda model, inputs: tofu.torch.parallelize(model, (2,), inputs))
        for key, value in whole.items():
            found = parts[key]
            found = found.full_tensor() if hasattr(found, "full_tensor") else found
            torch.testing.assert_close(found, value)
