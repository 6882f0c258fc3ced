"""The steps of a rank's program: calls of operators, and exchanges with other ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Optional, Union

from tofu.torch.graphs.calls import places_of
from tofu.torch.programs.rank_graph import Moves, Tile

__all__ = ["Call", "Fetch", "Planned", "Start", "read_first", "with_ends"]


@dataclass(frozen=True)
class Call:
    """An operator as this rank runs it.

    Attributes:
        name: its name, for memory's records.
        function: the function to call.
        reads: the tiles and regions that it reads.
        positional, named: arguments; a tensor is its number among `reads`, see `filled`.
        makes: the tiles that something reads, and their positions in the results.
        drops: tiles that no later step reads.
        blanks: the positions of results that must have no elements.
        seed: for random operators, a text that differs between ranks' parts; else None.
    """

    name: str
    function: Callable[..., Any]
    reads: tuple[Tile, ...]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    makes: tuple[tuple[Tile, int], ...]
    drops: tuple[Tile, ...] = ()
    blanks: tuple[int, ...] = ()
    seed: Optional[str] = None

    @functools.cached_property
    def places(self) -> Optional[tuple[tuple[int, int], ...]]:
        """The places of the tensors among the arguments; None if more is to be filled in."""
        return places_of(self.positional, self.named)


@dataclass(frozen=True)
class _Moment:
    """A moment of an exchange.

    Attributes:
        name: the first region's name, for memory's records.
        moves: what the rank sends, receives and assembles.
        drops: tiles that no later step reads.
    """

    name: str
    moves: Moves
    drops: tuple[Tile, ...] = ()


class Start(_Moment):
    """The start of an exchange, whose messages travel until its `Fetch`."""

    makes: ClassVar[tuple[Tile, ...]] = ()

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The tiles that the rank sends."""
        return self.moves.sent


class Fetch(_Moment):
    """The end of an exchange, at the first step that needs it: the rank assembles its regions."""

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The tiles of which the regions have pieces."""
        return self.moves.reads

    @property
    def makes(self) -> tuple[Tile, ...]:
        """The regions."""
        return self.moves.makes


Planned = Union[Call, Start, Fetch]


def with_ends(steps: Sequence[Planned]) -> list[Planned]:
    """Finishes each exchange before its first reader, the next start, or the end of the pass."""
    done: list[Planned] = []
    pending: Optional[Fetch] = None
    regions: set[Tile] = set()
    for step in [*steps, None]:
        if pending is not None and (
            step is None or isinstance(step, Start) or not regions.isdisjoint(step.reads)
        ):
            done.append(pending)
            pending = None
        if step is not None:
            done.append(step)
        if isinstance(step, Start):
            pending = Fetch(step.name, step.moves)
            regions = {*pending.makes}
    return done


def read_first(steps: Sequence[Planned], heads: set[Tile]) -> set[Tile]:
    """The tiles that steps and heads read, and no step makes."""
    read, made = set(heads), set()
    for step in steps:
        read |= set(step.reads)
        made |= set(step.makes if isinstance(step, Fetch) else (tile for tile, _ in step.makes))
    return read - made
