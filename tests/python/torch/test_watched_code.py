"""A distributed module notices new values of everything that its forward reads."""

from __future__ import annotations

import array
import contextvars
import functools
import weakref
from typing import Any, Callable

import numpy as np
import pytest
import torch
from torch import nn

from tofu.torch.graphs.module_state import ModuleState

from .ranks import on_ranks
from .scripts import Wrap, compare

FACTORS = {"listed": [1.0], "number": 1.0}
FACTOR = 1.0
MASK = torch.ones(4)
VARIABLE = contextvars.ContextVar("VARIABLE", default=1.0)


class Slots:
    """Has its value in a slot."""

    __slots__ = ("__weakref__", "scale")

    def __init__(self) -> None:
        self.scale = 1.0


class Settings:
    """A class whose attributes are settings."""

    scale = 1.0


class Keys(dict):
    """A dict whose keys are attributes, too; it has every other attribute as None."""

    __getattr__ = dict.get


class Schedule:
    """Can be called; its numbers are the class's and the instance's."""

    first = 1.0

    def __init__(self) -> None:
        self.step = 0

    def __call__(self) -> float:
        return self.first + self.step


SLOTS = Slots()


def of_globals() -> float:
    return FACTORS["listed"][0] * FACTORS["number"] * FACTOR


def scaled(value: float, by: float = 1.0) -> float:
    return value * by


def attributed() -> float:
    return attributed.scale


attributed.scale = 1.0


class Reading(nn.Module):
    """Scales its outputs by what a function of the module returns."""

    scale = 1.0

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(4, 4), read
        self.slots, self.schedule, self.long = Slots(), Schedule(), [1.0] * 2000
        self.array, self.flags = np.ones(4), {"one": True}
        self.settings, self.keys, self.bytes = Settings, Keys(scale=1.0), bytearray(1)
        self.numbers, self.reference = array.array("d", [1.0]), weakref.ref(SLOTS)
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


CLOSED = [1.0]


def in_a_closure() -> Callable[[Any], float]:
    return lambda model: CLOSED[0]


# A value that forward reads, and a function that changes it to 1 or 2.
READS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, float], Any]]] = {
    "class attribute": (
        lambda model: model.scale, lambda model, x: setattr(Reading, "scale", x)),
    "slot": (lambda model: model.slots.scale, lambda model, x: setattr(model.slots, "scale", x)),
    "callable": (
        lambda model: model.schedule(), lambda model, x: setattr(model.schedule, "step", x - 1)),
    "class of a callable": (
        lambda model: model.schedule(), lambda model, x: setattr(Schedule, "first", x)),
    "bound method": (
        lambda model: model.bound(), lambda model, x: setattr(model.schedule, "step", x - 1)),
    "default of a partial": (
        lambda model: model.partial(), lambda model, x: setattr(scaled, "__defaults__", (x,))),
    "array": (
        lambda model: float(model.array[0]), lambda model, x: model.array.fill(x)),
    "key": (
        lambda model: 1.0 if "one" in model.flags else 2.0,
        lambda model, x: model.flags.update(one=1) if x == 1 else model.flags.pop("one")),
    "long list": (
        lambda model: model.long[1000], lambda model, x: model.long.__setitem__(1000, x)),
    "property of globals": (
        lambda model: model.factor, lambda model, x: FACTORS["listed"].__setitem__(0, x)),
    "static method": (
        lambda model: model.fixed(),
        lambda model, x: setattr(Reading, "fixed", staticmethod(lambda: x))),
    "decorated method": (
        lambda model: model.decorated(), lambda model, x: FACTORS.__setitem__("number", x)),
    "patched method": (
        lambda model: model.method(),
        lambda model, x: setattr(Reading, "method", lambda self: x)),
    "default": (lambda model: scaled(1.0), lambda model, x: setattr(scaled, "__defaults__", (x,))),
    "list in a closure": (in_a_closure(), lambda model, x: CLOSED.__setitem__(0, x)),
    "global tensor": (lambda model: MASK.sum() / 4, lambda model, x: MASK.fill_(x)),
    "class as an attribute": (
        lambda model: model.settings.scale, lambda model, x: setattr(Settings, "scale", x)),
    "global class": (lambda model: Settings.scale, lambda model, x: setattr(Settings, "scale", x)),
    "keys as attributes": (
        lambda model: model.keys.scale, lambda model, x: model.keys.update(scale=x)),
    "attribute of a function": (
        lambda model: attributed(), lambda model, x: setattr(attributed, "scale", x)),
    "variable of a context": (lambda model: VARIABLE.get(), lambda model, x: VARIABLE.set(x)),
    "weak reference": (
        lambda model: model.reference().scale, lambda model, x: setattr(SLOTS, "scale", x)),
    "bytes": (
        lambda model: model.bytes[0], lambda model, x: model.bytes.__setitem__(0, int(x))),
    "array of Python": (
        lambda model: model.numbers[0], lambda model, x: model.numbers.__setitem__(0, x)),
    "global number": (lambda model: FACTOR, lambda model, x: globals().update(FACTOR=x)),
}  # fmt: skip


@pytest.mark.parametrize("kind", READS)
def test_a_new_value_gives_a_module_a_new_number(kind) -> None:
    read, change = READS[kind]
    model = Reading(read)
    change(model, 1.0)
    state = ModuleState(model)
    number = state.number()
    assert state.number() == number and float(read(model)) == 1
    change(model, 2.0)
    assert state.number() != number and float(read(model)) == 2
    change(model, 1.0)


def reading(kind: str) -> Callable[[Wrap], dict[str, Any]]:
    """A script that changes between two calls what a module reads."""

    def script(wrap: Wrap) -> dict[str, Any]:
        read, change = READS[kind]
        model, data = Reading(read), torch.ones(6, 4)
        change(model, 1.0)
        model = wrap(model, data)
        first = model(data)
        change(model, 2.0)
        second = model(data)
        change(model, 1.0)
        assert not torch.equal(first, second)
        return {"first": first, "second": second}

    script.__qualname__ = kind
    return script


def test_calls_have_the_new_values() -> None:
    on_ranks(2, compare, *map(reading, (
        "slot", "array", "patched method", "global tensor", "global class", "keys as attributes",
    )))  # fmt: skip
