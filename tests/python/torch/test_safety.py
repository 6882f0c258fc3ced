"""Habits of torch's users: a distributed module behaves as a plain one, or says why not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import tofu.torch
from tofu.errors import ConfigError, GraphError, PlanError
from tofu.torch.tiles.start_values import _groups, _Run, initial_values

from .ranks import on_ranks
from .training import difference

EQUAL = 1e-9


class Mlp(nn.Module):
    """Has an attribute and a buffer that its output depends on, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 1)
        self.register_buffer("scale", torch.ones(()))
        self.alpha = 1.0
        self.options = {"power": [1]}
        self.calls = 0
        self.called = False

    def forward(self, data):
        self.calls += 1
        self.called = True
        made = self.second(torch.tanh(self.first(data)) * self.alpha * self.scale)
        return (made ** self.options["power"][0]).square().mean()


def made(kind: Callable[[], nn.Module] = Mlp) -> tuple[Any, Any, Any]:
    """A module, the same distributed over two ranks, and its input."""
    torch.manual_seed(0)
    whole = kind().double()
    data = torch.randn(8, 8, dtype=torch.float64)
    return whole, tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,)), data


def assert_alike(whole: Any, parts: Any, data: Any) -> None:
    assert difference(whole(data).detach(), parts(data).detach()) <= EQUAL


# --- Changes of the module ------------------------------------------------------------------


def changed() -> None:
    whole, parts, data = made()
    assert_alike(whole, parts, data)
    programs = parts.forward.programs
    assert len(programs) == 1
    for model in (whole, parts):
        model.alpha = 3.0
    assert_alike(whole, parts, data)
    for model in (whole, parts):
        model.options["power"][0] = 2
    assert_alike(whole, parts, data)
    for model in (whole, parts):
        model.scale = torch.tensor(2.0, dtype=torch.float64)
    assert_alike(whole, parts, data)
    for model in (whole, parts):
        model.second.bias = None
    assert_alike(whole, parts, data)
    for model in (whole, parts):
        model.second = nn.Identity()
    assert_alike(whole, parts, data)
    assert len(programs) == 5  # a buffer's new value needs none
    assert_alike(whole, parts, data)
    assert len(programs) == 5
    assert parts.calls == whole.calls == 7
    assert parts.called


def test_a_changed_module_is_traced_again() -> None:
    on_ranks(2, changed)


class Saving(Mlp):
    """Saves itself by a method of the name that Hugging Face's models have."""

    def save_pretrained(self, path):
        torch.save(self.state_dict(), path)


def called_first() -> None:
    whole, parts, data = made(Saving)
    assert_alike(whole, parts, data)
    assert len(parts.forward.programs) == 1


def test_the_first_call_runs_what_parallelize_planned() -> None:
    on_ranks(2, called_first)


def replaced() -> None:
    whole, parts, data = made()
    zeros = {name: torch.zeros_like(tensor) for name, tensor in parts.state_dict().items()}
    assert float(parts(data)) > 0
    parts.load_state_dict(zeros, assign=True)
    assert float(parts(data)) == 0
    for model in (whole, parts):
        torch.manual_seed(1)
        model.first = nn.Linear(8, 16).double()
        model.second.weight = nn.Parameter(torch.ones(1, 16, dtype=torch.float64))
        model.second.bias = nn.Parameter(torch.ones(1, dtype=torch.float64))
        model.scale = torch.ones((), dtype=torch.float64)
        model(data).backward()
    assert_alike(whole, parts, data)
    for p, q in zip(whole.parameters(), parts.parameters()):
        assert difference(p.grad, q.grad) <= EQUAL
    parts.second.bias = nn.Parameter(torch.full((1,), float(dist.get_rank())).double())
    with pytest.raises(PlanError, match="has other values on rank 1 than on rank 0"):
        parts(data)


def test_replaced_parameters_and_buffers_are_those_that_count() -> None:
    on_ranks(2, replaced)


def copied() -> None:
    whole, parts, data = made()
    parts(data).backward()
    other = copy.deepcopy(parts)
    averaged = torch.optim.swa_utils.AveragedModel(parts)
    averaged.update_parameters(parts)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert float(other(data)) == 0
    whole(data).backward()
    for p, q in zip(copy.deepcopy(whole).parameters(), other.parameters()):
        assert p.grad is None and q.grad is None
    for p, q in zip(whole.parameters(), parts.parameters()):
        assert difference(p.grad, q.grad) <= EQUAL
    assert_alike(whole, parts, data)
    assert_alike(whole, averaged, data)


def test_a_copy_has_parameters_of_its_own() -> None:
    on_ranks(2, copied)


# --- Effects that a trace would not repeat --------------------------------------------------


class Moving(nn.Module):
    """Depends on an attribute that it changes in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)
        self.rate = 1.0

    def forward(self, data):
        self.rate *= 0.5
        return (self.inner(data) * self.rate).sum()


class Chance(nn.Module):
    """Depends on Python's random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, data):
        return (self.inner(data) * random.random()).sum()


class Returning(nn.Module):
    """Returns an object that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, data):
        return self.inner(data).sum(), random.Random()


def refused() -> None:
    state = random.getstate()
    for kind, message in [
        (Moving, "forward keeps 'rate' for later calls and depends on it"),
        (Chance, "forward draws numbers of Python's module random"),
        (Returning, "forward returns a Random; expected tensors"),
    ]:
        with pytest.raises(GraphError, match=message):
            made(kind)
    assert random.getstate() == state
    _, parts, data = made()
    handle = parts.first.register_full_backward_hook(lambda *_: None)
    with pytest.raises(GraphError, match=r"the hook .*lambda.* of the submodule 'first'"):
        parts(data)
    handle.remove()
    seen = []
    parts.register_forward_hook(lambda *_: seen.append(1))
    parts.first.weight.register_hook(lambda gradient: gradient * 0)
    for _ in range(2):
        parts(data).backward()
    assert len(seen) == 2
    assert float(parts.first.weight.grad.full_tensor().norm()) == 0


def test_what_a_trace_would_not_repeat_is_refused() -> None:
    on_ranks(2, refused)


def twice() -> None:
    torch.manual_seed(0)
    whole = Mlp().double()
    data = torch.randn(8, 8, dtype=torch.float64, requires_grad=True)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,))
    expected = torch.autograd.grad(whole(data), data)[0]
    (gradient,) = torch.autograd.grad(parts(data), data, create_graph=True)
    assert difference(expected, gradient.detach()) <= EQUAL
    with pytest.raises(GraphError, match="gradients of gradients are not planned"):
        gradient.square().sum().backward()
    parameters = list(parts.parameters())
    loss = parts(data)
    gradients = torch.autograd.grad(loss, [data, *parameters], create_graph=True)
    for penalty, chosen in (
        (gradients[1].norm(), None),  # of a parameter
        (gradients[0].norm(), parameters),
    ):
        with pytest.raises(GraphError, match="gradients of gradients are not planned"):
            (loss + penalty).backward(inputs=chosen, retain_graph=True)
    with pytest.raises(GraphError, match="gradients of gradients are not planned"):
        torch.autograd.grad(gradients[0].sum(), data, allow_unused=True)


def transformed() -> None:
    _, parts, data = made()
    functional = torch.func.functional_call(parts, dict(parts.named_parameters()), data)
    assert difference(parts(data).detach(), functional.detach()) == 0
    data.requires_grad_()
    for transform in (
        lambda: torch.func.grad(parts)(data),
        lambda: torch.func.vmap(parts)(data),
        lambda: torch.autograd.grad(parts(data), data, torch.ones(2), is_grads_batched=True),
    ):
        with pytest.raises(GraphError, match=r"Mlp: torch\.func\.grad, vmap, jvp and others"):
            transform()


def test_transformations_of_calls_are_refused() -> None:
    on_ranks(2, transformed)


def test_gradients_of_gradients_are_refused() -> None:
    on_ranks(2, twice)


# --- Batches and random numbers -------------------------------------------------------------


def other_batches() -> None:
    whole, parts, data = made()
    mine = data[4 * dist.get_rank() :][:4]
    with pytest.raises(PlanError, match=r"tensor 0 of the call .* other values on rank 1"):
        parts(mine)
    batch = tofu.torch.whole_batch({"data": [mine, 3]})
    assert torch.equal(batch["data"][0], data) and batch["data"][1] == 3
    assert_alike(whole, parts, batch["data"][0])
    uneven = tofu.torch.whole_batch(data[: dist.get_rank() + 1])
    assert torch.equal(uneven, torch.cat([data[:1], data[:2]]))


def test_ranks_have_the_same_batch_or_join_their_own() -> None:
    on_ranks(2, other_batches)


def reseeded() -> None:
    torch.manual_seed(0)
    data = torch.ones(64, 8, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).double()
    parts = tofu.torch.parallelize(model, (2,), (data,))
    torch.manual_seed(5 + dist.get_rank())  # only rank 0's counts
    first, state = parts(data).detach(), torch.get_rng_state()
    second = parts(data).detach()
    assert not torch.equal(first, second)
    torch.manual_seed(5 + dist.get_rank())
    assert torch.equal(parts(data).detach(), first)
    torch.set_rng_state(state)
    assert torch.equal(parts(data).detach(), second)


def test_a_seed_repeats_random_numbers_and_a_state_goes_on() -> None:
    on_ranks(2, reseeded)


# --- Parts of a module, and calls without gradients -----------------------------------------


def parts_alone() -> None:
    whole, parts, data = made()
    expected, found = whole.first(data), parts.first(data)
    assert type(found) is torch.Tensor and difference(expected.detach(), found.detach()) <= EQUAL
    for hidden in (expected, found):
        hidden.square().sum().backward()
    gradient = parts.first.weight.grad
    assert isinstance(gradient, DTensor)
    assert difference(whole.first.weight.grad, gradient.full_tensor()) <= EQUAL


def test_a_submodule_can_be_called_alone() -> None:
    on_ranks(2, parts_alone)


def without_gradients() -> None:
    whole, parts, data = made(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    with torch.no_grad():
        assert difference(whole(data), parts(data)) <= EQUAL
    with torch.inference_mode():
        assert difference(whole(data), parts(data)) <= EQUAL
    assert not tofu.torch.program_of(parts).is_random
    traced = [program.plan.traced for program in parts.forward.programs.values()]
    assert [bool(each.gradients) for each in traced] == [True, False]
    assert len(traced[1].operators) == len(traced[1].forward)


def test_calls_without_gradients_keep_nothing() -> None:
    on_ranks(2, without_gradients)


# --- Parameters without data ----------------------------------------------------------------


class Rows(nn.Module):
    """Has a parameter and a buffer that no initialiser of its own sets."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("places", torch.arange(8), persistent=False)
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, data):
        return (self.outer(self.inner(data)) * self.weight + self.places).square().mean()


class Started(Rows):
    """Sets its own values, and scales those of a submodule."""

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        self.places.copy_(torch.arange(8))
        with torch.no_grad():
            self.inner.weight.data.mul_(0)


def initialised() -> None:
    torch.manual_seed(0)
    data = torch.randn(8, 8)
    with torch.device("meta"):
        models = [Rows(), Rows(), Started()]
    with pytest.raises(ConfigError, match=r"Rows: weight, places on the device meta .*init="):
        tofu.torch.parallelize(models[0], (2,), (data,))

    def init(module: nn.Module) -> None:
        if isinstance(module, Rows):
            Started.reset_parameters(module)

    for model, given in ((models[1], init), (models[2], None)):
        torch.manual_seed(dist.get_rank())
        parts = tofu.torch.parallelize(model, (2,), (data,), init=given)
        whole = {name: tensor.full_tensor() for name, tensor in parts.named_parameters()}
        assert torch.equal(whole["weight"], torch.ones(8))
        assert torch.equal(parts.places.full_tensor(), torch.arange(8))
        assert not whole["inner.weight"].any()
        halves = whole["outer.weight"][:4], whole["outer.weight"][4:]
        assert 0.1 < halves[0].std() < 0.3 and not torch.equal(*halves)
        assert float(parts(data)) > 0


def test_parameters_without_data_get_values_or_are_named() -> None:
    on_ranks(2, initialised)


def test_only_tensors_that_are_set_together_are_whole_together() -> None:
    with torch.device("meta"):
        model = Started()
    alive = []
    for tensor, _ in initial_values(model, None):
        names = [name for name, each in model.named_parameters() if not each.is_meta]
        assert tensor.is_meta and not names
        alive.append(tensor)
    groups = _groups([_Run(None, {0, 2}), _Run(None, {1}), _Run(None, {2, 3})], 5)
    assert groups == [{0, 2, 3}, {1}, {4}]
    assert len(alive) == 6
