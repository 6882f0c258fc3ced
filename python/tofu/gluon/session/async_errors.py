"""One error per fault, naming the operator that threw it.

MXNet runs operators after the script has called them. It stores an exception with the
arrays that the operator should have written, and raises it when the script reads one of
them. Operators that read or write these arrays do not run. In a partitioned graph every
worker that takes part in the operator throws; the remaining errors would surface in later
steps and spoil them. So when the script gets one error, tofu clears all of them. MXNet's
messages name no operator, so tofu then searches for it, among the operators of partitioned
graphs and the copies that gather their outputs.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any, Callable, Optional

from mxnet.base import _LIB, MXNetError
from mxnet.ndarray import waitall

from tofu import _core
from tofu.mx.run import error_list

from .session import Session, active
from .state import State

__all__ = ["READERS", "explaining", "explaining_once", "named", "naming", "settle", "settling"]

# The functions by which a script reads arrays.
READERS = ("MXNDArraySyncCopyToCPU", "MXNDArrayWaitToRead", "MXNDArrayWaitAll", "MXNDArraySave")
# Work that takes longer may never end; its error is then reported later.
_PATIENCE_S = 60.0


def settling(original: Callable[..., int]) -> Callable[..., int]:
    """Wrap a function of MXNet's library that reads arrays; if it fails, settle errors."""

    @functools.wraps(original, assigned=(), updated=())
    def reader(*args: Any) -> int:
        status = original(*args)
        session = active()
        if session is None or status == 0:
            return status
        errors = session.state.errors
        if not errors.is_named:
            errors.missing = settle(session)
        return status

    return reader


def explaining(original: Callable[[], bytes]) -> Callable[[], bytes]:
    """Wrap MXGetLastError: append the findings of ``settle``."""

    def last_error() -> bytes:
        session = active()
        if session is None:
            return original()
        errors = session.state.errors
        missing, errors.missing = errors.missing, ""
        return original() + missing.encode()

    return last_error


def named(session: Session) -> _core.Changed:
    """A context in which readers do not search for the operator that throws: its caller tells."""
    return _core.Changed(session.state.errors, is_named=True)


@contextlib.contextmanager
def naming(what: str, kind: type[MXNetError] = MXNetError) -> Iterator[None]:
    """Raise an error that an operator throws as an error of `what`, and clear others.

    To be entered inside of ``named``.

    Args:
        what: the action that fails if an operator throws.
        kind: the error to raise.
    """
    try:
        yield
    except MXNetError as error:
        with contextlib.suppress(MXNetError):
            waitall()  # on other workers it may have thrown, too
        with contextlib.suppress(MXNetError):
            error_list.refill()
        raise kind(f"{what} failed: {error}") from error


@contextlib.contextmanager
def explaining_once(session: Session) -> Iterator[None]:
    """Let one error leave this block, with the findings of ``settle`` appended to its text.

    Readers in the block may meet the same fault and be dropped in favour of an error that a
    callback has raised: none of them settles, inside of ``named``.
    """
    try:
        yield
    except MXNetError as error:
        missing = settle(session)
        if missing:
            error.args = (f"{error}{missing}",)
        raise


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
    throwers: list[str] = []

    def look() -> None:
        with contextlib.suppress(MXNetError):  # such as out of memory: nothing is found
            look_further()

    def look_further() -> None:
        # Runs on a separate thread, because MXNet keeps the last error's text for each thread.
        _LIB.MXNDArrayWaitAll()
        for parameter in state.tiled:
            for program in programs:
                if parameter._tofu.gradients is not None:
                    parameter._tofu.gradients.reclaim(program)
        for look_at in (_failing_operator, _failing_gather):
            where = next(filter(None, (look_at(program, state) for program in programs)), None)
            if where is not None:
                throwers.append(where)
                break
        _LIB.MXNDArrayWaitAll()
        error_list.refill()

    looking = threading.Thread(target=look, name="tofu-errors", daemon=True)
    looking.start()
    looking.join(_PATIENCE_S)
    return f"\ntofu: thrown by {throwers[0]}" if throwers else ""


def _failing_operator(program: Any, _: State) -> Optional[str]:
    where: Optional[str] = program.failing_operator()
    return where


def _failing_gather(program: Any, state: State) -> Optional[str]:
    """Gather a program's read outputs again, and name the one that cannot be gathered."""
    for number, (what, context) in state.gathered.pop(program, {}).items():
        if program.fails_to_gather(number, context):
            return f"the copies that gather {what} on {context}"
    return None
