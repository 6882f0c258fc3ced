"""The exit status that a script asks for, while handlers of ``atexit`` run.

Python tells it to no handler: it calls no hook for SystemExit, and forgets the exception first.
But it asks the exception for its ``code``, so SystemExit keeps its answer here.
``sys.exit`` makes no exception until somebody catches one, so another one replaces it.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import gc
import sys
import threading
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

__all__ = ["Script", "remember"]

_FAILED = 1  # Python's exit status for a text
_asked = 0  # by the SystemExit that was asked last


def remember() -> None:
    """Remember from now on which exit status Python reads from an exception; idempotent."""
    if isinstance(vars(SystemExit)["code"], _Code):
        return
    sys.exit = _exiting(sys.exit)
    # Types of Python's own take no new attributes, but their dictionary does.
    (attributes,) = gc.get_referents(vars(SystemExit))
    attributes["code"] = _Code(attributes["code"])
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))


def _exiting(original: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    @functools.wraps(original)
    def leave(*args: Any) -> NoReturn:
        try:
            original(*args)
        except SystemExit:
            raise

    return leave


class _Code:
    """The attribute ``SystemExit.code``."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self.__doc__ = original.__doc__

    def __get__(self, error: Optional[SystemExit], kind: Optional[type] = None) -> Any:
        global _asked
        code = self._original.__get__(error, kind)
        if error is not None:
            _asked = _number(code)
        return code

    def __set__(self, error: SystemExit, code: object) -> None:
        self._original.__set__(error, code)

    def __delete__(self, error: SystemExit) -> None:
        self._original.__delete__(error)


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
        """The status that an ended script has asked for; 0 if it has come to its end."""
        if self._frame is None or self._has_returned(self._frame):
            return 0
        return _asked

    @staticmethod
    def _has_returned(frame: FrameType) -> bool:
        """Whether its last instruction was a return, not one that an exception has left."""
        return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")
