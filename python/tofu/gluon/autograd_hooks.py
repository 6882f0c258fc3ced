"""Own functions in MXNet's autograd graph.

``record_function`` enters a computation with its own backward callback, as
``mx.autograd.Function`` does, but honours every gradient request. MXNet calls back
on threads of its own, after the head gradients are computed; what a callback
pushes to the engine therefore comes after everything that the script has pushed
since. ``waiting_backward`` makes ``backward`` return only when all callbacks that
push work have run, so that a later write to a parameter (an optimizer's) cannot
get ahead of the backward pass that reads it, and wait for itself.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import itertools
import threading
import traceback
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, Callable, Optional, Protocol

from mxnet.base import _LIB, MXCallbackList, MXNetError, NDArrayHandle, c_handle_array, check_call
from mxnet.ndarray import NDArray, waitall

__all__ = [
    "Function",
    "Recorded",
    "in_graph",
    "inputs_of",
    "must_take_turns",
    "one_at_a_time",
    "record_function",
    "recorded",
    "waiting_backward",
    "watch",
    "write_gradient",
]

NULL, WRITE, INPLACE, ADD = range(4)  # MXNet's gradient requests

Backward = Callable[[list[Any], list[Any], list[int]], None]


class Recorded(Protocol):
    """A recording whose backward callback pushes work to the engine.

    Attributes:
        serial: grows with every recording.
        group: recordings of one group push one after the other, the latest first; None:
            the order does not matter.
        arrived: set when the callback is ready to push.
    """

    serial: int
    group: Optional[Hashable]
    arrived: threading.Event

    def triggered(self) -> bool:
        """Whether the backward call that just returned goes through this recording."""

    def proceed(self) -> None:
        """Let the callback push."""

    def abandon(self) -> None:
        """Have the callback deliver nothing to anybody, as the call has ended before it."""

    def wait(self) -> None:
        """Return when the callback has pushed; raise what it raised."""


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
    for key in [key for key, function in _functions.items() if function.dropped()]:
        del _functions[key]
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


def recorded() -> list[Any]:
    """The recordings that backward calls may go through."""
    return list(_recorded)


_recorded: weakref.WeakSet[Any] = weakref.WeakSet()
one_at_a_time = threading.RLock()  # held during a backward call
_caller: Optional[int] = None  # the thread of an ordered backward call
# How long to keep an order that MXNet's engine, which runs operators in bunches, may be
# unable to keep: the head gradients of a later recording can share a bunch with what
# waits for an earlier one.
_PATIENCE_S = 0.5


def watch(recorded: Recorded) -> None:
    """Have backward calls wait for this recording's callback."""
    _recorded.add(recorded)


def must_take_turns() -> bool:
    """Whether a callback has to wait until it may proceed.

    It need not where MXNet's naive engine calls back on the caller's own thread.
    """
    return _caller is not None and _caller != threading.get_ident()


def waiting_backward(
    backward: Callable[..., int], before: Callable[[], None], after: Callable[[], None]
) -> Callable[..., int]:
    """``MXAutogradBackwardEx``, through which every backward call of MXNet's Python goes.

    It returns when the callbacks have pushed their work.

    Args:
        backward: the function of MXNet's library.
        before: called before it.
        after: called after it.
    """

    def wrapped(*args: Any) -> int:
        global _caller
        num_variables, found = args[3], args[8]
        with one_at_a_time:
            before()
            # Nothing marks the recordings that autograd.grad (with variables) goes through.
            _caller = None if num_variables else threading.get_ident()
            triggered: list[Recorded] = []
            try:
                status = backward(*args)
                _find_triggered(triggered)
                _release(triggered)
            except BaseException:  # an interrupt: MXNet's threads must not wait for ever
                _find_triggered(triggered)
                for recorded in triggered:
                    recorded.abandon()
                for recorded in list(_recorded):
                    recorded.proceed()
                raise
            finally:
                _caller = None
            if status == 0:
                if num_variables and len(_recorded):
                    _wait_for_results(num_variables, found)
                after()
        return status

    return wrapped


def _find_triggered(found: list[Recorded]) -> None:
    """Add the recordings that a backward call goes through, but for those found before."""
    for each in list(_recorded):
        if each.triggered():
            found.append(each)


def _release(recordings: Sequence[Recorded]) -> None:
    """Let the recordings of a backward call proceed; raise the first error of any."""
    triggered = sorted(recordings, key=lambda recorded: recorded.serial, reverse=True)
    sizes = collections.Counter(recorded.group for recorded in triggered)
    ordered = [r for r in triggered if r.group is not None and sizes[r.group] > 1]
    for recorded in triggered:
        if recorded not in ordered:
            recorded.proceed()
    errors = []
    for recorded in ordered:
        in_order = recorded.arrived.wait(_PATIENCE_S)
        recorded.proceed()
        if in_order:
            errors.append(_error_of(recorded))
            triggered.remove(recorded)
    errors += map(_error_of, triggered)
    for error in filter(None, errors):
        raise error


def _error_of(recorded: Recorded) -> Optional[Exception]:
    try:
        recorded.wait()
    except Exception as error:
        return error
    return None


def _wait_for_results(count: int, arrays: Any) -> None:
    handles = arrays._obj
    statuses = [_LIB.MXNDArrayWaitToRead(ctypes.c_void_p(handles[i])) for i in range(count)]
    for recorded in list(_recorded):
        recorded.wait()
    if any(statuses):
        raise MXNetError("autograd.grad: an operator failed; see the error above")
