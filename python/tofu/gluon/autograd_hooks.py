"""Own functions in MXNet's autograd graph.

``record_function`` enters a computation with its own backward callback, as
``mx.autograd.Function`` does, but honours every gradient request. MXNet calls back
on threads of its own, after the head gradients are computed; what a callback
pushes to the engine therefore comes after everything that the script has pushed
since, unless ``backward`` waits for it (tofu.gluon.backward_calls).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import traceback
from collections.abc import Sequence
from typing import Any, Callable, Optional

from mxnet.base import _LIB, MXCallbackList, MXNetError, NDArrayHandle, c_handle_array, check_call
from mxnet.ndarray import NDArray, waitall

from tofu.errors import InternalError

__all__ = [
    "Function",
    "free_dropped",
    "in_graph",
    "inputs_of",
    "record_function",
    "write_gradient",
]

NULL, WRITE, INPLACE, ADD = range(4)  # MXNet's gradient requests

Backward = Callable[[list[Any], list[Any], list[int]], None]


class _Shared(ctypes.Structure):
    """The part of a recorded function that MXNet refers to.

    MXNet may drop a function on any of its threads, and after the interpreter has
    ended. Its deleter is therefore no Python: the C library's ``time``, given the
    address of `deleted`, writes there.
    """

    _fields_ = (
        ("callbacks", MXCallbackList),
        ("contexts", ctypes.c_void_p * 2),
        ("deleted", ctypes.c_longlong),
    )


class Function:
    """A recorded function.

    Args:
        key: its number, by which MXNet calls back.
        backward: see ``record_function``.
    """

    def __init__(self, key: int, backward: Backward) -> None:
        self.backward = backward
        self.shared = _Shared()
        self.shared.contexts[0] = key
        self.shared.contexts[1] = ctypes.addressof(self.shared) + _Shared.deleted.offset
        self.shared.callbacks = MXCallbackList(
            2,
            ctypes.cast(_CALLBACKS, ctypes.POINTER(_AnyCallback)),
            ctypes.cast(self.shared.contexts, ctypes.POINTER(ctypes.c_void_p)),
        )

    def dropped(self) -> bool:
        """Whether the graph no longer holds this function."""
        return bool(self.shared.deleted)


# Not of a session: MXNet's graphs, which call these functions, outlive every session.
_functions: dict[int, Function] = {}
_keys = itertools.count(1)

_BackwardCallback = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int),
    ctypes.c_int,
    ctypes.c_void_p,
)
_AnyCallback = ctypes.CFUNCTYPE(ctypes.c_int)


def _on_backward(
    num_heads: int, num_inputs: int, arrays: Any, requests: Any, _is_train: int, key: int
) -> int:
    # The arrays are ours to free, which their Python objects do.
    heads = [
        NDArray(ctypes.cast(arrays[i], NDArrayHandle), writable=False) for i in range(num_heads)
    ]
    inputs = [NDArray(ctypes.cast(arrays[num_heads + i], NDArrayHandle)) for i in range(num_inputs)]
    try:
        _functions[key].backward(heads, inputs, [requests[i] for i in range(num_inputs)])
    except BaseException:  # a C++ caller: nothing may pass but a status
        traceback.print_exc()
        return 0
    return 1


def _keep_for_good(value: Any) -> None:
    """Never free an object, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


_ENTRY = _BackwardCallback(_on_backward)
_CALLBACKS = (_AnyCallback * 2)(
    ctypes.cast(_ENTRY, _AnyCallback), ctypes.cast(ctypes.CDLL(None).time, _AnyCallback)
)
_keep_for_good(_CALLBACKS)


@atexit.register
def _finish() -> None:
    """Let callbacks end while there is an interpreter to run them."""
    with contextlib.suppress(MXNetError):  # told where the script waited, if it did
        waitall()
    for function in _functions.values():
        _keep_for_good(function.shared)


def record_function(inputs: Sequence[Any], outputs: Sequence[Any], backward: Backward) -> Function:
    """Enter `outputs`, computed from `inputs` outside of autograd, in its graph.

    All outputs lie on one context; so should the inputs, where their gradients are
    allocated.

    Args:
        inputs: arrays of the graph or not; of the latter no gradient is asked.
        outputs: fresh arrays, not in the graph.
        backward: called with the head gradients (readable while it runs, and
            afterwards by what input gradients depend on), the input gradients to
            fill and a request for each.
    """
    free_dropped()
    key = next(_keys)
    function = _functions[key] = Function(key, backward)
    check_call(
        _LIB.MXCustomFunctionRecord(
            ctypes.c_int(len(inputs)),
            c_handle_array(inputs),
            ctypes.c_int(len(outputs)),
            c_handle_array(outputs),
            ctypes.byref(function.shared.callbacks),
        )
    )
    return function


def free_dropped() -> None:
    """Free what belongs to functions of graphs that are gone.

    MXNet says that only in memory, so it is looked at whenever something else happens.
    """
    for key, function in list(_functions.items()):
        if function.dropped():
            _functions.pop(key, None)
            function.backward = _gone  # which often refers to the function


def _gone(*_arguments: Any) -> None:
    raise InternalError("MXNet calls back a function that it has dropped")


def write_gradient(target: Any, value: Optional[Any], request: int) -> None:
    """Put `value` into an input gradient as its request says; None stands for zeros."""
    if request == ADD:
        if value is not None:
            target += value.as_in_context(target.context)
    elif request != NULL:
        if value is None:
            target[:] = 0
        else:
            value.copyto(target)


def in_graph(array: Any) -> bool:
    """Whether a gradient with respect to `array` could be asked."""
    if array.grad is not None:
        return True
    # A constant that has taken part in a recorded computation is a variable "null...".
    return any(not name.startswith("null") for name in inputs_of(array))


def inputs_of(array: Any) -> set[str]:
    """The names of the variables in the recorded graph that an array is computed by."""
    handle = ctypes.c_void_p()
    if _LIB.MXAutogradGetSymbol(array.handle, ctypes.byref(handle)) != 0:
        return set()
    from mxnet.symbol import Symbol

    return set(Symbol(handle).list_inputs())
