"""One error for one fault, with the operator that threw it.

MXNet runs operators later than the script calls them, and keeps what one throws with the
arrays that it should have written, until the script reads one of these. Operators that read
them, or write there again, do not run. A fault of a partitioned graph is thrown once on
every worker that has part in it: the others would be reported in later steps, and spoil
these. So when the script gets one, all are cleared. As MXNet's texts name no operator, it is
then looked for.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable

from mxnet.base import _LIB, MXNetError

from .session import Session, active

__all__ = ["READERS", "explain", "explaining", "settle", "settling"]

# The functions by which a script reads arrays.
READERS = ("MXNDArraySyncCopyToCPU", "MXNDArrayWaitToRead", "MXNDArrayWaitAll", "MXNDArraySave")
# What is still running after that may never end; its error then comes later.
_PATIENCE_S = 60.0


def settling(original: Callable[..., int]) -> Callable[..., int]:
    """A function of MXNet's library that reads arrays; when it fails, errors are settled."""

    @functools.wraps(original, assigned=(), updated=())
    def reader(*args: Any) -> int:
        status = original(*args)
        session = active()
        if status != 0 and session is not None:
            session.state.errors.missing = settle(session)
        return status

    return reader


def explaining(original: Callable[[], bytes]) -> Callable[[], bytes]:
    """MXGetLastError, with what ``settle`` has found."""

    def last_error() -> bytes:
        session = active()
        if session is None:
            return original()
        errors = session.state.errors
        missing, errors.missing = errors.missing, ""
        return original() + missing.encode()

    return last_error


def explain(error: Exception, session: Session) -> None:
    """Settle an operator's error that a callback has met, and add to its text what is found."""
    missing = settle(session) if isinstance(error, MXNetError) else ""
    if missing:
        error.args = (f"{error}{missing}",)


def settle(session: Session) -> str:
    """Forget all errors of operators, and say which operator throws, if one is found.

    That is for partitioned graphs that have run since the last time. Nothing is done on a
    thread of MXNet's, for which what is waited for may itself wait.
    """
    state = session.state
    programs = list(state.ran)
    if not programs or isinstance(threading.current_thread(), threading._DummyThread):
        return ""
    for program in programs:
        state.ran.discard(program)
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(MXNetError):  # out of memory, say: nothing is found
            look_further()

    def look_further() -> None:
        # On a thread of its own: MXNet keeps the text of the last error for each thread.
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
