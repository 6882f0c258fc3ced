"""Reports the progress of long commands on standard error.

A search shows what it has found and the time left, from the first second on; other stages show what
they do and for how long, from two seconds on. A terminal gets one line that changes. With
TOFU_LOG=debug a log gets a line whenever a search knows more, at most one a second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Callable, Optional, TextIO

from tofu.config import OBJECTIVES, Config

from .plan import format_cost, gap_text

__all__ = [
    "Heard",
    "SearchProgress",
    "clear",
    "following",
    "hold_terminal",
    "is_terminal",
    "shown",
    "stage",
]

Heard = Callable[[str, Optional[int], int], None]
_FIRST_S = 1.0
_PATIENCE_S = 2.0  # before a stage is shown
_BETWEEN_S = 0.5
_BETWEEN_LOG_S = 1.0
_CLEAR = "\r\x1b[K"

_lock = threading.Lock()
_shown = False  # whether a terminal's last line is one of ours
_running: list[_Follower] = []  # the innermost stage last
_held: Optional[TextIO] = None  # the terminal of a process whose standard error goes elsewhere


def is_terminal() -> bool:
    """Whether someone watches the lines of this module."""
    return _held is not None or (sys.stderr is not None and sys.stderr.isatty())


def hold_terminal() -> None:
    """Keep showing lines on the terminal that standard error is now, when it is redirected."""
    global _held
    if sys.stderr is not None and sys.stderr.isatty():
        _held = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")


@contextlib.contextmanager
def stage(doing: str) -> Iterator[None]:
    """Show a stage that takes more than two seconds on a terminal, with its time so far.

    A stage inside another one is shown with it: "plan 3 of 20, predicting the memory, 4 s".
    """
    if Config.from_environment().log_level == "quiet" or not is_terminal():
        yield
        return
    with _followed(_Stage(doing)):
        yield


@contextlib.contextmanager
def following(limit_s: float, objective: str = OBJECTIVES[0]) -> Iterator[Optional[Heard]]:
    """Show the progress of the search in the block; yields its callback, SearchProgress.heard."""
    search = SearchProgress(limit_s, objective)
    with shown(search):
        yield search.heard


@contextlib.contextmanager
def shown(search: SearchProgress) -> Iterator[None]:
    """Show the progress of a search, which may run on another thread, while the block waits."""
    if search.heard is None:
        yield
        return
    with _followed(search):
        yield


@contextlib.contextmanager
def _followed(follower: _Follower) -> Iterator[None]:
    thread = threading.Thread(target=follower.run, name="tofu-progress", daemon=True)
    with _lock:
        _running.append(follower)
    thread.start()
    try:
        yield
    finally:
        follower.ended.set()
        thread.join()
        with _lock:
            _running.remove(follower)
        if follower.is_due:
            clear()


def clear(*, of_another: bool = False) -> None:
    """Remove the line from the terminal, before something else is written.

    of_another: it may be that of a forked process that has crashed.
    """
    global _shown
    with _lock:
        stream = _held or sys.stderr
        if _shown or (of_another and is_terminal()):
            stream.write(_CLEAR)
            stream.flush()
        _shown = False


class _Follower:
    """Shows a line from time to time while something runs."""

    first_s: float

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.is_due = False  # whether it has run long enough to be told
        self._is_terminal = is_terminal()
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since it began."""
        return time.monotonic() - self._begin

    def line(self) -> Optional[str]:
        """The line to show; None if there is nothing new."""
        raise NotImplementedError

    def run(self) -> None:
        """Show it until it has ended."""
        wait_s = self.first_s
        while not self.ended.wait(wait_s):
            wait_s = _BETWEEN_S if self._is_terminal else _BETWEEN_LOG_S
            line = self.line()
            if line is not None:
                self.is_due = True
                self._show(line)

    def _show(self, line: str) -> None:
        global _shown
        stream = _held or sys.stderr
        with _lock:
            place = _running.index(self)
            if any(inner.is_due for inner in _running[place + 1 :]):
                return  # which says more
            outer = [each.doing for each in _running[:place] if isinstance(each, _Stage)]
            text = "tofu: " + ", ".join([*outer, line])
            if self._is_terminal:
                width = shutil.get_terminal_size().columns - 1
                stream.write(_CLEAR + text[:width])
                _shown = True
            else:
                stream.write(text + "\n")
            stream.flush()


class _Stage(_Follower):
    def __init__(self, doing: str) -> None:
        super().__init__()
        self.first_s = _PATIENCE_S
        self.doing = doing

    def line(self) -> str:
        return f"{self.doing}, {self.seconds:.0f} s"


class SearchProgress(_Follower):
    """Shows the stage of a search, its best plan and its bound.

    Args:
        limit_s: its time limit, in seconds.
        objective: what it minimises, one of config.OBJECTIVES.

    Attributes:
        heard: a callback for the search's stage, its best plan's cost (or None) and its bound; None
            if nothing is to be shown.
    """

    def __init__(self, limit_s: float, objective: str = OBJECTIVES[0]) -> None:
        super().__init__()
        self.first_s = _FIRST_S
        level = Config.from_environment().log_level
        is_told = level != "quiet" and (is_terminal() or level == "debug")
        self.heard: Optional[Heard] = self._hear if is_told else None
        self._limit_s = limit_s
        self._objective = objective
        self._latest: Optional[tuple[str, Optional[int], int]] = None
        self._printed: Optional[tuple[str, Optional[int], int]] = None

    def _hear(self, stage: str, best: Optional[int], bound: int) -> None:
        self._latest = stage, best, bound  # which the thread that shows it reads

    def line(self) -> Optional[str]:
        """A line on the search, if there is news or a terminal shows the time, too."""
        latest = self._latest
        if latest is None or (latest == self._printed and not self._is_terminal):
            return None
        self._printed = latest
        return text(*latest, self.seconds, self._limit_s, objective=self._objective)


def text(
    stage: str,
    best: Optional[int],
    bound: int,
    seconds: float,
    limit_s: float,
    *,
    objective: str = OBJECTIVES[0],
) -> str:
    """A line: "search 12 s, 48 s left: best 1.2 GiB, bound 1.1 GiB, gap 9.1%; step 2 of 3"."""
    figures = [f"best {format_cost(best, objective)}" if best is not None else "no plan yet"]
    if bound > 0:
        figures.append(f"bound {format_cost(bound, objective)}")
    if best is not None:
        figures.append(f"gap {gap_text(best, bound)}")
    remaining_s = max(0.0, limit_s - seconds)
    return f"search {seconds:.0f} s, {remaining_s:.0f} s left: {', '.join(figures)}; {stage}"
