"""The way in which the workers of a plan read each other's tiles."""

from __future__ import annotations

from typing import NamedTuple, Optional

__all__ = ["Fetch"]


class Fetch(NamedTuple):
    """The way in which workers read each other's tiles.

    Attributes:
        kind: one of config.FETCHES.
        apart: pairs (reader, owner) of workers that use plain fetches even so.
        reason: why some workers fetch in another way than requested, else None.
        crossing: how MultiFetch reaches other workers' tiles, see _core.partition.
    """

    kind: str = "plain"
    apart: frozenset[tuple[int, int]] = frozenset()
    reason: Optional[str] = None
    crossing: str = "copies"
