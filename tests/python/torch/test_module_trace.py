"""The joint graph of a module, and the errors of modules without one."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import GraphError
from tofu.plans.layers import direction_of, layers_of
from tofu.torch.commands.models import MODELS


def test_variables_and_results_have_their_names() -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    traced = tofu.torch.trace(model, inputs)
    kinds = {v.name: v.kind for v in traced.variables}
    assert kinds["first.weight"] == "parameter" and kinds["batch.running_var"] == "buffer"
    assert kinds["input1"] == "input" and kinds["tangent0"] == "tangent"
    assert set(traced.gradients) == {name for name, _ in model.named_parameters()}
    assert set(traced.mutations) == {name for name, _ in model.named_buffers()}
    assert len(traced.outputs) == 1 and traced.differentiable == (0,)


class Nested(nn.Module):
    """Submodules that are called twice, call each other, and compute themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))

    def forward(self, data):
        for layer in self.layers:
            data = data + layer(layer(data))
        return (data * 2).sum()


def test_operators_are_named_after_the_submodules_that_call_them() -> None:
    traced = tofu.torch.trace(Nested(), (torch.ones(3, 4),))
    forward = [o.name for o in traced.operators if o.name in traced.forward]
    backward = [o.name for o in traced.operators if o.name not in traced.forward]
    assert forward == [
        name
        for k, add in (("0", "add"), ("1", "add_1"))
        for name in (
            f"layers.{k}.0.t", f"layers.{k}.0.addmm", f"layers.{k}.1.relu",
            f"layers.{k}.0.t_1", f"layers.{k}.0.addmm_1", f"layers.{k}.1.relu_1", f"Nested.{add}",
        )
    ] + ["Nested.mul", "Nested.sum"]  # fmt: skip
    assert {"layers.0.0.mm_backward", "layers.1.1.threshold_backward"} <= set(backward)
    assert all("_backward" in name or name.endswith("/gradient") for name in backward)


def test_layers_and_directions_of_a_module_are_its_own() -> None:
    plan = tofu.torch.plan(Nested(), (torch.ones(4, 4),), mesh=(2,), optimizer="adam").details
    layers = {layer.name for layer in layers_of(plan)}
    assert layers == {"input0", "tangent0", "Nested"} | {
        f"layers.{k}.{j}" for k in range(2) for j in range(2)
    }
    found = {operator.node: direction_of(operator) for operator in plan.operators}
    assert found["layers.0.0.weight/update"] == "update"
    assert found["layers.0.0.addmm"] == "forward"
    assert found["layers.0.0.mm_backward"] == "backward"


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


def test_a_constant_without_elements_is_no_variable() -> None:
    class Gathering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.tensor([])
            return torch.cat([found, self.layer(x).flatten()])

    model, x = Gathering(), torch.ones(2, 4)
    assert {v.kind for v in tofu.torch.trace(model, (x,)).variables} == {
        "parameter", "input", "tangent"
    }  # fmt: skip
    assert tofu.torch.plan(model, (x,), mesh=(2,)).details.total_bytes >= 0


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


def test_code_that_fails_only_under_a_compiler_is_traced_without() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = None if torch.compiler.is_compiling() else torch.ones(x.shape)
            return self.layer(x * mask)  # type: ignore[operator]

    assert tofu.torch.trace(Masked(), (torch.ones(2, 4),)).operators


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
