"""The values that the code of blocks reads besides its inputs: attributes, globals, closures.

A trace is valid for the values with which it was made. ``read`` lists them for a block and all
blocks inside it, to be compared at every call; ``sources`` finds what their code reads
outside of them.
"""

from __future__ import annotations

import collections
import dis
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

import numpy as np
from mxnet.gluon import Block, HybridBlock, Parameter, rnn
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from .nesting import PLAIN

__all__ = [
    "Source",
    "blocks_in",
    "is_library",
    "own_attributes",
    "read",
    "read_each",
    "read_sources",
    "sources",
]

Source = Callable[[], Any]

# The attributes that MXNet gives to every block.
_BOOKKEEPING = frozenset(vars(HybridBlock(prefix="")))
_COUNTERS = frozenset(("_counter", "_init_counter"))  # of cells: they number names of operators
_LIBRARIES = frozenset(("mxnet", "numpy", "tofu"))
_ENTRIES = ("__call__", "forward", "hybrid_forward")
_CONTAINERS = frozenset((dict, list, tuple))
_DEPTH = 4  # levels of objects and containers that are followed
_MAX_LENGTH = 1000  # of a container that is looked into
_MAX_BYTES = 1024  # of a NumPy array whose values are compared
_GONE = object()


class _Identity:
    """Equal for the same object only, which it does not keep alive."""

    def __init__(self, value: Any) -> None:
        self._id = id(value)
        try:
            self._is_alive: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # a type that has no weak references, such as NDArray
            self._is_alive = lambda: True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity):
            return NotImplemented
        return self._id == other._id and self._is_alive() is not None

    __hash__ = None  # type: ignore[assignment]


def blocks_in(block: Any) -> list[Any]:
    """The block and all blocks inside it, each once."""
    by_id = {id(block): block}
    waiting = [block]
    while waiting:
        for child in waiting.pop()._children.values():
            if id(child) not in by_id:
                by_id[id(child)] = child
                waiting.append(child)
    return list(by_id.values())


def own_attributes(block: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that the block's class or the script gave it."""
    for name, value in vars(block).items():
        if name not in _BOOKKEEPING and not is_counter(block, name):
            yield name, value


def is_counter(block: Any, name: str) -> bool:
    """Whether an attribute only numbers the names of a cell's operators."""
    return name in _COUNTERS and isinstance(block, rnn.RecurrentCell)


def read(blocks: Iterable[Any]) -> list[Any]:
    """The attributes of blocks, as a list that compares by value.

    Numbers, strings, None, and containers and plain objects of these compare by value;
    blocks, parameters, functions and everything else by identity.
    """
    values: list[Any] = []
    for block in blocks:
        values.append(weakref.ref(block))
        for name, value in own_attributes(block):
            values.append(name)
            _add(value, values, _DEPTH)
    return values


def read_each(block: Any) -> dict[str, list[Any]]:
    """The attributes of one block by name; a plain value is listed with its type."""
    attributes: dict[str, list[Any]] = {}
    for name, value in own_attributes(block):
        _add(value, attributes.setdefault(name, []), _DEPTH)
    return attributes


def sources(blocks: Sequence[Any]) -> list[Source]:
    """The sources from which the forward code of blocks reads values outside of them.

    Sources are attributes of the blocks' classes, and globals and closures of every function
    that this code names, except those of MXNet and NumPy.
    """
    readers: dict[Any, Source] = {}
    waiting: collections.deque[tuple[Any, type]] = collections.deque()
    for kind in {type(block) for block in blocks}:
        waiting.extend((getattr(kind, entry, None), kind) for entry in _ENTRIES)
    for block in blocks:
        waiting.extend((value, type(block)) for _, value in own_attributes(block))
    seen: set[Any] = set()
    while waiting:
        value, kind = waiting.popleft()
        function = _function(value)
        if function is None or (function.__code__, kind) in seen:
            continue
        seen.add((function.__code__, kind))
        names, attributes = _names(function.__code__)
        for owner in (each for each in kind.__mro__ if not is_library(each.__module__)):
            for name in attributes & vars(owner).keys():
                waiting.append((vars(owner)[name], kind))
                readers[owner, name] = _entry(vars(owner), name)
        for name in names & function.__globals__.keys():
            waiting.append((function.__globals__[name], kind))
            readers[id(function.__globals__), name] = _entry(function.__globals__, name)
        for cell in function.__closure__ or ():
            waiting.append((_content(cell), kind))
            readers[id(cell), ""] = _reader(cell)
    return list(readers.values())


def read_sources(found: Iterable[Source]) -> list[Any]:
    """The values of sources, as a list that compares by value."""
    values: list[Any] = []
    for source in found:
        _add(source(), values, _DEPTH)
    return values


def is_library(module: Any) -> bool:
    """Whether a module is not part of the script."""
    return str(module).partition(".")[0] in _LIBRARIES


def _add(value: Any, entries: list[Any], depth: int) -> None:
    kind = type(value)
    if kind in PLAIN:
        entries += (kind, value)
        return
    if kind in _CONTAINERS and depth and len(value) <= _MAX_LENGTH:  # most hold plain values
        plain = tuple(value.values()) if kind is dict else tuple(value)
        kinds = tuple(map(type, plain))
        if PLAIN.issuperset(kinds):
            entries += (kind, tuple(value) if kind is dict else None, kinds, plain)
            return
    if isinstance(value, (np.generic, np.dtype)):
        entries += (kind, value)
    elif isinstance(value, Block):
        entries.append(weakref.ref(value))
    elif isinstance(value, Parameter):
        entries.append(value)
    elif isinstance(value, np.ndarray):
        entries += (_Identity(value), value.tobytes() if value.nbytes <= _MAX_BYTES else None)
    elif isinstance(value, (list, tuple, dict, set, frozenset)):
        entries += (kind, len(value))
        if not depth or len(value) > _MAX_LENGTH:
            entries.append(_Identity(value) if kind is not tuple else None)
        elif isinstance(value, (set, frozenset)):
            entries.append(frozenset(map(_element, value)))
        else:
            parts = value if not isinstance(value, dict) else (*value, *value.values())
            for part in parts:
                _add(part, entries, depth - 1)
    else:
        entries += (kind, _Identity(value))
        if depth and _is_record(value):
            for name, part in vars(value).items():
                entries.append(name)
                _add(part, entries, depth - 1)


def _element(value: Any) -> Any:
    return (type(value), value) if type(value) in PLAIN else id(value)


def _is_record(value: Any) -> bool:
    """Whether an object serves to hold values, as a configuration does."""
    return (
        hasattr(value, "__dict__")
        and not callable(value)
        and not isinstance(value, (types.ModuleType, NDArray, Symbol))
        and not is_library(type(value).__module__)
    )


def _function(value: Any) -> Optional[types.FunctionType]:
    """The function of a method or property if it is the script's."""
    for attribute in ("__func__", "fget", "__wrapped__"):
        value = getattr(value, attribute, value) if not isinstance(value, Symbol) else None
    if not isinstance(value, types.FunctionType) or is_library(value.__module__):
        return None
    return value


def _names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The globals and attributes that a function, and the functions inside it, name."""
    names, attributes = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(str(instruction.argval))
        elif instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")):
            attributes.add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner_names, inner_attributes = _names(constant)
            names |= inner_names
            attributes |= inner_attributes
    return names, attributes


def _entry(owner: Any, name: str) -> Source:
    return lambda: owner.get(name, _GONE)


def _reader(cell: Any) -> Source:
    return lambda: _content(cell)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty yet
        return _GONE
