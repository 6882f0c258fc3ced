"""Counts the references that MXNet has to one array: to its memory, and to its autograd variable.

MXNet has no functions for it. Slices, reshaped and detached arrays refer to the same memory through
a shared pointer, and recorded operators refer to their inputs' variables through another one. Both
pointers are members of MXNet's class of arrays; their counters are read. A self-test at first use
makes sure that this build keeps the counters there.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Optional

from mxnet import autograd, nd

from tofu.errors import InternalError

__all__ = ["number_recorded", "number_sharing", "share_memory"]

_POINTER = ctypes.sizeof(ctypes.c_void_p)
# Each shared pointer's address of its counter, in pointers from the beginning of an array.
_MEMORY, _VARIABLE = 1, 12


def number_sharing(array: Any) -> int:
    """The number of arrays with the memory of `array`, with itself and those in pending operators.

    Raises:
        InternalError: this build of MXNet counts elsewhere.
    """
    _check()
    return _counter(array, _MEMORY)


def number_recorded(array: Any) -> int:
    """The number of references to the autograd variable that is `array`, from it and from graphs.

    Raises:
        InternalError: this build of MXNet counts elsewhere.
    """
    _check()
    return _counter(array, _VARIABLE)


def share_memory(one: Any, other: Any) -> bool:
    """Whether two arrays have the same memory.

    Raises:
        InternalError: this build of MXNet keeps the counters elsewhere.
    """
    _check()
    return _counted(one, _MEMORY) == _counted(other, _MEMORY)


def _counted(array: Any, member: int) -> Optional[int]:
    return ctypes.c_void_p.from_address(array.handle.value + member * _POINTER).value


def _counter(array: Any, member: int) -> int:
    counted = _counted(array, member)
    return 0 if counted is None else ctypes.c_int.from_address(counted + _POINTER).value


@functools.cache
def _check() -> None:
    array = nd.zeros((2, 2))
    autograd.mark_variables([array], [nd.zeros((2, 2))])
    array.wait_to_read()
    alone = _counter(array, _MEMORY), _counter(array, _VARIABLE)
    views = [array.detach() for _ in range(1000)]
    with autograd.record():
        operators = [nd.identity(array) for _ in range(10)]
    shared, recorded = _counter(array, _MEMORY) - alone[0], _counter(array, _VARIABLE) - alone[1]
    # An operator that is about to end may still count, so a few more or less are right, too.
    if not 2 <= alone[0] <= 4 or abs(shared - len(views)) > 3 + len(operators):
        raise _not_supported("share memory", len(views), shared)
    if alone[1] != 1 or recorded < len(operators):
        raise _not_supported("operators have recorded", len(operators), recorded)


def _not_supported(which: str, expected: int, found: int) -> InternalError:
    return InternalError(
        f"MXNet's counter of arrays that {which}: {expected} more arrays added {found}; "
        f"expected {expected}; this is not a build that tofu supports"
    )
