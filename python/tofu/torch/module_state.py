"""Notices changes of a module that a trace of it would not repeat.

A trace bakes attributes into its graph, so a program is correct only while the module is as it was
then: its modules, attributes, plain tensors and hooks, and shapes of parameters and buffers.
"""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Mapping
from typing import Any, Callable

import torch

from tofu.errors import GraphError

__all__ = [
    "SYMBOLS", "ModuleState", "Place", "check_hooks", "counted", "plain_attributes",
    "set_attributes",
]  # fmt: skip

# Objects deeper inside an attribute than this, and the contents of longer containers, are known
# by identity alone.
_DEPTH = 8
_LENGTH = 1000
_MOST_STATES = 64
_PLAIN = (bool, int, str, bytes, type(None), torch.dtype, torch.device)
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)  # numbers that a trace knows by name
_NUMBERS_AND_TEXTS = (bool, int, float, complex, str, type(None), *SYMBOLS)
_SEQUENCES = (list, tuple, collections.deque)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


Place = tuple[str, str]  # the name of a module, and of an attribute


class _Same:
    """An object that equals itself alone, and is kept alive so that no other gets its place."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


class ModuleState:
    """The state of a module as a number, and its parameters and buffers.

    Attributes:
        tensors: parameters and buffers by their first names.
        ignored: attributes that do not count, by their module's name and their own.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._numbers: dict[Any, int] = {}
        self._fresh = itertools.count()
        self._number = -1
        self._unchanged: Callable[[], bool] = lambda: False
        self.tensors: dict[str, Any] = {}
        self.ignored: set[Place] = set()

    def number(self) -> int:
        """A number that is the same for equal states."""
        if not self._unchanged():
            self.tensors = dict(self._model.named_parameters())
            self.tensors.update(self._model.named_buffers())
            submodule = self._model.get_submodule
            ignored = {(id(vars(submodule(where))), name) for where, name in self.ignored}
            reading = _Reading(self.tensors.values(), ignored)
            state = reading.frozen(self._model, 0)
            self._unchanged = reading.unchanged
            if len(self._numbers) > _MOST_STATES:
                self._numbers.clear()
            if state not in self._numbers:
                self._numbers[state] = next(self._fresh)
            self._number = self._numbers[state]
        return self._number


class _Reading:
    """Reads a state once, and tells by identities alone whether anything has changed since."""

    def __init__(self, tensors: Any, ignored: set[tuple[int, str]]) -> None:
        self._own = list(tensors)
        self._ignored = ignored
        self._places = {id(tensor): k for k, tensor in enumerate(self._own)}
        self._known: dict[int, int] = {}
        self._mappings: list[tuple[Any, list[Any]]] = []
        self._sequences: list[tuple[Any, list[Any]]] = []
        self._versions: list[tuple[Any, int]] = []
        self._trained = self._flags()

    def unchanged(self) -> bool:
        """Whether nothing was assigned or written since the state was read."""
        same = operator.is_
        return (
            all(
                len(now) == len(then) and all(map(same, now.values(), then))
                for now, then in self._mappings
            )
            and all(len(now) == len(then) and all(map(same, now, then))
                    for now, then in self._sequences)
            and all(_version(tensor) == version for tensor, version in self._versions)
            and self._flags() == self._trained
        )  # fmt: skip

    def _flags(self) -> list[Any]:
        return [(tensor.requires_grad, tensor.dtype) for tensor in self._own]

    def frozen(self, value: Any, depth: int) -> Any:
        """A value that is hashable, and equal for equal states."""
        if isinstance(value, _PLAIN):
            return type(value), value
        if isinstance(value, (float, complex)):
            return type(value), repr(value)  # a NaN equals itself
        if id(value) in self._places:
            meta = tuple(value.shape), value.dtype, value.requires_grad
            return "own", self._places[id(value)], meta
        if id(value) in self._known:
            return "known", self._known[id(value)]
        self._known[id(value)] = len(self._known)
        if isinstance(value, torch.Tensor):
            self._versions.append((value, _version(value)))
            return _Same(value), _version(value)
        if depth > _DEPTH or isinstance(value, (type, torch.Generator)):
            return _Same(value)
        return self._contents(value, depth + 1)

    def _contents(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, (Mapping, *_SEQUENCES)) and len(value) > _LENGTH:
            return _Same(value), len(value)
        if isinstance(value, dict):
            self._mappings.append((value, list(value.values())))
            return kind, tuple(
                (self.frozen(key, depth), self.frozen(each, depth))
                for key, each in value.items()
                if (id(value), key) not in self._ignored and not hasattr(each, "own_forward")
            )
        if isinstance(value, _SEQUENCES):
            self._sequences.append((value, list(value)))
            return kind, tuple(self.frozen(each, depth) for each in value)
        if isinstance(value, (set, frozenset)):
            self._sequences.append((value, list(value)))
            return kind, frozenset(self.frozen(each, depth) for each in value)
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict) or (callable(value) and not _is_module(value)):
            return _Same(value)
        return kind, self.frozen(attributes, 0 if _is_module(value) else depth)


def _is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def plain_attributes(model: torch.nn.Module) -> dict[Place, Any]:
    """The modules' attributes that are numbers or texts."""
    return {
        (where, name): value
        for where, module in model.named_modules()
        for name, value in vars(module).items()
        if name != "training" and isinstance(value, _NUMBERS_AND_TEXTS)
    }


def set_attributes(model: torch.nn.Module, values: Mapping[Place, Any]) -> None:
    """Set attributes of a module and its submodules."""
    for (where, name), value in values.items():
        setattr(model.get_submodule(where), name, value)


def counted(
    model: torch.nn.Module,
    attributes: Mapping[Place, Any],
    again: Callable[[], tuple[Mapping[Place, Any], bool]],
) -> dict[Place, Any]:
    """Finds the attributes that a forward counts up: attribute -> its increment in every call.

    Args:
        model: the module.
        attributes: the values that forward sets.
        again: runs forward once more, and returns the values that it sets then, and whether it
            computes the same.

    Raises:
        GraphError: an attribute gets another value in every call, and is not a counter.
    """
    known = plain_attributes(model)
    before = {place: known[place] for place in attributes if place in known}
    set_attributes(model, attributes)
    try:
        later, same = again()
    finally:
        set_attributes(model, before)
    steps = {}
    for place, value in attributes.items():
        first, second = before.get(place), later.get(place, value)
        if second == value:
            continue  # it stays
        numbers = all(type(each) in (int, float) for each in (first, value, second))
        if not same or not numbers or second - value != value - first:
            where, name = place
            raise GraphError(
                f"{type(model).__name__}: forward sets the attribute {name!r} of "
                f"{where or 'the module'} to another value in every call and depends on it, which "
                "a planned call cannot repeat; change it outside of forward, or make it a buffer"
            )
        steps[place] = value - first
    return steps


def check_hooks(model: torch.nn.Module) -> None:
    """Raise GraphError if the script has hooks on submodules: a trace would run them only once.

    Hooks of the module itself run at every call, around the planned graph.
    """
    for where, module in model.named_modules():
        for kind in _HOOKS if where else ():
            for hook in getattr(module, kind).values():
                named = hook if hasattr(hook, "__qualname__") else type(hook)
                if str(getattr(named, "__module__", "")).partition(".")[0] == "torch":
                    continue
                raise GraphError(
                    f"{type(model).__name__}: the hook {named.__qualname__} of the submodule "
                    f"{where!r} would run only when a call is traced; expected hooks on the "
                    "whole module, on parameters, or none: remove it, or return from forward "
                    "what it reads"
                )
