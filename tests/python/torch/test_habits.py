"""Scripts around a module, as people write them: each runs whole and distributed, and is compared.

All cases of a kind run in one pair of ranks. A case returns what plain torch must return, too.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tofu.torch
from tofu.errors import GraphError
from tofu.torch.module_state import ModuleState

from .ranks import on_ranks

Wrap = Callable[..., Any]


def compare(*scripts: Callable[[Wrap], dict[str, Any]]) -> None:
    """Run scripts plainly and distributed; tensors, numbers and None are the same."""
    for script in scripts:
        torch.manual_seed(0)
        plain = script(lambda model, *_: model)
        torch.manual_seed(0)
        parts = script(lambda model, *args: tofu.torch.parallelize(model, (2,), args))
        assert plain.keys() == parts.keys()
        for key, value in plain.items():
            where = f"{script.__qualname__}: {key}"
            if isinstance(value, torch.Tensor):
                found = parts[key]
                found = found.full_tensor() if hasattr(found, "full_tensor") else found
                torch.testing.assert_close(found, value, msg=lambda text, w=where: f"{w}: {text}")
            else:
                assert parts[key] == value, where


# --- Losses of some outputs, and of parameters ----------------------------------------------


class Heads(nn.Module):
    """Two heads on one body."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, data):
        hidden = torch.tanh(self.body(data))
        return self.one(hidden), self.two(hidden)


def heads(choose: Callable[[Any, int], Any]) -> Callable[[Wrap], dict[str, Any]]:
    """A script whose loss in each step is chosen from the outputs of two heads."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Heads(), data)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.5)
        result: dict[str, Any] = {}
        for step in range(3):
            choose(model(data), step).backward()
            result[f"None in {step}"] = [p.grad is None for p in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
        return {**result, **dict(model.named_parameters())}

    return script


def penalty(power: int) -> Callable[[Wrap], dict[str, Any]]:
    """A script whose loss has a penalty on parameters."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(nn.Linear(4, 2), data)
        decay = sum(p.abs().pow(power).sum() for p in model.parameters())
        loss = model(data).pow(2).mean() + 1e-2 * decay
        loss.backward()
        return {"loss": loss, **{name: p.grad for name, p in model.named_parameters()}}

    return script


def test_losses_of_some_outputs_and_of_parameters() -> None:
    on_ranks(
        2, compare,
        heads(lambda made, step: made[0].square().mean()),
        heads(lambda made, step: made[step % 2].square().mean()),
        heads(lambda made, step: made[0].detach().mean() * made[1].square().mean()),
        heads(lambda made, step: (made[0] + made[1]).square().mean()),
        heads(lambda made, step: F.mse_loss(made[1], made[0].detach())),
        penalty(1), penalty(2),
    )  # fmt: skip


# --- Tensors that modules share -------------------------------------------------------------


def tied(turned: bool, frozen: bool = False) -> Callable[[Wrap], dict[str, Any]]:
    """A script that distributes an embedding and a head one by one, which share a weight."""

    def script(wrap: Wrap) -> dict[str, Any]:
        embed, head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        head.weight = embed.weight.requires_grad_(not frozen)
        body = nn.Linear(8, 8)
        ids = torch.randint(0, 20, (4, 5))
        if turned:
            head = wrap(head, torch.randn(4, 5, 8))
        embed = wrap(embed, ids)
        if not turned:
            head = wrap(head, torch.randn(4, 5, 8))
        body = wrap(body, torch.randn(4, 5, 8))
        found = [*embed.parameters(), *head.parameters(), *body.parameters()]
        parameters = list({id(p): p for p in found}.values())
        optimizer = torch.optim.SGD(parameters, 0.5)
        for _ in range(3):
            loss = F.cross_entropy(head(body(embed(ids))).flatten(0, 1), ids.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return {"parameters": len(parameters), "loss": loss, "tied": embed.weight is head.weight}

    return script


def test_modules_distributed_one_by_one_share_tensors() -> None:
    on_ranks(2, compare, tied(False), tied(True), tied(False, True))


# --- Assertions, and seeds in forward -------------------------------------------------------


class Called(nn.Module):
    """Calls a function on the outputs of a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, *data):
        return self.function(self.layer(data[0]), *data[1:])


def called(function: Callable[..., Any], *more: Any) -> Callable[[Wrap], dict[str, Any]]:
    """A script that trains a module that calls a function."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Called(function), data, *more)
        loss = model(data, *more)
        loss.backward()
        return {"loss": loss, "gradient": model.layer.weight.grad}

    return script


def one_hot(made, labels):
    return F.mse_loss(made.softmax(-1), F.one_hot(labels, 4).to(made.dtype))


def asserted(made):
    torch._assert_async((made.detach() < 1e6).all())
    return made.square().mean()


def test_assertions_about_values_are_no_operators() -> None:
    on_ranks(2, compare, called(one_hot, torch.arange(6) % 4), called(asserted))


def seeded(made):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return (made * torch.randn(4)).mean()


def of_a_generator(made):
    return (made * torch.randn(4, generator=torch.Generator().manual_seed(5))).mean()


@pytest.mark.parametrize("function", [seeded, of_a_generator])
def test_seeds_in_forward_are_refused(function) -> None:
    with pytest.raises(GraphError, match="forward seeds torch's random numbers or draws from a"):
        tofu.torch.plan(Called(function), (torch.randn(6, 4),), mesh=(2,))


# --- Values that forward reads --------------------------------------------------------------

FACTORS = {"listed": [1.0], "number": 1.0}
FACTOR = 1.0
MASK = torch.ones(4)


class Slots:
    """Has its value in a slot."""

    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0


class Schedule:
    """Can be called; its numbers are the class's and the instance's."""

    first = 1.0

    def __init__(self) -> None:
        self.step = 0

    def __call__(self) -> float:
        return self.first + self.step


def of_globals() -> float:
    return FACTORS["listed"][0] * FACTORS["number"] * FACTOR


def scaled(value: float, by: float = 1.0) -> float:
    return value * by


class Reading(nn.Module):
    """Scales its outputs by what a function of the module returns."""

    scale = 1.0

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(4, 4), read
        self.slots, self.schedule, self.long = Slots(), Schedule(), [1.0] * 2000
        self.array, self.flags = np.ones(4), {"one": True}
        self.partial, self.bound = functools.partial(scaled, 1.0), self.schedule.__call__

    @property
    def factor(self) -> float:
        return of_globals()

    @staticmethod
    def fixed() -> float:
        return 1.0

    @torch.no_grad()
    def decorated(self) -> float:
        return of_globals()

    def method(self) -> float:
        return 1.0

    def forward(self, data):
        # The names, for the methods that `read` calls:
        _ = (self.scale, self.factor, self.fixed, self.decorated, self.method)
        return self.layer(data).mean() * self.read(self)


def set_to(value: float, model: Any) -> None:
    """Change everything that a module reads."""
    Reading.scale, Reading.fixed = value, staticmethod(lambda: value)
    Reading.method = lambda self: value
    Schedule.first, scaled.__defaults__ = value, (value,)
    FACTORS["listed"][0] = FACTORS["number"] = globals()["FACTOR"] = value
    MASK.fill_(value)
    model.slots.scale = model.schedule.step = value
    model.array[:] = model.long[1000] = value
    model.flags.clear()
    model.flags["one" if value == 1 else "two"] = True


def reading(read: Callable[[Any], Any], closed: list[float]) -> Callable[[Wrap], dict[str, Any]]:
    """A script that changes between two calls what a module reads."""

    def script(wrap: Wrap) -> dict[str, Any]:
        model, data = Reading(read), torch.ones(6, 4)
        set_to(1.0, model)
        closed[0] = 1.0
        model = wrap(model, data)
        first = model(data)
        set_to(2.0, model)
        closed[0] = 2.0
        second = model(data)
        assert not torch.equal(first, second)
        return {"first": first, "second": second}

    script.__qualname__ = f"line {read.__code__.co_firstlineno}"
    return script


def all_reads() -> None:
    closed = [1.0]
    reads = [
        lambda model: model.scale,
        lambda model: model.slots.scale + 1,
        lambda model: model.schedule(),
        lambda model: model.bound(),
        lambda model: model.partial(),
        lambda model: float(model.array[0]),
        lambda model: 1.0 if "one" in model.flags else 2.0,
        lambda model: model.long[1000],
        lambda model: model.factor,
        lambda model: model.fixed(),
        lambda model: model.decorated(),
        lambda model: model.method(),
        lambda model: of_globals(),
        lambda model: scaled(1.0),
        lambda model: closed[0],
        lambda model: MASK.sum(),
        lambda model: FACTOR,
    ]
    compare(*(reading(read, closed) for read in reads))


def test_values_that_forward_reads_are_watched() -> None:
    on_ranks(2, all_reads)


def test_an_unchanged_module_keeps_its_number() -> None:
    model = Reading(lambda model: model.scale)
    state = ModuleState(model)
    number = state.number()
    assert state.number() == number
    set_to(2.0, model)
    assert state.number() != number
    set_to(1.0, model)
    assert state.number() != number  # a method is another function now


# --- What forward leaves behind -------------------------------------------------------------

FOUND: list[Any] = []


class Leaving(nn.Module):
    """Leaves something behind, by a function, and computes with a buffer."""

    def __init__(self, leave: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.layer, self.leave = nn.Linear(4, 4), leave
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.losses, self.table, self.box = [], {"n": 0}, types.SimpleNamespace(aux=0.0)

    def forward(self, data):
        made = self.layer(data - self.mean)
        self.leave(self, made)
        return made.square().mean() + self.mean.sum() + self.steps


def leaving(leave: Callable[[Any, Any], None]) -> Callable[[Wrap], dict[str, Any]]:
    """A script that trains for some steps, and looks at the buffers."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Leaving(leave), data)
        result = {}
        for step in range(3):
            result[f"loss {step}"] = loss = model(data)
            loss.backward()
        return {**result, **dict(model.named_buffers()), "gradient": model.layer.weight.grad}

    script.__qualname__ = leave.__name__
    return script


def assign(model, made):
    model.mean = 0.9 * model.mean + 0.1 * made.detach().mean(0)


def assign_twice(model, made):
    assign(model, made)
    model.mean = model.mean * 2
    model.steps = model.steps + 1


def assign_data(model, made):
    model.mean.data = 0.9 * model.mean.data + 0.1 * made.data.mean(0)


def write_data(model, made):
    model.mean.data.mul_(0.9).add_(made.detach().mean(0))


def by_setattr(model, made):
    model.mean = torch.zeros_like(model.mean) + made.detach().amax()


def in_buffers(model, made):
    model._buffers["mean"] = made.detach()[0] + model.mean


def test_buffers_that_forward_assigns_have_their_values() -> None:
    cases = (assign, assign_twice, assign_data, write_data, by_setattr, in_buffers)
    on_ranks(2, compare, *map(leaving, cases))


CANNOT_KEEP = "a tensor that it cannot keep"
LATER_CODE = "where later code would not find it"


@pytest.mark.parametrize(("leave", "message"), [
    (lambda model, made: model.register_buffer("late", made.detach()), CANNOT_KEEP),
    (lambda model, made: setattr(model, "mean", made.detach()), CANNOT_KEEP),
    (lambda model, made: setattr(model, "mean", made.mean(0)), CANNOT_KEEP),
    (lambda model, made: setattr(model.layer, "bias", nn.Parameter(torch.ones(4))), "."),
    (lambda model, made: setattr(model.mean, "data", made.data), "assigns a tensor of the shape"),
    (lambda model, made: model.losses.append(made.mean()), LATER_CODE),
    (lambda model, made: model.table.update(aux=made.mean()), LATER_CODE),
    (lambda model, made: setattr(model.box, "aux", made.mean()), LATER_CODE),
    (lambda model, made: FOUND.append(made.mean()), LATER_CODE),
    (lambda model, made: setattr(model, "last", made.mean()), LATER_CODE),
])  # fmt: skip
def test_what_forward_leaves_with_gradients_is_refused(leave, message) -> None:
    with pytest.raises(GraphError, match=message):
        tofu.torch.plan(Leaving(leave), (torch.randn(6, 4),), mesh=(2,))
    assert not FOUND


@pytest.mark.parametrize("leave", [
    lambda model, made: model.table.update(n=model.table["n"] + 1),
    lambda model, made: model.losses.append(made.detach().mean()),
    lambda model, made: FOUND.append(made.detach().mean()),
    lambda model, made: setattr(model, "last", made.detach().mean()),
])  # fmt: skip
def test_what_forward_leaves_without_gradients_is_warned_of(leave) -> None:
    with pytest.warns(UserWarning, match="return (it )?with the outputs"):
        tofu.torch.plan(Leaving(leave), (torch.randn(6, 4),), mesh=(2,))
    assert not FOUND
