"""Boxes: ranges of indices, one for each dimension of a tensor, half-open.

>>> from tofu.boxes import Box
>>> Box([(2, 4), (0, 3)]).shape
(2, 3)
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Box"]

Shape = tuple[int, ...]


class Box(tuple[tuple[int, int], ...]):
    """A box: the begin and the end along each dimension."""

    __slots__ = ()

    @classmethod
    def between(cls, begin: Sequence[int], end: Sequence[int]) -> Box:
        """The box with these corners."""
        return cls((low, high) for low, high in zip(begin, end))

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """All of a tensor."""
        return cls((0, size) for size in shape)

    @property
    def begin(self) -> Shape:
        """Its first index."""
        return tuple(low for low, _ in self)

    @property
    def end(self) -> Shape:
        """One beyond its last index."""
        return tuple(high for _, high in self)

    @property
    def shape(self) -> Shape:
        """Its extents."""
        return tuple(high - low for low, high in self)

    def clipped(self, shape: Sequence[int]) -> Box:
        """The part of the box inside a tensor of this shape."""
        return Box((max(low, 0), min(high, size)) for (low, high), size in zip(self, shape))
