"""The boxes of a parameter that processes exchange: each lies in one tile of every process.

A process cuts a parameter for its own workers, so processes with different numbers of workers
have different tiles. No process has to put tiles together to send a box that lies in one of them.
Where all have the same tiles, these are the boxes.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tofu.boxes import Box
from tofu.errors import ConfigError

__all__ = ["Described", "check_same", "common_boxes", "packed", "unpacked"]


@dataclasses.dataclass(frozen=True)
class Described:
    """A process's description of its parameters, which the others read before an exchange.

    Attributes:
        facts: values that must be the same in all processes, by name.
        tiles: the distinct tiles of each parameter.
    """

    facts: dict[str, Any]
    tiles: list[list[Box]]


def packed(described: Described) -> bytes:
    """A description as a message."""
    return zlib.compress(json.dumps([described.facts, described.tiles]).encode())


def unpacked(message: bytes) -> Described:
    """The description in a message."""
    facts, tiles = json.loads(zlib.decompress(message))
    return Described(facts, [[Box(map(tuple, box)) for box in boxes] for boxes in tiles])


def check_same(processes: Sequence[Described]) -> None:
    """Raise ConfigError if a process differs from process 0 in more than its tiles."""
    first = processes[0].facts
    for rank, process in enumerate(processes):
        for name in {**first, **process.facts}:
            found, expected = process.facts.get(name, "none"), first.get(name, "none")
            if found != expected:
                raise ConfigError(
                    f"gluon.Trainer: {name}: {found} in worker process {rank}, {expected} in "
                    "process 0; expected the same model and Trainer in all processes, which may "
                    "have different numbers of workers"
                )


def common_boxes(layouts: Iterable[Collection[Box]]) -> tuple[Box, ...]:
    """The largest boxes that lie in one tile of every layout, in the same order everywhere."""
    first, *others = dict.fromkeys(map(frozenset, layouts))
    boxes = set(first)
    for tiles in others:
        overlaps = (box.common(tile) for box in boxes for tile in tiles)
        boxes = {overlap for overlap in overlaps if overlap is not None}
    return tuple(sorted(boxes))
