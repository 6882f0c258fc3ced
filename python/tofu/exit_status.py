"""The exit status that a script asks for, while handlers of ``atexit`` run.

Python tells it to no handler: it calls no hook for SystemExit, and forgets the exception first.
"""

from __future__ import annotations

import builtins
import dis
import sys
import threading
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

__all__ = ["Script", "remember"]

_FAILED = 1  # what Python makes of a text
_asked = 0  # by the last call of sys.exit, or of what does the same


def remember() -> None:
    """Remember from now on what functions that end a script are called with; idempotent."""
    if not hasattr(sys.exit, "_tofu_original"):
        sys.exit = _remembering(sys.exit)
    for name in ("exit", "quit"):  # the site module makes them; python -S does not
        quitter = getattr(builtins, name, None)
        if quitter is not None and not hasattr(type(quitter).__call__, "_tofu_original"):
            type(quitter).__call__ = _remembering(type(quitter).__call__)


def _remembering(original: Callable[..., NoReturn]) -> Any:
    def leave(*args: Any) -> NoReturn:
        global _asked
        try:
            original(*args)
        except SystemExit as error:
            _asked = _number(error.code)
            raise

    leave.__doc__ = original.__doc__
    leave._tofu_original = original  # type: ignore[attr-defined]
    return leave


def _number(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else _FAILED


class Script:
    """The script that the main thread runs; made while it runs."""

    def __init__(self) -> None:
        frame: Optional[FrameType] = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and frame.f_back is not None:
            frame = frame.f_back
        self._frame = frame

    def status(self) -> int:
        """What the script has asked for, once it has ended; 0 if it has come to its end.

        ``raise SystemExit(3)``, without a function that ``remember`` knows, is not seen.
        """
        if self._frame is None or self._has_returned(self._frame):
            return 0
        return _asked

    @staticmethod
    def _has_returned(frame: FrameType) -> bool:
        """Whether its last instruction was a return, not one that an exception has left."""
        return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")
