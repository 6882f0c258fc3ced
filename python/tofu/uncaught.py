"""When tofu is on, a ConfigError that the script does not catch is one line and exit status 2.

The run must not go on: a script with a setting that tofu cannot use would otherwise train
serially, or end with a traceback through files that the user has never seen.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any, Optional

from tofu.config import graph_pass
from tofu.errors import ConfigError
from tofu.installation import MXNET, missing

__all__ = ["BAD_INPUT", "INTERRUPTED", "end_runs", "is_interactive", "without_ours"]

BAD_INPUT = 2  # exit status
INTERRUPTED = 130  # exit status of a process that SIGINT ends, as in shells


def end_runs() -> None:
    """Let a ConfigError that reaches the top of any thread end the process; idempotent.

    Interactive interpreters are left alone: there, the error ends one command.
    """
    if not isinstance(sys.excepthook, _MainHook):
        sys.excepthook = _MainHook(sys.excepthook)
    if not isinstance(threading.excepthook, _ThreadHook):
        threading.excepthook = _ThreadHook(threading.excepthook)


def without_ours(traceback: Optional[TracebackType]) -> Optional[TracebackType]:
    """A traceback as it would be without tofu, if the error comes from the user's code.

    An error that tofu or MXNet raises keeps all frames.
    """
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    if not frames or _package(frames[-1]) in ("tofu", "mxnet"):
        return frames[0] if frames else None
    shown: Optional[TracebackType] = None
    for frame in reversed(frames):
        if _package(frame) != "tofu":
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown


def _package(traceback: TracebackType) -> str:
    return str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


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
        shown = _shown(error)
        if shown is None or is_interactive():
            self._original(kind, error, without_ours(traceback))
            return
        _report(shown)
        # Python calls sys.excepthook when the process is about to end, and takes the exit
        # status of a SystemExit that leaves it.
        raise SystemExit(BAD_INPUT)


class _ThreadHook:
    """threading.excepthook; it ends the process at once, as the main thread may never ask."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(self, caught: Any) -> None:
        shown = _shown(caught.exc_value)
        if shown is None or is_interactive():
            self._original(caught)
            return
        _report(shown)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(BAD_INPUT)


def _shown(error: Optional[BaseException]) -> Optional[ConfigError]:
    """The error to report in one line, if it is one for that."""
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name == MXNET and graph_pass() == "tofu":
        return missing("tofu")
    return None


def _report(error: BaseException) -> None:
    if sys.stderr is not None:
        print(f"tofu: {error}", file=sys.stderr)


def is_interactive() -> bool:
    """Whether somebody types the commands."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
