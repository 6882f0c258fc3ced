"""The joint graph of a module, and what is said of a module that has none."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import GraphError
from tofu.torch.models import MODELS


def test_variables_and_results_have_their_names() -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    traced = tofu.torch.trace(model, inputs)
    kinds = {v.name: v.kind for v in traced.variables}
    assert kinds["first.weight"] == "parameter" and kinds["batch.running_var"] == "buffer"
    assert kinds["input1"] == "input" and kinds["tangent0"] == "tangent"
    assert set(traced.gradients) == {name for name, _ in model.named_parameters()}
    assert set(traced.mutations) == {name for name, _ in model.named_buffers()}
    assert len(traced.outputs) == 1 and traced.differentiable == (0,)


def test_backward_operators_share_a_number_with_forward_ones() -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    traced = tofu.torch.trace(model, inputs)
    forward = {o.sequence for o in traced.operators if o.name in traced.forward}
    backward = [o for o in traced.operators if o.name not in traced.forward]
    assert backward and all(o.sequence in forward for o in backward)


def test_a_frozen_parameter_has_no_gradient() -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    model.first.weight.requires_grad_(False)
    assert "first.weight" not in tofu.torch.trace(model, inputs).gradients


class Branches(nn.Module):
    """Control flow that depends on data."""

    def forward(self, data):
        if data.sum() > 0:  # the line of the error
            return data * 2
        return data


def test_the_users_line_is_named() -> None:
    with pytest.raises(GraphError) as caught:
        tofu.torch.trace(Branches(), (torch.ones(4, requires_grad=True),))
    assert re.search(
        r"test_module_trace\.py:\d+: if data\.sum\(\) > 0:  # the line", str(caught.value)
    )
    assert "\n" not in str(caught.value)


class ByData(nn.Module):
    """A shape that depends on data."""

    def forward(self, data):
        return data[data > 0].sum()


def test_a_shape_that_depends_on_data_is_rejected() -> None:
    with pytest.raises(GraphError, match=r"data\[data > 0\]"):
        tofu.torch.trace(ByData(), (torch.ones(4, requires_grad=True),))


class Changes(nn.Module):
    """Changes its input."""

    def forward(self, scale, data):
        return data.add_(1).sum() * scale


def test_an_input_that_forward_changes_is_named() -> None:
    with pytest.raises(GraphError, match="Changes: forward changes input 1 in place; expected"):
        tofu.torch.trace(Changes(), (torch.ones(1, requires_grad=True), torch.ones(4)))
