"""Outputs of partitioned blocks: tiles until the script reads them.

A block returns an NDArray without memory of its own. A script mostly hands it to another block,
such as a loss, which takes the tiles. MXNet's functions take an
array by its attribute ``handle``. Until something reads it, that holds a ``Delivered``; then it
becomes a handle, made from the tiles (``Memory.gather``).

Its gradient takes the same way back. In autograd's graph a *token*, a single number, stands
for the output:

    the block ──> token ──> the next block          hands tiles of the gradient over
                    └─────> the whole array         hands over what autograd has computed

Only the time of a token's gradient matters, not its value: MXNet calls the block's backward pass
when everything that reads the token is done. By then the readers have put their parts of the
output's gradient into its ``HeadGradient``.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import operator
import threading
import types
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
from mxnet import autograd, nd
from mxnet.base import _LIB, MXNetError, NDArrayHandle, check_call
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import NDArrayBase
from mxnet.util import is_np_shape, np_shape

from tofu.gluon.session.autograd_hooks import (
    NULL,
    record_function,
    restoring_recording,
    write_gradient,
)
from tofu.gluon.session.backend import Backend
from tofu.plans.parts import Parts

__all__ = [
    "Delivered",
    "Division",
    "HeadGradient",
    "Memory",
    "Origin",
    "differentiate",
    "division",
    "is_divided",
    "lender",
    "look",
    "make_output",
    "new_token",
    "origin",
    "replace",
    "slot",
    "token",
    "value",
]

_HANDLE = NDArrayBase.__dict__["handle"]  # the stored attribute of an NDArray


class Division(NamedTuple):
    """The division of an output among the workers.

    Attributes:
        layout: the box of each worker's tile.
        parts: the number of parts per step of the plan that made it.
    """

    layout: Any
    parts: Parts


class Origin(NamedTuple):
    """The number of a recording, and of one of its outputs."""

    serial: int
    output: int


class _OutputHandle(NDArrayHandle):  # type: ignore[misc]
    """MXNet's handle of an output that was read, and is in autograd's graph."""

    delivered: Delivered


class HeadGradient:
    """The gradient of one output in one backward pass, added up over all readers.

    Args:
        backend: the functions of other layers.
        contexts: the workers' contexts.
    """

    def __init__(self, backend: Backend, contexts: tuple[Any, ...]) -> None:
        self._backend = backend
        self._contexts = contexts
        self._parts: list[tuple[int, Any]] = []
        self._is_taken = False
        self._error: Optional[Exception] = None

    def add(self, serial: int, part: Any) -> None:
        """Add the part that one reader has computed.

        Args:
            serial: the reader's number. The latest comes first in sums, as in MXNet's.
            part: a whole array or tiles, unchanged until ``is_empty``.
        """
        self._parts.append((serial, part))

    def fail(self, error: Exception) -> None:
        """Have ``take`` raise a reader's error."""
        self._error = error

    def is_empty(self) -> bool:
        """Whether every part is taken, and no longer read."""
        return not (self._parts or self._is_taken)

    def clear(self) -> None:
        """Forget the parts: they are used, or left by a backward call that failed."""
        self._parts, self._is_taken, self._error = [], False, None

    def take(self, layout: Any) -> Optional[Any]:
        """The sum, as a whole array or as tiles; None if nothing was added.

        Tiles may lie in the memory of a reader's program, so call ``clear`` when all operators
        that read them are pushed to the engine. Until then no thread may run that program.

        layout: how the output, and so the sum, is divided.
        """
        error, parts = self._error, self._parts
        self._parts, self._error, self._is_taken = [], None, True
        if error is not None:
            raise error
        values = [part for _, part in sorted(parts, key=lambda part: part[0], reverse=True)]
        if len(values) <= 1:
            return values[0] if values else None
        with autograd.pause():
            if all(isinstance(value, NDArray) for value in values):
                return sum(values[1:], values[0])
            divided = [self._tiles(value, layout) for value in values]
            sums = [sum(tiles[1:], tiles[0]) for tiles in zip(*divided)]
            return self._backend.tiles(sums, layout)

    def _tiles(self, value: Any, layout: Any) -> list[Any]:
        if isinstance(value, NDArray):
            return self._backend.scatter(value, layout, self._contexts)
        if value.layout.boxes == layout.boxes:
            return list(value.arrays)
        return self._backend.relay(value, layout, self._contexts)


class Memory:
    """The value of one output: tiles, and from the first time it is read, a whole array.

    Attributes:
        lender: returns the program in whose memory the tiles lie, or None.

    Args:
        what: a name for the output, for errors.
        tiles: its tiles, in arrays that a program may overwrite after ``keep``.
        parts: the number of parts per step of the plan that made them.
        context: the script's context.
        backend: the functions of other layers.
        on_gather: called with the tiles when the value is gathered.
    """

    def __init__(
        self,
        what: str,
        tiles: Any,
        parts: Parts,
        context: Any,
        backend: Backend,
        on_gather: Callable[[Any], None],
    ) -> None:
        self._what = what
        self.layout = tiles.layout
        self.parts = parts
        self.context = context
        self.lock = threading.RLock()
        self.lender: Callable[[], Optional[Any]] = lambda: None
        self._tiles: Optional[Any] = tiles
        self._whole: Optional[Any] = None
        self._is_waited_for = False
        self._backend = backend
        self._on_gather = on_gather

    def value(self) -> Any:
        """The tiles, or the whole array if it was gathered."""
        with self.lock:
            return self._whole if self._tiles is None else self._tiles

    def keep(self) -> None:
        """Copy tiles that a program is about to overwrite, each on its worker."""
        with self.lock:
            if self._tiles is not None:
                copies = [tile.copy() for tile in self._tiles.arrays]
                self._tiles = self._tiles._replace(arrays=copies)
            self.lender = lambda: None

    def gather(self) -> Any:
        """The whole array, on the script's context.

        This is the one place where an output is gathered: because a script reads it, with an
        operator, ``asnumpy()``, a metric, or a block that runs serially. The tiles are
        dropped, as the script may write into the array.

        Raises:
            MXNetError: there is no memory for it; the output stays tiles.
        """
        with self.lock:
            if self._whole is None:
                assert self._tiles is not None
                self._on_gather(self._tiles)
                try:
                    self._whole = self._backend.gather(*self._tiles, self.context)
                except MXNetError as error:
                    raise MXNetError(
                        f"{self._what}: gathering it on {self.context} failed: {error}"
                    ) from error
                self._tiles = None
                if self._is_waited_for:
                    self._whole.wait_to_read()
            return self._whole

    def wait(self) -> None:
        """Return when the value is computed; later reads find it there, as in MXNet."""
        with self.lock:
            self._is_waited_for = True
            value = self.value()
        for array in [value] if isinstance(value, NDArray) else value.arrays:
            array.wait_to_read()


@dataclasses.dataclass(eq=False)
class Delivered:
    """The content of an output that nothing has read: all but its values.

    Attributes:
        memory: its value. Detached arrays share it.
        token: stands for it in autograd's graph; None if it is in none.
        gradient: collects the gradient from readers.
        origin: the recording that made it; None if it is in none.
    """

    memory: Memory
    token: Optional[Any] = None
    gradient: Optional[HeadGradient] = None
    origin: Optional[Origin] = None

    stype = "default"
    grad = None  # attach_grad() reads the array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return tuple(self.memory.layout.shape)

    @property
    def dtype(self) -> Any:
        """The data type, as an NDArray has it."""
        return np.dtype(self.memory.layout.dtype).type

    @property
    def context(self) -> Any:
        """The context on which it would be gathered."""
        return self.memory.context


def look(array: Any) -> Any:
    """The ``Delivered`` of an output that nothing has read; any other array itself."""
    if type(array) is not NDArray:
        return array
    delivered = _HANDLE.__get__(array)
    return delivered if isinstance(delivered, Delivered) else array


def token(looked: Any) -> Any:
    """The array that stands for `looked` in autograd's graph, or None.

    That of an output is its token even if it was read, so that MXNet need not be given zeros for
    its gradient where a block's backward pass does not reach it.
    """
    if isinstance(looked, Delivered):
        return looked.token
    delivered = _read_earlier(looked)
    return looked if delivered is None else delivered.token


def is_divided(array: Any) -> bool:
    """Whether an array is an output that nothing has read."""
    return look(array) is not array


def division(looked: Any) -> Optional[Division]:
    """The division of `looked`; None for whole arrays."""
    if not isinstance(looked, Delivered):
        return None
    return Division(looked.memory.layout, looked.memory.parts)


def lender(looked: Any) -> Optional[Any]:
    """The program in whose memory the tiles of `looked` lie, or None."""
    return looked.memory.lender() if isinstance(looked, Delivered) else None


def value(looked: Any) -> Any:
    """The tiles of `looked`, or the whole array."""
    return looked.memory.value() if isinstance(looked, Delivered) else looked


def slot(looked: Any) -> Optional[HeadGradient]:
    """The collector of the gradient of `looked`; None if autograd collects it."""
    delivered = looked if isinstance(looked, Delivered) else _read_earlier(looked)
    return None if delivered is None else delivered.gradient


def make_output(
    memory: Memory,
    token: Optional[Any] = None,
    gradient: Optional[HeadGradient] = None,
    origin: Optional[Origin] = None,
) -> Any:
    """Make the NDArray that a block returns.

    Args:
        memory: its value.
        token: stands for it in autograd's graph; None if it is not recorded.
        gradient: collects its gradient from readers.
        origin: its recording.
    """
    return _output(Delivered(memory, token, gradient, origin))


def origin(array: Any) -> Optional[Origin]:
    """The recording that made an array; None for those that no partitioned block has returned."""
    looked = look(array)
    if looked is array:
        looked = _read_earlier(array)
    return None if looked is None else looked.origin


def replace(array: Any, other: Any) -> None:
    """Give an array that the script holds the memory of another, and its place in the graph."""
    handle = NDArrayHandle()
    check_call(_LIB.MXShallowCopyNDArray(other.handle, ctypes.byref(handle)))
    before = _HANDLE.__get__(array)
    _HANDLE.__set__(array, handle)
    if not isinstance(before, Delivered):
        check_call(_LIB.MXNDArrayFree(before))


def _read_earlier(array: Any) -> Optional[Delivered]:
    """The output that an array was before it was read, if it still is that in autograd's graph."""
    handle = array.handle
    if type(handle) is not _OutputHandle or array.grad is not None:  # attach_grad() takes it out
        return None
    return handle.delivered


def differentiate(heads: Sequence[Delivered], gradients: Sequence[Any]) -> None:
    """Run a backward pass from outputs, read or not, by their gradients; another one may follow.

    Args:
        heads: the outputs, all recorded.
        gradients: the whole gradient of each.
    """
    starts = [new_token(head.context) for head in heads]
    for head, gradient, start in zip(heads, gradients, starts):
        _record_reader(head, start, lambda _, gradient=gradient: gradient)  # type: ignore[misc]
    autograd.backward(starts, retain_graph=True)


def new_token(context: Any) -> Any:
    """An array to stand for an output."""
    return nd.zeros((1,), ctx=context)


def _output(delivered: Delivered) -> Any:
    _teach()
    array = NDArray.__new__(NDArray)
    _HANDLE.__set__(array, delivered)
    array.writable = True
    return array


def _read(array: Any, delivered: Delivered) -> Any:
    """Gather an output, and give it the handle that MXNet's block would have returned."""
    with delivered.memory.lock:
        handle = _HANDLE.__get__(array)
        if handle is not delivered:
            return handle  # another thread was first
        whole = delivered.memory.gather()
        handle = _OutputHandle() if delivered.token is not None else NDArrayHandle()
        check_call(_LIB.MXNDArrayDetach(whole.handle, ctypes.byref(handle)))
        if delivered.token is not None:
            handle.delivered = delivered
            _record(delivered, handle)
        _HANDLE.__set__(array, handle)
        return handle


@functools.cache
def _teach() -> None:
    """Teach MXNet's class of arrays about outputs.

    This outlasts ``disable``: a script may hold outputs that it has not read.
    """
    get, put = _HANDLE.__get__, _HANDLE.__set__

    def handle(self: Any) -> Any:
        delivered = get(self)
        return _read(self, delivered) if type(delivered) is Delivered else delivered

    NDArrayBase.handle = property(handle, put, _HANDLE.__delete__, _HANDLE.__doc__)
    for name in ("shape", "dtype", "context", "stype"):
        setattr(NDArray, name, _known(vars(NDArray)[name], operator.attrgetter(name)))
    NDArray.wait_to_read = _unless_divided(
        NDArray.wait_to_read, lambda delivered: delivered.memory.wait()
    )
    NDArray.detach = _unless_divided(
        NDArray.detach, lambda delivered: _output(Delivered(delivered.memory))
    )
    # MXNet knows no array yet, and so has none to free.
    NDArrayBase.__del__ = _unless_divided(NDArrayBase.__del__, lambda _: None)


def _known(plain: property, lazy: Callable[[Any], Any]) -> property:
    """Make an attribute of arrays that asks the array's ``Delivered`` if there is one."""
    assert plain.fget is not None
    return property(_unless_divided(plain.fget, lazy), plain.fset, plain.fdel, plain.__doc__)


def _unless_divided(
    plain: Callable[[Any], Any], lazy: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Make a method of arrays: `plain`, or `lazy` for an output that nothing has read."""
    get, kind = _HANDLE.__get__, Delivered  # at Python's end the module's names may be gone

    @functools.wraps(plain)
    def method(self: Any) -> Any:
        delivered = get(self)
        return lazy(delivered) if type(delivered) is kind else plain(self)

    return method


def _record(delivered: Delivered, handle: Any) -> None:
    """Enter a gathered array in autograd's graph, computed from the output's token."""

    def computed(head: Any) -> Any:
        gradient = head.copy()
        gradient.wait_to_read()  # MXNet may free the head when the callback returns
        return gradient

    _record_reader(delivered, types.SimpleNamespace(handle=handle), computed)


def _record_reader(delivered: Delivered, reader: Any, gradient_from: Callable[[Any], Any]) -> None:
    """Enter an array in autograd's graph, computed from the output's token.

    gradient_from: returns the output's gradient, given the array's.
    """
    gradient, origin = delivered.gradient, delivered.origin
    assert gradient is not None and origin is not None
    scalars = is_np_shape()  # a thread's own, and MXNet calls back on others

    def backward(heads: list[Any], gradients: list[Any], requests: list[int]) -> None:
        with np_shape(scalars or None):
            try:
                part = gradient_from(heads[0])
                if requests[0] != NULL:
                    gradient.add(origin.serial, part)
            except Exception as error:
                gradient.fail(error)
            write_gradient(gradients[0], None, requests[0])

    restore = restoring_recording()
    try:  # an interrupt leaves nothing recording
        autograd.set_recording(True)
        record_function([delivered.token], [reader], backward)
    finally:
        restore()
