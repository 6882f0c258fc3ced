"""Lines on standard error: of this level of TOFU_LOG, or above."""

from __future__ import annotations

import logging
import sys

from . import progress

__all__ = ["LOG", "in_short", "set_level"]

LOG = logging.getLogger("tofu")
_LEVELS = {"quiet": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current sys.stderr, not the one from when tofu was turned on."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        progress.clear()
        super().emit(record)


_handler = _Stderr()
_handler.setFormatter(logging.Formatter("tofu: %(message)s"))


def set_level(level: str) -> None:
    """Show lines of this level, one of config.LOG_LEVELS, and above on standard error."""
    LOG.setLevel(_LEVELS[level])
    LOG.propagate = False
    if _handler not in LOG.handlers:
        LOG.addHandler(_handler)


def in_short(count: int) -> str:
    """A large number with a unit."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)
