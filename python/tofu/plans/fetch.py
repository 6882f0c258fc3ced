"""The way in which the workers of a plan read each other's tiles."""

from __future__ import annotations

from typing import NamedTuple, Optional

__all__ = ["Fetch"]


class Fetch(NamedTuple):
    """The way in which workers read each other's tiles.

    Attributes:
        kind: one of config.FETCHES.
        reason: why workers fetch in another way than requested, else None.
        crossing: the tiles that MultiFetch reads in place, see _core.partition.
    """

    kind: str = "plain"
    reason: Optional[str] = None
    crossing: str = "plain_tiles"
