"""Notices changes of a module that a trace of it would not repeat.

A trace bakes attributes into its graph, so a program is correct only while the module is as it was
then: its modules, attributes, plain tensors and hooks, and shapes of parameters and buffers.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import operator
import sys
import types
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable

import torch

from tofu.errors import GraphError
from tofu.torch.watched_code import Read, function_of, reads_of_class, reads_of_function

__all__ = [
    "SYMBOLS", "ModuleState", "Place", "check_hooks", "containers", "counted", "plain_attributes",
    "set_attributes",
]  # fmt: skip

_DEPTH = 8  # Objects deeper inside an attribute than this are known by identity alone.
# Nor are the contents of these known.
_OPAQUE = (type, torch.Generator, types.ModuleType, logging.Logger)
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
        self._alive: list[Any] = []  # so that no other object gets the place of a known one
        self._mappings: list[tuple[Any, list[Any], list[Any]]] = []
        self._empty: list[Any] = []  # most mappings of modules are
        self._reads: list[tuple[Callable[[], Any], Any]] = []
        self._arrays: list[tuple[Any, int]] = []
        self._classes: set[type] = set()
        self._sequences: list[tuple[Any, list[Any]]] = []
        self._versions: list[tuple[Any, int]] = []
        self._trained = self._flags()

    def unchanged(self) -> bool:
        """Whether nothing was assigned or written since the state was read."""
        same = operator.is_
        return (
            not any(self._empty)
            and all(
                [*now] == keys and all(map(same, now.values(), then))
                for now, keys, then in self._mappings
            )
            and all(get() is value for get, value in self._reads)
            and all(_checksum(array) == known for array, known in self._arrays)
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
        self._alive.append(value)
        if isinstance(value, torch.Tensor):
            self._versions.append((value, _version(value)))
            return _Same(value), _version(value)
        if depth > _DEPTH or isinstance(value, _OPAQUE):
            return _Same(value)
        return self._contents(value, depth + 1)

    def _contents(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, dict):
            if value:
                self._mappings.append((value, list(value), list(value.values())))
            else:
                self._empty.append(value)
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
        if _is_array(value):
            self._arrays.append((value, _checksum(value)))
            return kind, value.shape, str(value.dtype), self._arrays[-1][1]
        if isinstance(value, functools.partial):
            given = value.func, value.args, value.keywords
            return kind, tuple(self.frozen(each, depth) for each in given)
        if isinstance(value, types.MethodType):
            return kind, self.frozen(value.__func__, depth), self.frozen(value.__self__, depth)
        function = function_of(value)
        if function is not None:
            return kind, self._all(reads_of_function(function), depth)
        own = 0 if _is_module(value) else depth
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            attributes = None
        slots = self._all(_slots(value), own)
        if attributes is None and not slots:
            return _Same(value)
        code = self._all(reads_of_class(kind), own) if kind not in self._classes else ()
        self._classes.add(kind)
        return kind, self.frozen(attributes, own), slots, code

    def _all(self, reads: Iterable[Read], depth: int) -> Any:
        """The state of things that are read, which are watched from now on."""
        state = []
        for name, get, value in reads:
            self._reads.append((get, value))
            state.append((name, self.frozen(value, depth)))
        return tuple(state)


def containers(model: torch.nn.Module) -> list[Any]:
    """The lists and dicts that a module's code can reach, with those of objects' attributes."""
    reading = _Reading((), set())
    reading.frozen(model, 0)
    found = [*(each for each, *_ in reading._mappings), *reading._empty]
    found += [each for each, _ in reading._sequences]
    return [each for each in found if isinstance(each, (dict, list, collections.deque))]


def _slots(value: Any) -> Iterator[Read]:
    """The attributes of an object that has slots for them."""
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if isinstance(vars(kind).get(name), types.MemberDescriptorType):
                get = functools.partial(getattr, value, name, None)
                yield name, get, get()


def _is_array(value: Any) -> bool:
    """Whether a value is one of NumPy's arrays or numbers, which change without a trace."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _checksum(array: Any) -> int:
    return zlib.crc32(repr(array.tolist()).encode() if array.dtype == object else array.tobytes())


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
