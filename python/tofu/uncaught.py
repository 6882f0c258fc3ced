"""Under the switch, a ConfigError that the script does not catch is one line and exit status 2.

The run must not go on: a script with a setting that tofu cannot use would otherwise train
serially, or end with a traceback through files that the user has never seen.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any, Optional

from tofu.errors import ConfigError

__all__ = ["BAD_INPUT", "end_runs"]

BAD_INPUT = 2  # exit status


def end_runs() -> None:
    """Let a ConfigError that reaches the top of any thread end the process; idempotent.

    Interactive interpreters are left alone: there, the error ends one command.
    """
    if not isinstance(sys.excepthook, _MainHook):
        sys.excepthook = _MainHook(sys.excepthook)
    if not isinstance(threading.excepthook, _ThreadHook):
        threading.excepthook = _ThreadHook(threading.excepthook)


class _MainHook:
    """sys.excepthook; the process then ends as it always does, with its exit handlers."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(
        self,
        kind: type[BaseException],
        error: BaseException,
        traceback: Optional[TracebackType],
    ) -> None:
        if not isinstance(error, ConfigError) or _is_interactive():
            self._original(kind, error, traceback)
            return
        _report(error)
        # Python calls sys.excepthook when the process is about to end, and takes the exit
        # status of a SystemExit that leaves it.
        raise SystemExit(BAD_INPUT)


class _ThreadHook:
    """threading.excepthook; it ends the process at once, as the main thread may never ask."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(self, caught: Any) -> None:
        if not isinstance(caught.exc_value, ConfigError) or _is_interactive():
            self._original(caught)
            return
        _report(caught.exc_value)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(BAD_INPUT)


def _report(error: BaseException) -> None:
    if sys.stderr is not None:
        print(f"tofu: {error}", file=sys.stderr)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
