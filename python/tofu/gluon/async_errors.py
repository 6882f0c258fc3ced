"""One error per fault, naming the operator that threw it.

MXNet runs operators after the script has called them. It stores an exception with the
arrays that the operator should have written, and raises it when the script reads one of
them. Operators that read or write these arrays do not run. In a partitioned graph every
worker that takes part in the operator throws; the remaining errors would surface in later
steps and spoil them. So when the script gets one error, tofu clears all of them. MXNet's
messages name no operator, so tofu then searches for it.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable

from mxnet.base import _LIB, MXNetError

from .session import Session, active

__all__ = ["READERS", "explain", "explaining", "settle", "settling"]

# The functions that a script reads arrays with.
READERS = ("MXNDArraySyncCopyToCPU", "MXNDArrayWaitToRead", "MXNDArrayWaitAll", "MXNDArraySave")
# Work that takes longer may never end. Its error is then reported later.
_PATIENCE_S = 60.0


def settling(original: Callable[..., int]) -> Callable[..., int]:
    """Wrap a function of MXNet's library that reads arrays; if it fails, settle errors."""

    @functools.wraps(original, assigned=(), updated=())
    def reader(*args: Any) -> int:
        status = original(*args)
        session = active()
        if status != 0 and session is not None:
            session.state.errors.missing = settle(session)
        return status

    return reader


def explaining(original: Callable[[], bytes]) -> Callable[[], bytes]:
    """Wrap MXGetLastError: append what ``settle`` found."""

    def last_error() -> bytes:
        session = active()
        if session is None:
            return original()
        errors = session.state.errors
        missing, errors.missing = errors.missing, ""
        return original() + missing.encode()

    return last_error


def explain(error: Exception, session: Session) -> None:
    """Settle an operator's error raised in a callback, and append the result to its text."""
    missing = settle(session) if isinstance(error, MXNetError) else ""
    if missing:
        error.args = (f"{error}{missing}",)


def settle(session: Session) -> str:
    """Clear all errors of operators, and say which operator throws, if it can be found.

    Searches the partitioned graphs that ran since the last call. Does nothing on one of
    MXNet's threads: the work that it would wait for may itself be waiting for this thread.
    """
    state = session.state
    programs = list(state.ran)
    if not programs or isinstance(threading.current_thread(), threading._DummyThread):
        return ""
    for program in programs:
        state.ran.discard(program)
    found: list[str] = []

    def look() -> None:
        # In its own thread, because MXNet stores the text of the last error per thread.
        _LIB.MXNDArrayWaitAll()
        for parameter in state.tiled:
            for program in programs:
                if parameter._tofu.gradients is not None:
                    parameter._tofu.gradients.reclaim(program)
        for program in programs:
            where = program.failing_operator()
            if where is not None:
                found.append(where)
                break
        _LIB.MXNDArrayWaitAll()

    looking = threading.Thread(target=look, name="tofu-errors", daemon=True)
    looking.start()
    looking.join(_PATIENCE_S)
    return f"\ntofu: thrown by {found[0]}" if found else ""
