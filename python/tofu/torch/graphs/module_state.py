"""Notices changes of a module that a trace of it would not repeat.

A trace bakes attributes into its graph, so a program is correct only while the module is as it was
then: its modules, attributes, plain tensors and hooks, and shapes of parameters and buffers.
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import functools
import itertools
import logging
import operator
import pickle
import sys
import types
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator, Set
from typing import Any, Callable, Optional

import torch
from torch.distributed.tensor import DTensor

from tofu.errors import GraphError
from tofu.torch.graphs.watched_code import (
    Read,
    asks_for_types,
    function_of,
    is_watched,
    reads_of_class,
    reads_of_function,
)
from tofu.torch.tiles.handed_over import Replaced

__all__ = [
    "ALL",
    "END",
    "SYMBOLS",
    "Attached",
    "ModuleState",
    "Path",
    "Place",
    "Reading",
    "Replacement",
    "check_hooks",
    "named",
]

_DEPTH = 8  # Objects deeper inside an attribute than this are known by identity alone.
_CACHED = type(functools.lru_cache(lambda: None))
# Nor are the contents of these known.
_OPAQUE = (torch.Generator, types.ModuleType, logging.Logger)
_BYTES = (bytearray, array.array)
_MOST_STATES = 64
_PLAIN = (bool, int, str, bytes, type(None), torch.dtype, torch.device)
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)  # numbers that a trace knows by name
_SEQUENCES = (list, tuple, collections.deque)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# The way to a dict, a list or an object: (), or the way to its owner, and its name or number there.
Path = tuple[Any, ...]
Place = tuple[Path, Any]  # a dict, a list or an object, and a key, an attribute, END or ALL
END, ALL = "the end of the list", "the whole list"


def named(path: Path) -> str:
    """A text that tells where an object is: "layers.0.losses"."""
    names: list[str] = []
    while path:
        path, name = path
        if name not in ("_modules", "_buffers", "_parameters", "__dict__"):
            names.append(str(name))
    return ".".join(reversed(names)) or "the module"


class Attached:
    """An attribute that tofu has given to a module, and is no part of the module's state."""


class Replacement(Attached):
    """A forward that tofu has put in the place of a module's own.

    Attributes:
        own_forward: that forward, if the instance had it; else None.
    """

    own_forward: Any


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
        ignored: places that do not count.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._numbers: dict[Any, int] = {}
        self._fresh = itertools.count()
        self._number = -1
        self._reading: Optional[Reading] = None
        self.tensors: dict[str, Any] = {}
        self.ignored: set[Place] = set()

    def ignore(self, places: Iterable[Place]) -> None:
        """Have places not count from now on."""
        self.ignored.update(places)
        self._reading = None

    @property
    def containers(self) -> dict[Path, Any]:
        """The dicts and lists that the module can reach, as of the last number."""
        assert self._reading is not None
        return self._reading.containers

    @property
    def asks_for_types(self) -> bool:
        """Whether code that the module can reach calls ``type``, as of the last number."""
        assert self._reading is not None
        return any(map(asks_for_types, self._reading.codes))

    def number(self) -> int:
        """A number that is the same for equal states."""
        if self._reading is None or self._reading.changed() is not None:
            self.tensors = dict(self._model.named_parameters())
            self.tensors.update(self._model.named_buffers())
            self._reading = Reading(self.tensors.values(), self.ignored)
            state = self._reading.frozen(self._model, 0)
            if len(self._numbers) > _MOST_STATES:
                self._numbers.clear()
            if state not in self._numbers:
                self._numbers[state] = next(self._fresh)
            self._number = self._numbers[state]
        return self._number


class Reading:
    """Reads a state once, and tells by identities alone whether anything has changed since.

    Args:
        tensors: parameters and buffers, whose values do not count.
        ignored: places that do not count either.

    Attributes:
        caches: functions that remember their results, as `functools.lru_cache` makes them.
        codes: the code of functions.
        replaced: parameters that were read, whose places distributed ones have taken.
    """

    def __init__(self, tensors: Iterable[Any], ignored: Set[Place]) -> None:
        self._own = list(tensors)
        self._ignored = ignored
        self._places = {id(tensor): k for k, tensor in enumerate(self._own)}
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no other object gets the place of a known one
        self._mappings: list[tuple[Path, Any, list[Any], list[Any]]] = []
        self._parts: list[tuple[Path, Any, set[Any], dict[Any, Any]]] = []  # less what is ignored
        self._empty: list[tuple[Path, Any]] = []  # most mappings of modules are
        self._unwatched: list[tuple[Path, Any]] = []
        self._reads: list[tuple[Path, Callable[[], Any], Any]] = []
        self._arrays: list[tuple[Path, Any, int]] = []
        self._classes: set[type] = set()
        self._sequences: list[tuple[Path, Any, list[Any]]] = []
        self._versions: list[tuple[Path, Any, Any]] = []
        self._trained = self._flags()
        self.caches: list[Any] = []
        self.codes: list[types.CodeType] = []
        self.replaced: list[Any] = []

    @functools.cached_property
    def containers(self) -> dict[Path, Any]:
        """The dicts, lists and deques that were read; of an object, the dict of its attributes."""
        read = (self._mappings, self._parts, self._empty, self._unwatched, self._sequences)
        known = [(each[0], each[1]) for kind in read for each in kind]
        return {path: x for path, x in known if isinstance(x, (dict, list, collections.deque))}

    @property
    def plain_tensors(self) -> list[Any]:
        """The tensors that were read and are no parameters or buffers."""
        return [tensor for _, tensor, _ in self._versions]

    def path_of(self, tensor: Any) -> Optional[Path]:
        """The place of a plain tensor that was read; None if it was not."""
        return next((path for path, each, _ in self._versions if each is tensor), None)

    def changed(self) -> Optional[Path]:
        """A place that was written to since the state was read; None if there is none."""
        return next(self._changed(), None)

    def _changed(self) -> Iterator[Path]:
        same = operator.is_
        yield from (path for path, now in self._empty if now)
        for path, now, keys, then in self._mappings:
            if [*now] != keys or not all(map(same, now.values(), then)):
                yield path
        for path, now, ignored, kept in self._parts:
            left = {k: v for k, v in now.items() if k not in ignored}
            if [*left] != [*kept] or not all(map(same, left.values(), kept.values())):
                yield path
        yield from (path for path, get, value in self._reads if get() is not value)
        yield from (path for path, array, known in self._arrays if _checksum(array) != known)
        for path, now, then in self._sequences:
            if len(now) != len(then) or not all(map(same, now, then)):
                yield path
        yield from (path for path, tensor, known in self._versions if version_of(tensor) != known)
        if self._flags() != self._trained:
            yield ()

    def _flags(self) -> list[Any]:
        return [(tensor.requires_grad, tensor.dtype) for tensor in self._own]

    def frozen(self, value: Any, depth: int, path: Path = ()) -> Any:
        """A value that is hashable, and equal for equal states."""
        if isinstance(value, _PLAIN):
            return type(value), value
        if isinstance(value, (float, complex)):
            return type(value), repr(value)  # a NaN equals itself
        if isinstance(value, Replaced):
            self.replaced.append(value)
            value = value.distributed
        if id(value) in self._places:
            meta = tuple(value.shape), value.dtype, value.requires_grad
            return "own", self._places[id(value)], meta
        if id(value) in self._known:
            return "known", self._known[id(value)]
        self._known[id(value)] = len(self._known)
        self._alive.append(value)
        if isinstance(value, torch.Tensor):
            self._versions.append((path, value, version_of(value)))
            return _Same(value), version_of(value)
        if depth > _DEPTH or isinstance(value, _OPAQUE):
            return _Same(value)
        return self._contents(value, depth + 1, path)

    def _contents(self, value: Any, depth: int, path: Path) -> Any:
        kind = type(value)
        if isinstance(value, dict):
            return kind, self._items(value, depth, path)
        if isinstance(value, _SEQUENCES):
            if (path, END) in self._ignored:
                self._unwatched.append((path, value))
                return kind
            self._sequences.append((path, value, list(value)))
            return kind, tuple(self.frozen(x, depth, (path, k)) for k, x in enumerate(value))
        if isinstance(value, (set, frozenset)):
            self._sequences.append((path, value, list(value)))
            return kind, frozenset(self.frozen(each, depth, (path, "")) for each in value)
        if _is_array(value) or isinstance(value, _BYTES) or _is_iterator(value):
            self._arrays.append((path, value, _checksum(value)))
            shape = getattr(value, "shape", _Same(value))
            return kind, shape, str(getattr(value, "dtype", "")), self._arrays[-1][-1]
        if isinstance(value, (weakref.ref, contextvars.ContextVar)):
            get = value if isinstance(value, weakref.ref) else functools.partial(value.get, None)
            return kind, self._all([("its value", get, get())], depth, path)
        if isinstance(value, type):
            return _Same(value), self._class(value, depth, path)
        if isinstance(value, functools.partial):
            given = (("func", value.func), ("args", value.args), ("keywords", value.keywords))
            return kind, tuple(self.frozen(each, depth, (path, name)) for name, each in given)
        if isinstance(value, types.MethodType):
            own, function = value.__self__, value.__func__
            return kind, self.frozen(function, depth, path), self.frozen(own, depth, (path, "self"))
        if isinstance(value, _CACHED):
            self.caches.append(value)
            return kind, self.frozen(value.__wrapped__, depth, path)
        function = function_of(value)
        if function is not None:
            self.codes.append(function.__code__)
            return kind, self._all(reads_of_function(function), depth, path)
        own = 0 if _is_module(value) else depth
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            attributes = None
        slots = self._all(_slots(value), own, path)
        if attributes is None and not slots:
            return _Same(value)
        code = self._class(kind, own, path)
        return kind, self.frozen(attributes, own, path), slots, code

    def _class(self, kind: type, depth: int, path: Path) -> Any:
        """The state of a class; () if it was read before."""
        if kind in self._classes:
            return ()
        self._classes.add(kind)
        return self._all(reads_of_class(kind), depth, path)

    def _items(self, value: dict[Any, Any], depth: int, path: Path) -> Any:
        ignored = {key for key in value if (path, key) in self._ignored} if self._ignored else ()
        kept = {k: v for k, v in value.items() if k not in ignored} if ignored else value
        if ignored:
            self._parts.append((path, value, set(ignored), kept))
        elif value:
            self._mappings.append((path, value, list(value), list(value.values())))
        else:
            self._empty.append((path, value))
        return tuple(
            (self.frozen(key, depth), self.frozen(each, depth, (path, key)))
            for key, each in kept.items()
            if not isinstance(each, Attached)
        )

    def _all(self, reads: Iterable[Read], depth: int, path: Path) -> Any:
        """The state of things that are read, which are watched from now on."""
        state = []
        for name, get, value in reads:
            self._reads.append(((path, name), get, value))
            state.append((name, self.frozen(value, depth, (path, name))))
        return tuple(state)


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


def _is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of Python's own, whose place changes without a trace."""
    kind = type(value)
    return hasattr(kind, "__next__") and kind.__dictoffset__ == 0


def _checksum(value: Any) -> int:
    """A number that tells contents of arrays, and places of iterators that can be copied, apart."""
    if isinstance(value, _BYTES):
        return zlib.crc32(value)
    if not _is_array(value):
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")  # newer versions of Python copy fewer iterators
            return zlib.crc32(pickle.dumps(value))
        return 0
    return zlib.crc32(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())


def _is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def version_of(tensor: Any) -> tuple[int, ...]:
    """A number that changes whenever a tensor, or the tile of one, is written to."""
    parts = (tensor, tensor._local_tensor) if isinstance(tensor, DTensor) else (tensor,)
    return tuple(0 if part.is_inference() else int(part._version) for part in parts)


def check_hooks(model: torch.nn.Module) -> None:
    """Raise GraphError if submodules have hooks that a trace does not repeat.

    A trace has the operators that hooks of the forward pass call, and finds what a script's hooks
    leave behind. Hooks of the module itself run at every call, around the planned graph.
    """
    for where, module in model.named_modules():
        for kind in _HOOKS if where else ():
            for hook in getattr(module, kind).values():
                named = hook if hasattr(hook, "__qualname__") else type(hook)
                if str(getattr(named, "__module__", "")).partition(".")[0] == "torch":
                    continue
                if "backward" not in kind and is_watched(hook):
                    continue
                raise GraphError(
                    f"{type(model).__name__}: the hook {named.__qualname__} of the submodule "
                    f"{where!r} would run only when a call is traced; expected the script's own "
                    "hooks of the forward pass, or hooks on the whole module or on parameters: "
                    "remove it, or return from forward what it reads"
                )
