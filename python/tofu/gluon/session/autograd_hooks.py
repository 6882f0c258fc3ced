"""Custom functions in MXNet's autograd graph.

``record_function`` records a computation with a backward callback, as
``mx.autograd.Function`` does, but honours every gradient request. MXNet runs the
callback on its own threads, once the head gradients are computed. So operators that a
callback pushes to the engine come after everything that the script has pushed since,
unless ``backward`` waits for the callback (tofu.gluon.session.backward_calls).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
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
    "pass_by",
    "record_function",
    "restoring_recording",
    "write_gradient",
]

NULL, WRITE, INPLACE, ADD = range(4)  # MXNet's gradient requests

Backward = Callable[[list[Any], list[Any], list[int]], None]


class _Shared(ctypes.Structure):
    """The part of a recorded function that MXNet refers to.

    MXNet may drop a function on any of its threads, even after the interpreter has
    ended. So the deleter is not Python code but the C library's ``time``, which writes to
    the address it is given: that of `deleted`.
    """

    _fields_ = (
        ("callbacks", MXCallbackList),
        ("contexts", ctypes.c_void_p * 2),
        ("deleted", ctypes.c_longlong),
    )


class Function:
    """A recorded function.

    Args:
        key: the number that MXNet passes to the callback.
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


# Not part of a session: MXNet's graphs call these functions and outlive every session.
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
    # The caller owns these arrays; their Python objects free them.
    heads = [
        NDArray(ctypes.cast(arrays[i], NDArrayHandle), writable=False) for i in range(num_heads)
    ]
    inputs = [NDArray(ctypes.cast(arrays[num_heads + i], NDArrayHandle)) for i in range(num_inputs)]
    try:
        _functions[key].backward(heads, inputs, [requests[i] for i in range(num_inputs)])
    except BaseException:  # the caller is C++: it only understands a status
        traceback.print_exc()
        return 0
    return 1


def _keep_for_good(value: Any) -> None:
    """Leak an object on purpose, so not even the end of the interpreter frees it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


_ENTRY = _BackwardCallback(_on_backward)
_CALLBACKS = (_AnyCallback * 2)(
    ctypes.cast(_ENTRY, _AnyCallback), ctypes.cast(ctypes.CDLL(None).time, _AnyCallback)
)
_keep_for_good(_CALLBACKS)


@atexit.register
def _finish() -> None:
    """Let callbacks finish while the interpreter can still run them."""
    with contextlib.suppress(MXNetError):  # reported already wherever the script waited
        waitall()
    for function in _functions.values():
        _keep_for_good(function.shared)


def restoring_recording() -> Callable[[], Any]:
    """A function that makes this thread record, or not, as it does now.

    It is no function of Python's: Ctrl-C may raise KeyboardInterrupt before the first line of one.
    """
    now = ctypes.c_bool()
    check_call(_LIB.MXAutogradIsRecording(ctypes.byref(now)))
    before = ctypes.c_int()
    return functools.partial(
        _LIB.MXAutogradSetIsRecording, ctypes.c_int(now.value), ctypes.byref(before)
    )


def record_function(inputs: Sequence[Any], outputs: Sequence[Any], backward: Backward) -> Function:
    """Record in autograd's graph that `outputs` were computed from `inputs`.

    All outputs are on one context. So should be the inputs, because MXNet allocates their
    gradients there.

    Args:
        inputs: arrays. For those that are not in the graph, no gradient is requested.
        outputs: new arrays that are not in the graph.
        backward: called with the head gradients, the input gradients to fill, and a
            request for each. The head gradients can be read while it runs; afterwards,
            only operators that input gradients depend on may read them.
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
    """Free the data of functions whose graphs are gone.

    MXNet reports this only by writing to memory, so tofu polls: it calls this whenever it
    does something else.
    """
    for key, function in list(_functions.items()):
        if function.dropped():
            _functions.pop(key, None)
            function.backward = _gone  # the callback often refers to the function: a cycle


def _gone(*_arguments: Any) -> None:
    raise InternalError("MXNet calls a function that it has dropped")


def write_gradient(target: Any, value: Optional[Any], request: int) -> None:
    """Write or add `value` to an input gradient, as its request says; None means zeros."""
    if request == ADD:
        if value is not None:
            target += value.as_in_context(target.context)
    elif request != NULL:
        if value is None:
            target[:] = 0
        else:
            value.copyto(target)


def in_graph(array: Any) -> bool:
    """Whether a script could request a gradient with respect to `array`."""
    if array.grad is not None:
        return True
    # MXNet names the constants in a recorded computation "null...".
    return any(not name.startswith("null") for name in inputs_of(array))


def inputs_of(array: Any) -> set[str]:
    """The names of the variables in the recorded graph that computes an array."""
    symbol = _graph_of(array)
    return set() if symbol is None else set(symbol.list_inputs())


def pass_by(heads: Sequence[Any], sources: set[str], marks: set[str]) -> bool:
    """Whether an operator that reads a mark computes some head from a source, all variables."""
    for head in heads:
        symbol = _graph_of(head)
        for output in () if symbol is None else symbol.get_internals():
            children = output.get_children()
            if children is None or marks.isdisjoint(children.list_outputs()):
                continue
            if not sources.isdisjoint(output.list_inputs()):
                return True
    return False


def _graph_of(array: Any) -> Optional[Any]:
    """The recorded graph that computes an array, if there is one."""
    handle = ctypes.c_void_p()
    if _LIB.MXAutogradGetSymbol(array.handle, ctypes.byref(handle)) != 0:
        return None
    from mxnet.symbol import Symbol

    return Symbol(handle)
