"""Boxes: ranges of indices, one for each dimension of a tensor, half-open.

>>> from tofu.boxes import Box
>>> Box([(2, 4), (0, 3)]).shape
(2, 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

__all__ = ["Box", "cuts_evenly", "idle_steps", "piece"]

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
        """The box's first index per dimension."""
        return tuple(low for low, _ in self)

    @property
    def end(self) -> Shape:
        """One beyond the box's last index, per dimension."""
        return tuple(high for _, high in self)

    @property
    def shape(self) -> Shape:
        """The box's extents."""
        return tuple(high - low for low, high in self)

    def clipped(self, shape: Sequence[int]) -> Box:
        """The part of the box inside a tensor of this shape."""
        return Box((max(low, 0), min(high, size)) for (low, high), size in zip(self, shape))

    def common(self, other: Box) -> Optional[Box]:
        """The part that lies in both boxes, or None."""
        overlap = Box((max(a, c), min(b, d)) for (a, b), (c, d) in zip(self, other))
        return overlap if all(low < high for low, high in overlap) else None

    def relative_to(self, other: Box) -> Box:
        """The same box, counted from the begin of another one."""
        return Box((low - first, high - first) for (low, high), (first, _) in zip(self, other))


def piece(span: tuple[int, int], parts: int, number: int) -> tuple[int, int]:
    """One of the contiguous pieces into which a step cuts a range, as ``graph/division.h`` does.

    If the range does not divide, the first pieces have one index more than the others.

    >>> [piece((0, 7), 3, number) for number in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    size, larger = divmod(span[1] - span[0], parts)
    low = span[0] + size * number + min(number, larger)
    return low, low + size + (number < larger)


def cuts_evenly(extent: int, parts: int) -> bool:
    """Whether the largest piece holds at most a quarter more than the mean (``graph/box.h``).

    >>> cuts_evenly(10, 4), cuts_evenly(10, 8), cuts_evenly(3, 4)
    (True, False, False)
    """
    return extent >= parts and 4 * -(-extent // parts) * parts <= 5 * extent


def idle_steps(workers: int, *extents: int) -> list[int]:
    """The parts of the steps, one for each prime factor, that cut none of these extents evenly.

    >>> idle_steps(12, 10), idle_steps(12, 1, 2), idle_steps(8, 64)
    ([3], [2, 3], [])
    """
    steps = _prime_factors(workers)
    for extent in extents:
        parts, idle = 1, []
        for step in steps:
            if cuts_evenly(extent, parts * step):
                parts *= step
            else:
                idle.append(step)
        steps = idle
    return steps


def _prime_factors(number: int) -> list[int]:
    """The prime factors, ascending.

    >>> _prime_factors(12)
    [2, 2, 3]
    """
    factors = []
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            number //= divisor
            factors.append(divisor)
        divisor += 1
    return factors
