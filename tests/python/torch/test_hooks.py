"""Hooks, and what else parameters have before they are distributed, are as in plain torch."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import ConfigError, GraphError

from .ranks import on_ranks
from .scripts import Wrap, compare

FEATURES: dict[str, Any] = {}


class Collector:
    """Keeps the outputs of modules, and counts them."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.calls = 0

    def __call__(self, module, args, output):
        self.outputs.append(output)
        self.calls += 1

    def method(self, module, args, output):
        self.outputs.append(output.detach())


def into_a_global(name, module, args, output):
    FEATURES[name] = output.detach()


def scaled(module, args):
    return (args[0] * 2,)


def required(module, args, output):
    output.requires_grad_(True)


def hooked(register: Callable[[Any, Any, Collector], Any]) -> Callable[[Wrap], dict[str, Any]]:
    """A script that registers a hook before and another after it distributes a module."""

    def script(wrap: Wrap) -> dict[str, Any]:
        FEATURES.clear()
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2))
        before, after = Collector(), Collector()
        register(model[0], "one", before)
        data = torch.randn(6, 4)
        model = wrap(model, data)
        register(model[2], "two", after)
        result: dict[str, Any] = {}
        for step in range(2):
            loss = model(data).square().mean()
            kept = [*before.outputs, *after.outputs]
            (loss + sum(x.square().mean() for x in kept)).backward()
            result.update({f"{step} {k}": x for k, x in enumerate([*kept, *FEATURES.values()])})
            before.outputs.clear()
            after.outputs.clear()
        result["calls"] = before.calls + after.calls
        return {**result, **{name: p.grad for name, p in model.named_parameters()}}

    return script


def test_hooks_of_the_forward_pass_are_as_in_plain_torch() -> None:
    on_ranks(2, compare, *map(hooked, (
        lambda module, name, collector: module.register_forward_hook(collector),
        lambda module, name, collector: module.register_forward_hook(collector.method),
        lambda module, name, collector: module.register_forward_hook(
            functools.partial(into_a_global, name)),
        lambda module, name, collector: module.register_forward_pre_hook(scaled),
        lambda module, name, collector: module.register_forward_hook(
            lambda module, args, output: output + args[0].mean()),
        lambda module, name, collector: module.register_forward_hook(
            lambda module, args, output: collector.outputs.append(output)),
        lambda module, name, collector: (
            module.requires_grad_(False), module.register_forward_hook(required)),
    )))  # fmt: skip


def counting() -> Callable[..., None]:
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    return count


def of_gradients(module, args, output):
    output.register_hook(lambda gradient: FEATURES.update(gradient=gradient))


@pytest.mark.parametrize(("hook", "message"), [
    (counting(), "calls' in a way that a planned call cannot repeat: it changes it in place"),
    (of_gradients, "FEATURES' in a way .* changes it in the backward pass"),
])  # fmt: skip
def test_hooks_with_other_effects_are_refused(hook, message) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model[0].register_forward_hook(hook)
    with pytest.raises(GraphError, match=message):
        tofu.torch.plan(model, (torch.randn(6, 4),), mesh=(2,))
    assert not FEATURES


# --- Before a module is distributed ----------------------------------------------------------


def layer() -> tuple[Any, torch.Tensor]:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(6, 4)


def with_parameters_hooks(wrap: Wrap) -> dict[str, Any]:
    model, data = layer()
    weight, bias, seen = model[0].weight, model[0].bias, []
    weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm().item()))
    weight.note = "mine"
    handle = bias.register_hook(lambda gradient: gradient * 5)
    model(data).sum().backward()
    model = wrap(model, data)
    model(data).sum().backward()
    handle.remove()
    model(data).sum().backward()
    return {
        "weight": model[0].weight.grad,
        "bias": model[0].bias.grad,
        "seen": [round(each, 6) for each in seen],
        "note": model[0].weight.note,
    }


def with_an_optimizer(wrap: Wrap) -> dict[str, Any]:
    model, data = layer()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    for step in range(3):
        if step == 1:
            model = wrap(model, data)
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    moments = optimizer.state[model[0].weight]
    return {**dict(model.named_parameters()), "moments": moments["exp_avg"]}


def of_the_backward_pass(wrap: Wrap) -> dict[str, Any]:
    model, data = layer()
    seen: list[Any] = []
    model = wrap(model, data.requires_grad_())
    model.register_full_backward_hook(lambda module, made, given: (made[0] * 2,))
    model.register_full_backward_hook(lambda module, made, given: seen.append(given[0].sum()))
    model.register_full_backward_pre_hook(lambda module, given: (given[0] * 3,))
    model(data).square().mean().backward()
    return {"data": data.grad, "seen": seen[0], "weight": model[0].weight.grad}


def test_hooks_gradients_and_optimizers_from_before_are_as_in_plain_torch() -> None:
    on_ranks(2, compare, with_parameters_hooks, with_an_optimizer, of_the_backward_pass)


# --- Outputs, and parameters that a loss does not depend on -----------------------------------


class Heads(nn.Module):
    """Two heads on one body; the third output is computed from the second."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, data):
        hidden = torch.tanh(self.body(data))
        two = self.two(hidden)
        return self.one(hidden), two, two.square().mean()


def of_outputs(wrap: Wrap) -> dict[str, Any]:
    """Hooks of outputs; an output that no loss depends on, and one that is written to."""
    data, seen = torch.randn(6, 4), []
    model = wrap(Heads(), data)
    one, two, last = model(data)
    one.register_hook(lambda gradient: seen.append("one") or gradient * 2)
    two.register_hook(lambda gradient: seen.append("two") or gradient * 2)
    two.retain_grad()
    one.mul_(2)[0].fill_(3)
    last.detach_()
    (one.mean() + last).backward()
    return {"seen": seen, "two": two.grad, **{name: p.grad for name, p in model.named_parameters()}}


def of_some_parameters(wrap: Wrap) -> dict[str, Any]:
    """Hooks of parameters, some of which the loss does not depend on."""
    data, model, seen = torch.randn(6, 4), Heads(), []

    def register(parameters: Any) -> Any:
        for name, p in parameters:
            handles.append(p.register_hook(lambda gradient, n=name: seen.append(n) or gradient * 2))
            handles.append(
                p.register_post_accumulate_grad_hook(lambda _, n=name: seen.append(f"after {n}"))
            )

    handles: list[Any] = []
    register(model.body.named_parameters())
    register(model.two.named_parameters())
    model = wrap(model, data)
    register(model.one.named_parameters())
    model(data)[0].mean().backward()
    for handle in handles:
        handle.remove()
    model(data)[1].mean().backward()
    return {"seen": sorted(seen), **{name: p.grad for name, p in model.named_parameters()}}


def of_nodes(wrap: Wrap) -> dict[str, Any]:
    """Hooks of several tensors and of nodes of autograd, and a gradient of an edge."""
    data, seen = torch.randn(6, 4, requires_grad=True), []
    model = wrap(Heads(), data)
    one, two, _ = model(data)
    weight, graph = model.one.weight, torch.autograd.graph
    edge = graph.get_gradient_edge(weight)
    (of_edge,) = torch.autograd.grad(one.mean(), [edge], retain_graph=True)
    tensors = [*model.parameters(), data, one, two]
    graph.register_multi_grad_hook(tensors, lambda given: seen.append([x is None for x in given]))
    graph.register_multi_grad_hook(tensors, lambda _: seen.append("any"), mode="any")
    node = weight.expand_as(weight).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: seen.append(type(node).__name__))
    one.mean().backward()
    return {"seen": sorted(map(str, seen)), "edge": of_edge, "data": data.grad}


def test_hooks_run_for_what_a_loss_depends_on() -> None:
    on_ranks(2, compare, of_outputs, of_some_parameters, of_nodes)


@pytest.mark.parametrize("want", [torch.Tensor.retain_grad, lambda made: made.register_hook(print)])
def test_gradients_of_outputs_that_flow_inside_are_refused(want) -> None:
    on_ranks(1, wanted_inside, want)


def wanted_inside(want: Callable[[Any], Any]) -> None:
    data = torch.randn(6, 4)
    model = tofu.torch.parallelize(Heads(), (1,), data)
    _, two, last = model(data)
    want(two)
    with pytest.raises(GraphError, match=r"Heads: output 1 retains .* through output 2"):
        last.backward()


def test_a_hook_of_several_tensors_from_before_is_refused() -> None:
    on_ranks(1, counted_before)


def counted_before() -> None:
    model, data = layer()
    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), print)
    with pytest.raises(ConfigError, match="register it after parallelize"):
        tofu.torch.parallelize(model, (1,), data)


def test_a_forward_that_calls_the_distributed_one_is_refused() -> None:
    on_ranks(1, replaced_forward)


def replaced_forward() -> None:
    model, data = layer()
    model = tofu.torch.parallelize(model, (1,), data)
    own = model.forward
    model.forward = lambda data: own(data) * 2
    with pytest.raises(GraphError, match="forward was replaced after parallelize"):
        model(data)


def with_lists(wrap: Wrap) -> dict[str, Any]:
    """Groups of an optimizer, names and another module's weight are those of before."""
    model, data = layer()
    weight, named, other = model[0].weight, dict(model.named_parameters()), nn.Linear(4, 4)
    other.weight = weight
    groups = [{"params": [weight], "weight_decay": 0.5}, {"params": [model[0].bias]}]
    model = wrap(model, data)
    optimizer = torch.optim.AdamW([*groups, {"params": other.bias}], 0.1)
    for _ in range(2):
        loss = model(data).square().mean() + other(data).mean() + 0.1 * weight.square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(named.values(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return {"loss": loss, "copy": copy.deepcopy(weight), "shape": weight.shape, **named}


class Penalised(nn.Module):
    """Reaches its weight by other names, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        weight = self.layer.weight
        self.listed, self.tuple, self.nested = [weight], (weight,), {"l2": [weight]}

    def forward(self, data):
        other = self.listed[0].norm() + self.tuple[0].sum() + self.nested["l2"][0].square().sum()
        return self.layer(data).square().mean() + other


def with_other_names(wrap: Wrap) -> dict[str, Any]:
    data = torch.randn(6, 4)
    model = wrap(Penalised(), data)
    for _ in range(2):
        loss = model(data)
        loss.backward()
    return {"loss": loss, "gradient": model.layer.weight.grad}


def test_other_names_of_parameters_are_as_in_plain_torch() -> None:
    on_ranks(2, compare, with_lists, with_other_names)
