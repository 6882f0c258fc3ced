"""The parts of a plan's steps, and which shares of a range they get.

``graph/division.h`` has the rule; these objects only hold its numbers, compared and hashed as one::

    parts = Parts((2, 2), shares=((3, 1), ()))
    parts.bounds((16,), (0, 1))    # [[(0, 12), (12, 16)]]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from tofu import _core

__all__ = ["Parts"]


class Parts(tuple[int, ...]):
    """The number of parts of each step.

    Attributes:
        shares: for each step the shares of its parts, () if they are equal; none: all are.
        multiple: the number of elements on whose multiples bounds of tiles lie where that costs
            little.
    """

    shares: tuple[tuple[int, ...], ...]
    multiple: int

    def __new__(
        cls,
        counts: Iterable[int] = (),
        shares: Iterable[Iterable[int]] = (),
        multiple: int = 1,
    ) -> Parts:
        """The parts; those of a Parts object with its shares."""
        parts = super().__new__(cls, counts)
        parts.shares = tuple(map(tuple, shares))
        parts.multiple = multiple
        if isinstance(counts, Parts) and not parts.shares and multiple == 1:
            parts.shares, parts.multiple = counts.shares, counts.multiple
        return parts

    @classmethod
    def of(cls, plan: _core.Plan) -> Parts:
        """The parts of a plan."""
        return cls(plan.parts, plan.shares, plan.tile_multiple)

    @classmethod
    def read(cls, document: dict[str, Any]) -> Parts:
        """The parts in a plan's document. Raises ValueError where numbers do not fit."""
        counts = [int(count) for count in document["parts"]]
        shares = [tuple(map(int, step or ())) for step in document.get("shares", ())]
        sizes = [len(step) for step in shares]
        if shares and any(size not in (0, count) for size, count in zip(sizes, counts)):
            raise ValueError(f"shares {shares} of parts {counts}")
        if shares and len(shares) != len(counts):
            raise ValueError(f"shares of {len(shares)} steps, expected {len(counts)}")
        return cls(counts, shares, int(document.get("tile_multiple", 1)))

    @property
    def are_equal(self) -> bool:
        """Whether no step has shares."""
        return not any(self.shares)

    @property
    def text(self) -> str:
        """The parts for people: "2 x 2", "2 (3:1) x 2"."""
        shares = itertools.chain(self.shares, itertools.repeat(()))
        return " x ".join(
            str(count) + (f" ({':'.join(map(str, step))})" if step else "")
            for count, step in zip(self, shares)
        )

    def bounds(self, shape: Sequence[int], cuts: Sequence[int]) -> list[list[tuple[int, int]]]:
        """The pieces along each dimension of a tensor, in the order of their numbers."""
        return _core.tile_bounds(
            list(shape), list(cuts), list(self), list(map(list, self.shares)), self.multiple
        )

    def __eq__(self, other: object) -> bool:
        """Whether both divide alike; equal parts equal a plain tuple."""
        if not isinstance(other, tuple):
            return NotImplemented
        fields = (tuple(self), self.shares, self.multiple)
        return fields == (tuple(other), getattr(other, "shares", ()), getattr(other, "multiple", 1))

    def __ne__(self, other: object) -> bool:
        """Whether they divide otherwise."""
        return not self == other

    def __hash__(self) -> int:
        """A plain tuple's, as they may be equal."""
        return super().__hash__()

    @property
    def workers(self) -> int:
        """The number of workers."""
        return math.prod(self)
