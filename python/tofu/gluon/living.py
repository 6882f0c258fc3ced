"""A set that keeps nothing alive, for several threads."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

__all__ = ["Living"]


class Living:
    """The objects that were added, as long as something else holds them.

    A weakref.WeakSet cannot be iterated over while another thread adds to it.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, value: Any) -> None:
        """Add an object; again has no effect."""
        references, key = self._references, id(value)

        def forget(reference: weakref.ref[Any]) -> None:
            if references.get(key) is reference:  # else another object has taken its place
                references.pop(key, None)

        if value not in self:
            references[key] = weakref.ref(value, forget)

    def discard(self, value: Any) -> None:
        """Take an object out, if it is there."""
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
