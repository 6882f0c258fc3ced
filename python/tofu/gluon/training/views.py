"""Whole arrays that scripts get for tiled parameters, kept equal to the tiles.

A script may write into an array that ``Parameter.data()`` or ``grad()`` returned, or hold
it over many steps. The array is a gathered copy, so it is synchronized in two directions:

``flush``    before tiles are used or changed: copy the script's writes into them. Before
             that, copy and tiles were equal, so writing back the whole copy is safe.
``refresh``  after tiles have changed: update the copies that the script still holds.

Slices, reshaped and detached arrays share the copy's memory, so the script holds it through them,
too, and so does a recorded graph that reads it. The next flush frees a copy that the script has
dropped; after that it costs nothing.

As in MXNet, the array of a trained parameter's value is a variable of autograd, so it may be used
in any record(), wherever it was taken. Autograd computes its gradient for the whole array, apart
from those that partitioned blocks deliver; after the backward pass all are added up.

Threads may read while another one trains. ``State.changing`` is held while a copy and its tiles
are made equal, and while a Trainer changes tiles, so no copy from before an update is written back.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Iterable
from typing import Any, Callable, Optional, Protocol

from mxnet import autograd, nd
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _new_alloc_handle
from mxnet.numpy import ndarray as np_ndarray

from tofu.gluon.session.arrays import classic
from tofu.gluon.session.marks import marks_of, set_marks
from tofu.gluon.session.state import WholeArray
from tofu.mx.sharing import number_recorded, number_sharing

from .gradients import arrays_without_memory
from .outputs import is_divided
from .tile_state import TileState

__all__ = [
    "View",
    "after_backward",
    "before_backward",
    "flush",
    "fresh_grad",
    "grad",
    "parameter_of",
    "refresh",
]


class Owner(Protocol):
    """The attributes of a tiled parameter that its views use."""

    _tofu: TileState

    @property
    def grad_req(self) -> str:
        """The way in which gradients are written."""


class _ValueHandle(NDArrayHandle):  # type: ignore[misc]
    """MXNet's handle of a tiled parameter's whole value, which knows the parameter.

    The array is of MXNet's own class, which has no attributes to keep that in.
    """

    parameter: Callable[[], Optional[Any]]


class _Slot:
    """An object with one attribute, to count references as ``View._is_held`` does."""

    def __init__(self) -> None:
        self.whole = object()

    def references(self) -> int:
        """The number of references to the attribute's value."""
        return sys.getrefcount(self.whole)


_OWN_REFERENCES = _Slot().references()


def grad(original: Any) -> Any:
    """Wrap the property ``grad`` of arrays for outputs and for parameters' values."""

    def get(self: Any) -> Optional[Any]:
        if is_divided(self):
            return None
        parameter: Any = parameter_of(self)
        if parameter is None:
            return None if type(self.handle) is _ValueHandle else original.fget(self)
        if not hasattr(parameter, "_tofu"):  # plain again
            return original.fget(self)
        gradients = parameter._tofu.gradients
        return None if gradients is None else parameter.grad(self.context)

    return property(get, doc=original.__doc__)


def fresh_grad(original: Any) -> Any:
    """Wrap the property ``_fresh_grad`` of arrays: a parameter's tiles bear the marks."""

    def get(self: Any) -> bool:
        tiles = _tiles_of(self)
        return bool(original.fget(self)) if tiles is None else all(marks_of(tiles))

    def put(self: Any, mark: bool) -> None:
        tiles = _tiles_of(self)
        if tiles is None:
            original.fset(self, mark)
        else:
            set_marks(tiles, [mark] * len(tiles))

    return property(get, put, doc=original.__doc__)


def _tiles_of(array: Any) -> Optional[list[Any]]:
    """The tiles of the parameter whose whole value an array is, or None."""
    parameter: Any = parameter_of(array)
    return parameter._tofu.variables if hasattr(parameter, "_tofu") else None


def parameter_of(array: Any) -> Optional[Any]:
    """The tiled parameter whose whole value an array is, or None."""
    if is_divided(array):
        return None
    handle = array.handle
    return handle.parameter() if type(handle) is _ValueHandle else None


class View:
    """The copy handed out for one list of tiles, if there is one.

    The script gets an array that shares the copy's memory. It is of MXNet's own class, which
    has no weak references, so references to it, and arrays that share its memory, are counted to
    see whether the script has dropped it.

    Args:
        owner: the parameter.
        of_gradient: whether the tiles are those of its gradient, not of its value.

    Attributes:
        owner: returns the parameter; None once it is gone.
    """

    def __init__(self, owner: Owner, *, of_gradient: bool) -> None:
        self.owner: Callable[[], Optional[Owner]] = weakref.ref(owner)
        self._views = owner._tofu.state.views
        self._of_gradient = of_gradient
        self._lock = owner._tofu.state.changing
        self._copy: Optional[Any] = None  # until the first flush after the script drops it
        self._whole: Optional[Any] = None  # the script's, as long as something else refers to it
        self._equal = False  # whether nothing but the script can have changed either side
        self._is_writing = False
        self._gradient: Optional[Any] = None  # where autograd writes that of a variable
        self._adds = False  # whether autograd adds there instead of overwriting it
        self._recorded = False  # whether a recorded operator may write to it, backward
        self._before: Optional[Any] = None  # its content before that backward pass

    def get(self, context: Any) -> Any:
        """The whole array on `context`; the same one as long as the script holds it."""
        with self._lock:
            owner = self.owner()
            assert owner is not None and owner._tofu.variables is not None
            if self._copy is not None and self._copy.context != context:
                self.flush()
                self.forget()
            if self._copy is None:
                if self._of_gradient and owner._tofu.gradients is not None:
                    owner._tofu.gradients.read()
                shape, dtype = owner._tofu.layout.shape, owner._tofu.variables[0].dtype
                self._copy = NDArray(_new_alloc_handle(shape, context, False, dtype))
                self._whole = None
            if not self._equal:
                self._gather(self._copy)
            if self._whole is None or not self._is_held():
                parameter = None if self._of_gradient else owner
                self._whole = _handed_out(self._copy.detach(), parameter, numpy=owner._tofu.numpy)
                self.mark()
            # Operators write only to states such as BatchNorm's, which have no gradients.
            may_be_written = self._gradient is None and not self._of_gradient
            self._recorded = self._recorded or (autograd.is_recording() and may_be_written)
            self._views.add(self)
            return self._whole

    def adopt(self, array: Any, gradient: Optional[Any] = None) -> None:
        """Keep the array equal to the tiles that a script may have from before there were tiles.

        Args:
            array: the plain parameter's array, with the same content as the tiles.
            gradient: where autograd writes its gradient if it is a variable.
        """
        with self._lock:
            owner = self.owner()
            assert owner is not None
            self._copy = classic(array).detach()
            self._whole, self._gradient = array, gradient
            self._adds = owner.grad_req == "add"
            self._equal = True
            if not self._of_gradient:
                _name_parameter(array, owner)
            self._views.add(self)

    def forget_unless_held(self) -> None:
        """Stop synchronizing unless the script, or a graph, has the array."""
        with self._lock:
            if not self._is_held():
                self.forget()

    def mark(self) -> None:
        """Make the script's array a variable if the parameter is trained.

        As in MXNet, graphs that read it before write to an array that is no gradient any more.
        """
        with self._lock:
            owner = self.owner()
            if self._of_gradient or self._whole is None or owner is None:
                return
            if owner.grad_req == "null":
                if self._gradient is not None:  # it stays a variable, so the next one is another
                    self._whole = self._gradient = None
                return
            (self._gradient,), self._adds = arrays_without_memory([self._whole]), False
            autograd.mark_variables([self._whole], [self._gradient])

    def take_gradient(self) -> Optional[list[Any]]:
        """The tiles of the gradient that a backward call has computed for the whole array, or None.

        They are in the parameter's layout. Later calls return None.
        """
        with self._lock:
            owner = self.owner()
            if owner is None or self._gradient is None or not all(marks_of([self._whole])):
                return None
            set_marks([self._whole], [False])
            with autograd.pause():
                return owner._tofu.scatter(self._gradient)

    def before_backward(self) -> None:
        """Flush; save copies that the backward pass may write to (BatchNorm's statistics)."""
        with self._lock:
            if not self._recorded:
                self.flush()
            elif self._write_back():
                assert self._copy is not None
                self._before = self._copy.copy()

    def expect_gradient(self) -> None:
        """Forget the gradient of a backward call that failed, or that others were added to."""
        with self._lock:
            if self._gradient is not None:
                set_marks([self._whole], [False])
                # MXNet may mark a gradient that it does not write, as that of a Dense layer's bias
                # if the weight has none.
                if self._adds or number_recorded(self._whole) > 1:
                    with autograd.pause():
                        nd.zeros_like(self._gradient, out=self._gradient)

    def after_backward(self) -> None:
        """Synchronize from the side that the backward pass has written to."""
        with self._lock:
            before, self._before = self._before, None
            if self._recorded and before is not None and self._copy is not None:
                if self._copy.asnumpy().tobytes() != before.asnumpy().tobytes():
                    self.flush()
                    return
                self._recorded = False
            self.refresh()

    def flush(self) -> None:
        """Write the copy back into the tiles, and free it unless the script holds it."""
        with self._lock:
            if self._is_writing:  # arrays that are freed meanwhile may cause another flush
                return
            is_held = self._is_held()  # writing back shares the memory until MXNet has done it
            if self._write_back():
                self._recorded = False
                if not is_held:
                    self.forget()

    def refresh(self) -> None:
        """Read the tiles into the copy if the script holds it."""
        with self._lock:
            owner = self.owner()
            if not self._is_held() or owner is None or not self._is_there(owner):
                self.forget()
            elif self._copy is not None and not self._is_gone(owner):
                self._gather(self._copy)

    def forget(self) -> None:
        """Stop synchronizing; the array that the script holds becomes a plain copy."""
        with self._lock:
            self._copy = self._whole = self._before = self._gradient = None
            self._equal = self._recorded = False
            self._views.discard(self)

    def _write_back(self) -> bool:
        """Write the copy into the tiles; return False if either no longer exists."""
        owner = self.owner()
        if self._copy is None or owner is None or not self._is_there(owner):
            self.forget()
            return False
        if self._equal:
            with autograd.pause():
                tiles, layout = self._tiles(owner, to_write=True)
                self._is_writing = True
                try:
                    owner._tofu.scatter(self._copy, out=tiles, layout=layout)
                finally:
                    self._is_writing = False
        return True

    def _is_held(self) -> bool:
        if self._copy is None:  # freed meanwhile
            return False
        if self._whole is not None and sys.getrefcount(self._whole) > _OWN_REFERENCES:
            return True
        is_variable = 0 if self._whole is None else number_recorded(self._whole)
        if is_variable > 1 or (self._gradient is not None and all(marks_of([self._whole]))):
            return True  # a graph has it, or had it until a backward call whose gradient is to come
        return number_sharing(self._copy) > 1 + (self._whole is not None) + is_variable

    def _is_there(self, owner: Owner) -> bool:
        return owner._tofu.variables is not None and (
            not self._of_gradient or owner._tofu.gradients is not None
        )

    def _is_gone(self, owner: Owner) -> bool:
        """Whether only the copy is left, because an update has used the gradient."""
        gradients = owner._tofu.gradients
        return self._of_gradient and gradients is not None and gradients.is_gone

    def _tiles(self, owner: Owner, *, to_write: bool = False) -> tuple[list[Any], Any]:
        """The tiles and their layout."""
        if not self._of_gradient:
            return list(owner._tofu.variables or ()), owner._tofu.layout
        gradients = owner._tofu.gradients
        assert gradients is not None
        if to_write and gradients.is_gone:
            gradients.zero()
        return gradients.in_place()

    def _gather(self, whole: Any) -> None:
        owner = self.owner()
        assert owner is not None
        with autograd.pause():
            tiles, layout = self._tiles(owner)
            owner._tofu.gather(tiles, whole.context, out=whole, layout=layout)
        self._equal = True


def _handed_out(array: Any, parameter: Optional[Owner], *, numpy: bool) -> Any:
    """Return an array for the script, with the same memory.

    Args:
        array: a classic array.
        parameter: the parameter whose value it is; None for a gradient.
        numpy: whether the script gets arrays of ``mx.np``.
    """
    whole = (np_ndarray if numpy else NDArray)(_same_handle(array, NDArrayHandle()))
    if parameter is not None:
        _name_parameter(whole, parameter)
    return whole


def _name_parameter(array: Any, parameter: Owner) -> None:
    """Tell the array of a parameter's whole value whose it is."""
    handle = _same_handle(array, _ValueHandle())
    handle.parameter = weakref.ref(parameter)
    former = NDArray(array.handle)
    array.handle = handle
    del former  # frees the other handle


def _same_handle(array: Any, handle: Any) -> Any:
    """Make `handle` another one of the array, with its memory and place in autograd's graph."""
    check_call(_LIB.MXShallowCopyNDArray(array.handle, ctypes.byref(handle)))
    return handle


def before_backward(views: Iterable[WholeArray]) -> None:
    """Synchronize tiles and copies before a backward pass."""
    for view in list(views):
        view.before_backward()
    for view in list(views):  # an adopted gradient's memory may be that of another view
        view.expect_gradient()


def after_backward(views: Iterable[WholeArray]) -> None:
    """Synchronize tiles and copies after a backward pass."""
    for view in list(views):
        view.after_backward()


def flush(views: Iterable[WholeArray]) -> None:
    """Write all handed-out copies back into their tiles."""
    for view in list(views):
        view.flush()


def refresh(views: Iterable[WholeArray]) -> None:
    """Read all tiles into the copies that scripts still hold."""
    for view in list(views):
        view.refresh()
