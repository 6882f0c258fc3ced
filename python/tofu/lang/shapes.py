"""Shapes that record whether their sizes were read.

A description whose lambdas depend only on ranks and on which dimensions have size 1 has
the same strategies for all other sizes, so it is analysed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Optional

__all__ = ["KnownShape", "ShapeUse"]


class ShapeUse:
    """Whether a size was read."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        self.sizes = False


class KnownShape(tuple[int, ...]):
    """A shape that records when a size is read; reading its length and its ones is free."""

    _use: ShapeUse

    def __new__(cls, sizes: Iterable[int], use: Optional[ShapeUse] = None) -> KnownShape:
        """Make a shape that records reads in `use`."""
        shape = super().__new__(cls, sizes)
        shape._use = use if use is not None else ShapeUse()
        return shape

    @property
    def ones(self) -> tuple[bool, ...]:
        """Per dimension, whether its size is 1."""
        return tuple(size == 1 for size in super().__iter__())

    def __getitem__(self, item: Any) -> Any:
        self._use.sizes = True
        return super().__getitem__(item)

    def __iter__(self) -> Iterator[int]:
        self._use.sizes = True
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        self._use.sizes = True
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()
