"""A set of weak references that several threads can use."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

__all__ = ["Living"]


class Living:
    """The added objects, as long as something else keeps them alive.

    Unlike weakref.WeakSet, it can be iterated over while another thread adds to it.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, value: Any) -> None:
        """Add an object, unless it is there already."""
        references, key = self._references, id(value)

        def forget(reference: weakref.ref[Any]) -> None:
            if references.get(key) is reference:  # otherwise another object has this id now
                references.pop(key, None)

        if value not in self:
            references[key] = weakref.ref(value, forget)

    def discard(self, value: Any) -> None:
        """Remove an object if it is there."""
        if value in self:
            self._references.pop(id(value), None)

    def __contains__(self, value: Any) -> bool:
        reference = self._references.get(id(value))
        return reference is not None and reference() is value

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self._references.values()):
            value = reference()
            if value is not None:
                yield value

    def __len__(self) -> int:
        return sum(1 for _ in self)
