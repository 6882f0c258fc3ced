"""Arguments and results of a block: nested lists, tuples and dicts of arrays or symbols.

``flatten`` takes the arrays out and leaves a pattern, which compares by value; ``rebuild``
puts others in their place:

    arrays, pattern = flatten((x, [h, c], None))
    rebuild(pattern, [2 * array for array in arrays])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

__all__ = ["PLAIN", "flatten", "rebuild"]

# Types of values that a trace may contain unchanged.
PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), type(...), np.dtype))


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """The place of an array."""


@dataclasses.dataclass(frozen=True)
class _Value:
    """A plain value. Its type counts, too, as 1 equals True."""

    type: type
    value: Any


@dataclasses.dataclass(frozen=True)
class _Container:
    type: type
    keys: tuple[Any, ...]  # of a dict
    parts: tuple[Any, ...]


_LEAF = _Leaf()


def flatten(value: Any) -> tuple[list[Any], Any]:
    """The arrays, or symbols of one output, in a nested value, and its pattern.

    A symbol with several outputs counts as a list of symbols, as its operator returns a list.

    Raises:
        TypeError: the value contains something other than arrays and plain values.
    """
    leaves: list[Any] = []
    return leaves, _pattern(value, leaves)


def rebuild(pattern: Any, leaves: Sequence[Any]) -> Any:
    """The nested value with this pattern and these arrays."""
    return _rebuild(pattern, iter(leaves))


def _pattern(value: Any, leaves: list[Any]) -> Any:
    kind = type(value)
    if isinstance(value, Symbol) and len(value.list_outputs()) > 1:
        return _pattern(list(value), leaves)
    if isinstance(value, (NDArray, Symbol)):
        leaves.append(value)
        return _LEAF
    if isinstance(value, (list, tuple)):
        return _Container(kind, (), tuple(_pattern(part, leaves) for part in value))
    if isinstance(value, dict):
        parts = tuple(_pattern(part, leaves) for part in value.values())
        return _Container(kind, tuple(value), parts)
    if kind in PLAIN or isinstance(value, (np.generic, np.dtype)):
        return _Value(kind, value)
    raise TypeError(f"{kind.__name__}, expected arrays, numbers, strings or None")


def _rebuild(pattern: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(pattern, _Leaf):
        return next(leaves)
    if isinstance(pattern, _Value):
        return pattern.value
    parts = [_rebuild(part, leaves) for part in pattern.parts]
    if issubclass(pattern.type, dict):
        return pattern.type(zip(pattern.keys, parts))
    if hasattr(pattern.type, "_fields"):  # a namedtuple
        return pattern.type(*parts)
    return pattern.type(parts)
