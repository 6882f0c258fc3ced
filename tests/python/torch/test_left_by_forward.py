"""Forward leaves in buffers, attributes, lists and dicts what it leaves there in plain torch."""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any, Callable

import numpy as np
import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import GraphError

from .ranks import on_ranks
from .scripts import Wrap, compare

FOUND: list[Any] = []


class Slot:
    """Has a slot."""

    __slots__ = ("x",)


class Leaving(nn.Module):
    """Leaves something behind, by a function, and computes with a buffer."""

    calls = 0

    def __init__(self, leave: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.layer, self.leave = nn.Linear(4, 4), leave
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.losses, self.table, self.box = [], {"n": 0}, types.SimpleNamespace(aux=0.0)
        self.last = self.cache = None
        self.recent, self.seen, self.order = collections.deque(), {1}, [1, 2]
        self.array, self.slot, self.plain = np.ones(2), Slot(), torch.zeros(())
        self.numbers = itertools.count()

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


# --- Attributes, lists and dicts ------------------------------------------------------------


def keeping(leave: Callable[[Any, Any], None]) -> Callable[[Wrap], dict[str, Any]]:
    """A script that looks at what forward has left, and adds it to its loss if it has gradients."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        FOUND.clear()
        model = wrap(Leaving(leave), data)
        result = {}
        for step in range(3):
            FOUND.clear()
            model.losses.clear()
            loss = model(data)
            left = [*left_in(model)]
            more = [x for x in left if isinstance(x, torch.Tensor) and x.requires_grad]
            (loss + sum(x.square().sum() for x in more)).backward()
            result.update({f"{step} {k}": x for k, x in enumerate(left)})
            result[f"{step} trained"] = len(more)
            model(data)  # another call, as in a validation
        return {**result, "gradient": model.layer.weight.grad}

    script.__qualname__ = leave.__name__
    return script


def left_in(model: Any) -> Any:
    """Everything that `Leaving` may have left."""
    plain = (bool, int, float, str, torch.Tensor)
    owners = (model, model.layer, model.box)
    known = [x for owner in owners for x in vars(owner).values()]
    for value in (*known, *model.table.values(), FOUND):
        listed = value if isinstance(value, (list, tuple, collections.deque)) else [value]
        yield from (x for x in listed if isinstance(x, plain))


def append(model, made):
    model.losses.append(made.mean())


def append_twice(model, made):
    model.losses.append(made.mean())
    model.losses.extend([made.detach().amax(), 3])


def clear_and_append(model, made):
    model.losses.clear()
    model.losses.append(made.mean())


def into_a_dict(model, made):
    model.table["aux"] = made.mean()
    model.table["n"] += 1


def into_an_object(model, made):
    model.box.aux = made.mean()
    model.box.calls = getattr(model.box, "calls", 0) + 2


def into_a_global(model, made):
    FOUND.append(made.mean())


def attribute(model, made):
    model.last = made.mean()


def detached(model, made):
    model.last, model.name = made.detach(), "made"


def a_list_of_its_own(model, made):
    model.hidden = []
    model.hidden.append(made)
    model.hidden.append(made.tanh())


def on_a_submodule(model, made):
    model.layer.seen = made.detach().sum()
    model.layer.count = getattr(model.layer, "count", 0) + 1


def a_cache(model, made):
    if model.cache is None:
        model.cache = torch.arange(4.0)
    model.last = (made.detach() * model.cache).sum()


def into_a_deque(model, made):
    model.recent.append(made.detach().mean())


def twice(model, made):
    model.last = model.layer.same = made


def in_place_of_the_last(model, made):
    model.last = None
    model.last = made * 2


def test_what_forward_leaves_is_as_in_plain_torch() -> None:
    on_ranks(2, compare, *map(keeping, (
        append, append_twice, clear_and_append, into_a_dict, into_an_object, into_a_global,
        attribute, detached, a_list_of_its_own, on_a_submodule, a_cache, into_a_deque,
        in_place_of_the_last, twice,
    )))  # fmt: skip


def validated(wrap: Wrap) -> dict[str, Any]:
    """Looks at what is left by calls in `eval` without gradients, and of another size."""
    model = wrap(Leaving(attribute), torch.randn(6, 4))
    result = {}
    model(torch.randn(6, 4)).backward()
    model.eval()
    with torch.no_grad():
        for rows in (6, 2, 3, 5):
            model(torch.randn(rows, 4))
            result[f"{rows}"] = model.last
    return result


def recurrent(wrap: Wrap) -> dict[str, Any]:
    """Starts every step with a new list."""
    data = torch.randn(6, 4)
    model = wrap(Leaving(append), data)
    result = {}
    for step in range(2):
        model.losses = []
        model(data)
        model(data)
        result[f"{step}"] = torch.stack(model.losses)
    return result


def test_other_calls_leave_values_too() -> None:
    on_ranks(2, compare, validated, recurrent)


# --- What is refused ------------------------------------------------------------------------


def retained(model, made):
    model.last = made
    made.retain_grad()


def counted_in_the_class(model, made):
    type(model).calls += 1


CANNOT_KEEP = "a tensor that it cannot keep"


@pytest.mark.parametrize(("leave", "message"), [
    (lambda model, made: model.register_buffer("late", made.detach()), CANNOT_KEEP),
    (lambda model, made: setattr(model, "mean", made.detach()), CANNOT_KEEP),
    (lambda model, made: setattr(model, "mean", made.mean(0)), CANNOT_KEEP),
    (lambda model, made: setattr(model.layer, "bias", nn.Parameter(torch.ones(4))), "."),
    (lambda model, made: setattr(model.mean, "data", made.data), "assigns a tensor of the shape"),
    (lambda model, made: next(model.numbers), "changes 'numbers' in a way .* in place"),
    (lambda model, made: model.seen.add(3), "changes 'seen' in a way .* in place"),
    (lambda model, made: model.array.fill(3), "changes 'array' in a way .* in place"),
    (lambda model, made: setattr(model.slot, "x", made), "changes 'slot.x' in a way .* in place"),
    (lambda model, made: setattr(model, "made", object()), "changes 'made' .* a object there"),
    (lambda model, made: model.table.clear(), "changes 'table' in a way .* removes"),
    (lambda model, made: model.order.reverse(), "changes 'order' in a way .* reorders"),
    (lambda model, made: setattr(model, "w", model.layer.weight), "changes 'w' .* a parameter"),
    (lambda model, made: setattr(model, "mean", model.layer.bias), "."),
    (retained, "changes 'last' .* asks for the gradient of a tensor inside"),
    (lambda model, made: model.plain.add_(made.detach().mean()), "neither a buffer nor made in"),
    (counted_in_the_class, "changes 'Leaving.calls' in a way .* in place"),
    (lambda model, made: FOUND.append(object()), "FOUND.the end of the list' .* a object there"),
])  # fmt: skip
def test_what_a_planned_call_cannot_leave_is_refused(leave, message) -> None:
    with pytest.raises(GraphError, match=message):
        tofu.torch.plan(Leaving(leave), (torch.randn(6, 4),), mesh=(2,))
    assert not FOUND


def of_the_last_call(model, made):
    model.last = made.detach().sum() + (0 if model.last is None else model.last)


def halved(model, made):
    model.table["n"] = model.table["n"] * 0.5 + 1
    model.mean.add_(model.table["n"])


def trained_cache(model, made):
    if model.cache is None:
        model.cache = model.layer.weight.sum(0)
    model.last = made.detach() + model.cache.detach()


def compared(model, made):
    model.table["n"] += 1
    model.last = made.detach() * (2 if model.table["n"] > 10 else 1)


def in_turns(model, made):
    model.table["n"] = model.table["n"] + 1
    model.last = made.detach() if model.table["n"] % 7 else None


def at_most(model, made):
    model.table["n"] = min(model.table["n"] + 1, 5)


def by_length(model, made):
    model.losses.append(made.detach().mean())
    model.last = made.detach() * (2 if len(model.losses) > 10 else 1)


def refuses(leave: Callable[[Any, Any], None], name: str) -> None:
    with pytest.raises(GraphError, match=f"forward keeps '{name}' for later calls"):
        tofu.torch.parallelize(Leaving(leave), (2,), (torch.randn(6, 4),))


@pytest.mark.parametrize(("leave", "name"), [
    (of_the_last_call, "last"), (halved, "table.n"), (trained_cache, "cache"),
    (compared, "table.n"), (in_turns, "table.n"), (at_most, "table.n"), (by_length, "losses"),
])  # fmt: skip
def test_forward_may_not_depend_on_what_it_leaves(leave, name) -> None:
    on_ranks(2, refuses, leave, name)


# --- Dicts and lists among the arguments ----------------------------------------------------


class Changing(nn.Module):
    """Moves, replaces, adds and removes what dicts and lists among its arguments hold."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, batch, states, scale=1.0):
        data = batch.pop("data")
        batch["made"] = self.layer(data) * scale
        batch["rows"], batch["states"], batch["scale"] = len(data), states, scale * 2
        states.reverse()
        states.insert(1, {"new": [batch["made"].detach() + 1, "text"], "first": states[0]})
        return self.layer(states[0]).square().mean()


def with_arguments(wrap: Wrap) -> dict[str, Any]:
    """A script that trains on what a call puts into its arguments."""
    result: dict[str, Any] = {}
    model = wrap(
        Changing(), {"data": torch.ones(6, 4), "note": "a"}, [torch.ones(4), torch.ones(4)]
    )
    for step in range(4):
        first, second = torch.randn(4), torch.randn(4)
        batch, states = {"data": torch.randn(6 + step % 3, 4), "note": "a"}, [first, second]
        loss = model(batch, states, scale=1.0 + step)
        (loss + batch["made"].sum()).backward()
        new = states[1].pop("new")
        result.update({
            f"{step} loss": loss,
            f"{step} new": new[0],
            f"{step} own": [states[0] is second, states[2] is first, batch["states"] is states],
            f"{step} others": [list(batch), states[1]["first"] is second, new[1]],
            f"{step} numbers": [batch["rows"], batch["scale"], batch["note"]],
        })  # fmt: skip
    return {**result, "gradient": model.layer.weight.grad}


def test_dicts_and_lists_among_the_arguments_are_changed() -> None:
    on_ranks(2, compare, with_arguments)
