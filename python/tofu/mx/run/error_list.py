"""Makes it safe that operators of several workers fail at once.

MXNet's engine appends the errors that its threads meet to one list, without a lock
(``global_exception_refs_`` in src/engine/threaded_engine.h of 1.9.1). If the list must grow while
two threads append, it corrupts the heap: a process in which several workers ran out of memory
ended with "double free or corruption", in one of ten runs under load. The list keeps its capacity
when it is cleared. So operators that fail one after another, in one thread, make it long enough.

Two threads that append at once may also count a slot that neither has written. It then names an
error of an earlier time, which must still be alive. So after errors of partitioned graphs were
cleared, operators that fail fill the slots once more.

The error of an operator written in Python goes through one variable for all of them, without a lock
(``exception_`` in src/operator/custom/custom-inl.h), until a task of the engine takes it. Of eight
that fail at once, some take another's error and some none. An error may also be freed while a task
copies it; the copy raises ``std::bad_alloc``, which the engine drops, and whatever waits for the
operator waits forever: in one of some thousand steps in which an operator failed on four workers.
So these operators fail in turns.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable, Optional

import mxnet as mx

__all__ = ["refill", "reserve", "take_turns"]

# Exceeds the number of operators that fail by themselves in a step; dependents share errors.
_ERRORS = 128
# The most seconds that MXNet takes to hand an error to the engine, on a busy machine.
_TURN_S = 0.02


@functools.cache
def reserve() -> list[mx.nd.NDArray]:
    """Let MXNet's list of errors grow, once per process; takes some milliseconds.

    Returns arrays that must stay alive, as this function's cache does: a slot of the list that
    two threads claim at once may still name the error of one of them.

    Raises:
        MXNetError: an operator that the script called earlier has failed.
    """
    mx.nd.waitall()
    return _fill()


def refill() -> None:
    """Fill the slots of MXNet's list with errors that stay alive, after it was cleared.

    Keeps a few kilobytes for good: the list may count such an error once too little.
    """
    _kept.append(_fill())


_kept: list[list[mx.nd.NDArray]] = []


def _fill() -> list[mx.nd.NDArray]:
    matrix = mx.nd.full((1, 1), -1, ctx=mx.cpu())
    failed = []
    try:
        for _ in range(_ERRORS):
            failed.append(mx.nd.linalg.potrf(matrix))  # it has no Cholesky factor
        mx.nd.waitall()
    except mx.MXNetError:
        pass  # NaiveEngine raises at once; it has one thread and needs no list
    return failed


def take_turns() -> None:
    """Let operators written in Python fail one after another, now and later."""
    if "__init_subclass__" in vars(mx.operator.CustomOp):
        return

    def wrap_new(cls: type[Any], /, **options: Any) -> None:
        super(mx.operator.CustomOp, cls).__init_subclass__(**options)
        _wrap(cls)

    mx.operator.CustomOp.__init_subclass__ = classmethod(wrap_new)
    waiting = mx.operator.CustomOp.__subclasses__()
    while waiting:
        cls = waiting.pop()
        _wrap(cls)
        waiting += cls.__subclasses__()


def _wrap(cls: Any) -> None:
    for name in ("forward", "backward"):
        method = vars(cls).get(name)
        if method is not None and not hasattr(method, "_tofu_takes_turns"):
            setattr(cls, name, _failing_in_turn(method))


def _failing_in_turn(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> None:
        try:
            method(*args, **options)
        except Exception:
            _turns.wait()
            raise

    call._tofu_takes_turns = True  # type: ignore[attr-defined]
    return call


class _Turns:
    """The turns of operators that fail; each begins when MXNet has taken the last one's error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Optional[mx.Context] = None
        self._began = 0.0

    def wait(self) -> None:
        with self._lock:
            if self._last is not None:
                time.sleep(max(0.0, self._began + _TURN_S - time.monotonic()))
                # The context's queue is done up to the task that takes the error.
                mx.nd.zeros((1,), ctx=self._last).wait_to_read()
            self._last = mx.context.current_context()
            self._began = time.monotonic()


_turns = _Turns()
