"""Makes it safe that operators of several workers fail at once.

MXNet's engine appends the errors that its threads meet to one list, without a lock
(``global_exception_refs_`` in src/engine/threaded_engine.h of 1.9.1). If the list must grow while
two threads append, it corrupts the heap: a process in which several workers ran out of memory
ended with "double free or corruption", in one of ten runs under load. The list keeps its capacity
when it is cleared. So operators that fail one after another, in one thread, make it long enough.

Two threads that append at once may also count a slot that neither has written. It then names an
error of an earlier time, which must still be alive. So after errors of partitioned graphs were
cleared, operators that fail fill the slots once more.
"""

from __future__ import annotations

import functools

import mxnet as mx

__all__ = ["refill", "reserve"]

# Exceeds the number of operators that fail by themselves in a step; dependents share errors.
_ERRORS = 128


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
