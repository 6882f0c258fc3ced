"""Counts the arrays that share one array's memory.

MXNet has no function for it. Slices, reshaped and detached arrays refer to the same memory through
a shared pointer, the first member of MXNet's class; its counter is read. A self-test at first use
makes sure that this build keeps the counter there.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from mxnet import nd

from tofu.errors import InternalError

__all__ = ["number_sharing"]

_POINTER = ctypes.sizeof(ctypes.c_void_p)


def number_sharing(array: Any) -> int:
    """The number of arrays with the memory of `array`, with itself and those in pending operators.

    Raises:
        InternalError: this build of MXNet counts elsewhere.
    """
    _check()
    return _counter(array)


def _counter(array: Any) -> int:
    counted = ctypes.c_void_p.from_address(array.handle.value + _POINTER).value
    return 0 if counted is None else ctypes.c_int.from_address(counted + _POINTER).value


@functools.cache
def _check() -> None:
    array = nd.zeros((2, 2))
    array.wait_to_read()
    alone = _counter(array)
    views = [array.detach() for _ in range(1000)]
    added = _counter(array) - alone
    # An operator that is about to end may still count, so a few more or less are right, too.
    if not 1 <= alone <= 3 or abs(added - len(views)) > 3:
        raise InternalError(
            f"MXNet's counter of arrays that share memory: {len(views)} more arrays added {added}, "
            f"from {alone}; expected {len(views)}, from 1; this is not a build that tofu supports"
        )
