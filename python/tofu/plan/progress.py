"""Follows a long search on standard error: what it has found, what it does, the time left.

A terminal gets one line that changes, from the first second on. With TOFU_LOG=debug a log gets
a line whenever the search knows more, at most one a second.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Callable, Optional

from tofu.config import Config

from .plan import format_bytes, format_seconds, gap_text

__all__ = ["Heard", "clear", "following"]

Heard = Callable[[str, Optional[int], int], None]
_FIRST_S = 1.0
_BETWEEN_S = 0.5
_BETWEEN_LOG_S = 1.0
_CLEAR = "\r\x1b[K"

_lock = threading.Lock()
_shown = False  # whether a terminal's last line is one of ours


@contextlib.contextmanager
def following(limit_s: float, *, of_time: bool = False) -> Iterator[Optional[Heard]]:
    """What a search calls with its stage, the bytes of its best plan (or None), and its bound.

    None if nothing is to be shown. of_time: the cost is nanoseconds instead of bytes.
    """
    level = Config.from_environment().log_level
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if level == "quiet" or not (is_terminal or level == "debug"):
        yield None
        return
    follower = _Follower(limit_s, is_terminal, of_time)
    thread = threading.Thread(target=follower.run, name="tofu-progress", daemon=True)
    thread.start()
    try:
        yield follower.heard
    finally:
        follower.ended.set()
        thread.join()
        clear()


def clear() -> None:
    """Remove the line from the terminal, before something else is written."""
    global _shown
    with _lock:
        if _shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
        _shown = False


class _Follower:
    def __init__(self, limit_s: float, is_terminal: bool, of_time: bool) -> None:
        self.ended = threading.Event()
        self._limit_s = limit_s
        self._is_terminal = is_terminal
        self._of_time = of_time
        self._begin = time.monotonic()
        self._known: Optional[tuple[str, Optional[int], int]] = None

    def heard(self, stage: str, best: Optional[int], bound: int) -> None:
        """Keep what the search knows; the thread shows it."""
        self._known = stage, best, bound

    def run(self) -> None:
        """Show it until the search has ended."""
        told = None
        wait_s = _FIRST_S
        while not self.ended.wait(wait_s):
            wait_s = _BETWEEN_S if self._is_terminal else _BETWEEN_LOG_S
            known = self._known
            if known is None or (known == told and not self._is_terminal):
                continue
            told = known
            spent = time.monotonic() - self._begin
            self._show(f"tofu: {text(*known, spent, self._limit_s, of_time=self._of_time)}")

    def _show(self, line: str) -> None:
        global _shown
        with _lock:
            if self._is_terminal:
                width = shutil.get_terminal_size().columns - 1
                sys.stderr.write(_CLEAR + line[:width])
                _shown = True
            else:
                sys.stderr.write(line + "\n")
            sys.stderr.flush()


def text(
    stage: str,
    best: Optional[int],
    bound: int,
    seconds: float,
    limit_s: float,
    *,
    of_time: bool = False,
) -> str:
    """One line: "search 12 s, 48 s left: best 1.2 GiB, bound 1.1 GiB, gap 9.1%; step 2 of 3"."""

    def form(cost: int) -> str:
        return format_seconds(cost / 1e9) if of_time else format_bytes(cost)

    known = [f"best {form(best)}" if best is not None else "no plan yet"]
    if bound > 0:
        known.append(f"bound {form(bound)}")
    if best is not None:
        known.append(f"gap {gap_text(best, bound)}")
    left = max(0.0, limit_s - seconds)
    return f"search {seconds:.0f} s, {left:.0f} s left: {', '.join(known)}; {stage}"
