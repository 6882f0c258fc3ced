"""Parameters that live as tiles on the workers.

``tile`` spreads the value of an initialized Parameter over the workers. The object stays
the same, so every block and Trainer that refers to it sees the change. ``untile``
reverses it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import MutableSequence, Sequence
from typing import Any, Callable, Optional

import numpy as np
from mxnet import autograd, context, nd
from mxnet.base import MXNetError
from mxnet.gluon import Parameter
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

from tofu.errors import InternalError, PlanError
from tofu.gluon.session.arrays import classic, is_numpy, shown
from tofu.gluon.session.async_errors import named, naming
from tofu.gluon.session.autograd_hooks import in_graph
from tofu.gluon.session.marks import marks_of, set_marks
from tofu.gluon.session.session import Session, active
from tofu.mx.sharing import share_memory
from tofu.plans.parts import Parts

from .gradients import Gradients, arrays_without_memory, is_overwritten
from .tile_state import TileState, Update
from .views import View

__all__ = [
    "Tiled",
    "TilingError",
    "check_context",
    "check_tileable",
    "gated_tiles",
    "is_tiled",
    "note_reading",
    "shape_of",
    "tile",
    "untile",
    "variables_of",
    "zero_grad",
]


class TilingError(MXNetError):  # type: ignore[misc]
    """An operator failed while a parameter was divided, most likely for want of memory."""


class _WholeArrays(MutableSequence[Any]):
    """The value or gradient of a tiled parameter as MXNet keeps it: an array for each context.

    They are gathered when they are read. Another array in their place makes the parameter plain.

    Args:
        parameter: the parameter.
        name: the attribute of a plain one, ``_data`` or ``_grad``.
    """

    def __init__(self, parameter: Any, name: str) -> None:
        self._parameter, self._name = parameter, name

    def __len__(self) -> int:
        tiled = is_tiled(self._parameter)
        return len(self._parameter._ctx_list if tiled else self._plain())

    def __getitem__(self, at: Any) -> Any:
        if not is_tiled(self._parameter):
            return self._plain()[at]
        read = self._parameter.data if self._name == "_data" else self._parameter.grad
        return [read(context) for context in self._parameter._ctx_list][at]

    def __setitem__(self, at: Any, array: Any) -> None:
        if self[at] is not array:  # else, as after ``_data[0] += 1``, it has changed already
            self._plain()[at] = array

    def __delitem__(self, at: Any) -> None:
        del self._plain()[at]

    def insert(self, at: int, array: Any) -> None:
        self._plain().insert(at, array)

    def __repr__(self) -> str:
        return repr(list(self))

    def _plain(self) -> list[Any]:
        if is_tiled(self._parameter):
            untile(self._parameter)
        arrays: list[Any] = getattr(self._parameter, self._name)
        return arrays


class Tiled:
    """A Parameter, or Constant, whose value lives as tiles.

    Differences from the parent class:

    - ``data`` and ``grad`` return whole arrays, gathered on the script's context, and
      ``list_data`` and ``list_grad`` return them for each context. Writes to
      them reach the tiles before these are next used. ``data`` is a variable of autograd if it
      is trained, as in the parent class. ``_data`` and ``_grad``, which some scripts read, have
      the same arrays; a script that puts others there has a plain parameter again;
    - ``list_ctx`` returns the script's contexts, and ``reset_ctx`` changes only them.
    """

    _tofu: TileState
    _tofu_views: Optional[tuple[View, View]] = None  # of the value and of the gradient
    name: str
    _ctx_list: list[Any]
    _plain_class: type
    data: Callable[..., Any]

    @property
    def _data(self) -> Optional[Sequence[Any]]:
        return None if self._tofu.variables is None else _WholeArrays(self, "_data")

    @_data.setter
    def _data(self, arrays: Optional[Sequence[Any]]) -> None:
        state = self._tofu
        if arrays is None:  # MXNet is about to initialize it again
            state.variables = None
        elif state.variables is None:
            state.numpy = is_numpy(arrays[0])
            _forget_views(self)
            with autograd.pause():
                state.scatter(arrays[0], out=state.tiles)
            state.variables = [array.detach() for array in state.tiles]
        else:
            untile(self)
            self._data = arrays

    @property
    def _grad(self) -> Optional[Sequence[Any]]:
        return None if self._tofu.gradients is None else _WholeArrays(self, "_grad")

    @_grad.setter
    def _grad(self, arrays: Optional[Sequence[Any]]) -> None:
        if arrays is None:
            self._tofu.gradients = None
        else:
            untile(self)
            self._grad = arrays

    @property
    def grad_req(self) -> str:
        """The way in which gradients are written: "write", "add" or "null"."""
        return str(self._plain_class.grad_req.fget(self))  # type: ignore[attr-defined]

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if self._tofu.gradients is not None and req != self.grad_req:
            # MXNet makes new arrays filled with zeros.
            self._views()[1].forget()
            if req == "null":
                self._tofu.gradients = None
            else:
                self._tofu.gradients.zero()
        is_new = req != self.grad_req
        self._plain_class.grad_req.fset(self, req)  # type: ignore[attr-defined]
        if is_new and self._tofu_views is not None:
            self._tofu_views[0].mark()

    def grad(self, ctx: Any = None) -> Any:
        """Return the whole gradient on one of the script's contexts."""
        if self._data is None or self._tofu.gradients is None:
            return super().grad(ctx)  # type: ignore[misc]
        return self._views()[1].get(self._script_context(ctx))

    def list_data(self) -> list[Any]:
        """Return the whole value on each of the script's contexts."""
        if self._data is None:
            return super().list_data()  # type: ignore[misc,no-any-return]
        return [self.data(context) for context in self._ctx_list]

    def list_grad(self) -> list[Any]:
        """Return the whole gradient on each of the script's contexts."""
        if self._data is None or self._tofu.gradients is None:
            return super().list_grad()  # type: ignore[misc,no-any-return]
        return [self.grad(context) for context in self._ctx_list]

    def _check_and_get(self, arr_list: Optional[list[Any]], ctx: Any) -> Any:
        if arr_list is None:
            return super()._check_and_get(arr_list, ctx)  # type: ignore[misc]
        if self._tofu.state.depth.peeking:
            return self._tofu.variables[0]  # type: ignore[index]
        return self._views()[0].get(self._script_context(ctx))

    def _script_context(self, ctx: Any) -> Any:
        """One of the script's contexts, as ``data`` takes it; raises MXNet's error for others."""
        if ctx is None:
            return self._ctx_list[0]
        # Use the parent's check of contexts, with contexts in place of its arrays.
        return super()._check_and_get(list(self._ctx_list), ctx)  # type: ignore[misc]

    def _views(self) -> tuple[View, View]:
        with self._tofu.state.changing:  # threads must get the same
            if self._tofu_views is None:
                self._tofu_views = (View(self, of_gradient=False), View(self, of_gradient=True))
            return self._tofu_views

    def _init_impl(self, data: Any, ctx_list: Sequence[Any]) -> None:
        self._data = None
        super()._init_impl(data, ctx_list)  # type: ignore[misc]

    def _init_grad(self) -> None:
        state = self._tofu
        assert state.variables is not None
        if self.grad_req == "null":
            state.variables = [tile.detach() for tile in state.variables]
            _mark(self, None, fresh=False)
        elif is_overwritten(self):
            _mark_zeros(self, fresh=False)
        else:
            with autograd.pause():
                zeros = [nd.zeros_like(tile) for tile in state.variables]
            _mark(self, zeros, fresh=False)

    def _reduce(self) -> Any:
        if self._data is None:
            return super()._reduce()  # type: ignore[misc]
        if self._tofu_views is not None:
            self._tofu_views[0].flush()
        whole = self._tofu.gather(self._tofu.variables, context.cpu())  # type: ignore[arg-type]
        return shown([whole], numpy=self._tofu.numpy)[0]

    def set_data(self, data: Any) -> None:
        """Set the value on all workers, from a whole array.

        Raises:
            MXNetError: autograd records, the value is a variable, and `data` is an NDArray.
        """
        self.shape = data.shape
        variables = self._tofu.variables
        if variables is None:
            super().set_data(data)  # type: ignore[misc]
            return
        if isinstance(data, NDArray) and self.grad_req != "null" and autograd.is_recording():
            variables[0].detach().copyto(variables[0])  # MXNet's own error
        value, _ = self._views()
        whole = data if isinstance(data, NDArray) else dense_array(data, ctx=self._ctx_list[0])
        with autograd.pause():
            if np.dtype(whole.dtype) != np.dtype(variables[0].dtype):
                whole = whole.astype(variables[0].dtype)
            self._tofu.scatter(whole, out=variables)
        self._tofu.updates += 1
        value.refresh()

    def zero_grad(self) -> None:
        """Set the gradient on all workers to 0."""
        if self._tofu.gradients is not None:
            self._tofu.gradients.zero()
        self._views()[1].refresh()

    def cast(self, dtype: Any) -> None:
        """Change the data type of value and gradient."""
        value, gradient = self._views()
        value.flush()
        gradient.flush()
        state, gradients = self._tofu, self._tofu.gradients
        was_gone = gradients is not None and gradients.is_gone
        if gradients is not None and was_gone:
            gradients.zero()
        self._dtype = dtype
        if state.variables is None:
            return
        with autograd.pause():
            state.variables = [tile.astype(dtype) for tile in state.variables]
            old = None if gradients is None else gradients.keep()
            home = None if old is None else [tile.astype(dtype) for tile in old]
        _mark(self, home, fresh=False)
        if state.gradients is not None and was_gone:
            state.gradients.give_up()
        _forget_views(self)
        state.tiles = list(state.variables)
        state.generation += 1
        state.forget_views()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Copies and pickles are plain parameters.
        tofu_names = ("_tofu", "_tofu_views")
        state = {name: value for name, value in self.__dict__.items() if name not in tofu_names}
        state["_data"] = _plain_copy(self, self._tofu.variables)
        state["_grad"] = _plain_copy(self, *_gradient_tiles(self))
        return object.__new__, (self._plain_class,), state


for _name, _method in vars(Tiled).items():  # errors about arguments name the parent class's
    if inspect.isfunction(_method) and hasattr(Parameter, _name):
        _method.__qualname__ = f"{Parameter.__name__}.{_name}"


def is_tiled(parameter: Any) -> bool:
    """Whether a parameter lives as tiles."""
    return isinstance(parameter, Tiled)


def variables_of(parameter: Any) -> list[Any]:
    """The arrays of an initialized parameter that autograd knows: its tiles, if it is tiled."""
    arrays: list[Any] = parameter._tofu.variables if is_tiled(parameter) else parameter._data
    return arrays


def shape_of(parameter: Any) -> tuple[int, ...]:
    """The whole shape of an initialized parameter (its own attribute may be None)."""
    whole = parameter._tofu.layout if is_tiled(parameter) else parameter._data[0]
    return tuple(whole.shape)


def check_tileable(parameter: Any) -> None:
    """Raise PlanError unless `parameter` can be tiled."""
    if parameter._stype != "default" or parameter._grad_stype != "default":
        raise PlanError(
            f"parameter {parameter.name}: value or gradient is sparse "
            f"({parameter._stype}, {parameter._grad_stype}), expected dense ones; "
            "make the layer without sparse_grad"
        )
    if len(parameter.list_ctx()) != 1:
        raise PlanError(
            f"parameter {parameter.name}: initialized on {parameter.list_ctx()}, expected one "
            "context; initialize it on one, and tofu splits the batch over the workers"
        )
    if not _has_own_arrays(parameter):
        raise PlanError(
            f"parameter {parameter.name}: the script has replaced its array or its gradient, so "
            "autograd does not write that gradient; expected the arrays of initialize(); write "
            "into them, as set_data() does"
        )


def _has_own_arrays(parameter: Any) -> bool:
    """Whether autograd writes the gradient of a parameter's value where the parameter has it."""
    (array,) = parameter._data
    if parameter._grad is None:
        return not in_graph(array)
    return array.grad is not None and share_memory(array.grad, parameter._grad[0])


def check_context(parameter: Any, ctx: Any) -> None:
    """Raise MXNet's RuntimeError unless `parameter` is on the context of a call's input."""
    if ctx not in parameter._ctx_list:
        find = parameter._script_context if is_tiled(parameter) else parameter.data
        find(ctx)


def tile(
    parameter: Any,
    layout: Any,
    session: Session,
    cuts: Sequence[int],
    parts: Sequence[int],
    update: Optional[Update] = None,
) -> None:
    """Spread an initialized parameter over the workers and drop its whole array.

    Args:
        parameter: a Parameter; its class changes to a subclass of Tiled.
        layout: the box of every worker's tile.
        session: the session that the parameter then belongs to.
        cuts: the dimension that each step of the plan cuts, -1 for none.
        parts: the number of parts that each step cuts into.
        update: the part that every worker updates; None: its tile, unless a later plan says
            otherwise.

    Raises:
        TilingError: an operator failed; the parameter is unchanged.
    """
    if is_tiled(parameter):
        raise InternalError(f"parameter {parameter.name} is tiled already")
    check_tileable(parameter)
    plain_arrays = [*parameter._data, *(parameter._grad or ())]
    whole = classic(parameter._data[0])
    gradient = None if parameter._grad is None else classic(parameter._grad[0])
    numpy = is_numpy(parameter._data[0])
    state = TileState(layout, session, tuple(cuts), Parts(parts), update, numpy=numpy)
    state.tiles, gradients = _spread(parameter, whole, gradient, state)
    fresh = gradient is not None and bool(whole._fresh_grad)
    plain: type = type(parameter)
    before = dict(vars(parameter))
    try:
        with session.state.changing:  # other threads read value and gradient, plain or from tiles
            parameter._tofu = state
            state.variables = [array.detach() for array in state.tiles]
            if gradient is not None and gradients is None:
                _mark_zeros(parameter, fresh)
            else:
                _mark(parameter, gradients, fresh)
            parameter.__class__ = _tiled_class(plain)
            del vars(parameter)["_data"], vars(parameter)["_grad"]
        session.state.tiled.add(parameter)
    except BaseException:  # such as Control-C: half tiled, it would fail in every later step
        session.state.tiled.discard(parameter)
        parameter.__class__ = plain
        vars(parameter).clear()
        vars(parameter).update(before)
        raise
    del before
    if state.gradients is not None and parameter in session.state.read:
        state.gradients.expect_to_stay()
    del whole, gradient
    _adopt(parameter, plain_arrays)


def _adopt(parameter: Any, arrays: list[Any]) -> None:
    """Have views follow the arrays of value and gradient that the script holds, if it does.

    arrays: the plain parameter's, in the only list of them that tofu has; it is emptied.
    """
    gradient = arrays.pop() if len(arrays) > 1 else None
    views = parameter._views()
    views[0].adopt(arrays.pop(), gradient)
    if gradient is not None:
        views[1].adopt(gradient)
    del gradient
    for view in views:
        view.forget_unless_held()


def _spread(
    parameter: Any, whole: Any, gradient: Optional[Any], state: TileState
) -> tuple[list[Any], Optional[list[Any]]]:
    """Compute the tiles of a value and of its gradient.

    A gradient of 0 that every backward pass overwrites gets no tiles.
    """
    gradients = None
    what = f"parameter {parameter.name}: dividing it over the workers"
    with named(state.session), naming(what, TilingError):
        with autograd.pause():
            tiles = state.scatter(whole)
            if gradient is not None and (not is_overwritten(parameter) or _has_values(gradient)):
                gradients = state.scatter(gradient)
        for array in (*tiles, *(gradients or ())):
            array.wait_to_read()
    return tiles, gradients


def untile(parameter: Any) -> None:
    """Make a tiled parameter a plain one again, on the script's context."""
    state: TileState = parameter._tofu
    where, tiles, gradients = parameter._ctx_list[0], state.variables, state.gradients
    value = gradient = None
    if tiles is not None:
        value = [parameter._views()[0].get(where)]  # the script's, if it holds it
    if gradients is not None:
        if gradients.is_gone:
            gradients.zero()
        gradient = [parameter._views()[1].get(where)]
    fresh = tiles is not None and all(marks_of(tiles))
    _forget_views(parameter)
    state.state.tiled.discard(parameter)
    parameter.__class__ = parameter._plain_class
    del parameter._tofu
    vars(parameter).pop("_tofu_views", None)
    parameter._data, parameter._grad = value, gradient
    if value is not None and gradient is not None:
        autograd.mark_variables(value, gradient, parameter.grad_req)
        set_marks(value, [fresh])


def gated_tiles(parameter: Any) -> list[Any]:
    """The tiles of a tiled parameter that enter gates (tofu.gluon.training.recording)."""
    return [] if is_overwritten(parameter) else parameter._tofu.variables


def note_reading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Parameter.grad: a script that reads a gradient before training may do so at any time."""

    def grad(self: Any, ctx: Any = None) -> Any:
        session = active()
        if session is None or is_tiled(self):
            return original(self, ctx)
        with session.state.changing:  # another thread may be dividing it
            if is_tiled(self):
                return self.grad(ctx)
            session.state.read.add(self)
            return original(self, ctx)

    return grad


def zero_grad(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap ParameterDict.zero_grad: do not read the gradients of tiled parameters."""

    def _zero_grad(self: Any) -> None:
        others = type(self)()
        for name, parameter in self.items():
            if is_tiled(parameter):
                parameter.zero_grad()
            else:
                others._params[name] = parameter
        original(others)

    return _zero_grad


@functools.cache
def _tiled_class(plain: type) -> type:
    return type(f"Tiled{plain.__name__}", (Tiled, plain), {"_plain_class": plain})


def _mark(parameter: Any, gradients: Optional[list[Any]], fresh: bool) -> None:
    state: TileState = parameter._tofu
    state.gradients = None
    if gradients is None:
        return
    assert state.variables is not None
    state.gradients = Gradients(parameter.name, state.variables, gradients, state, has_memory=True)
    autograd.mark_variables(state.variables, gradients, parameter.grad_req)
    set_marks(state.variables, [fresh] * len(state.variables))


def _mark_zeros(parameter: Any, fresh: bool) -> None:
    """Give a parameter a gradient of 0 that has no memory until something is written to it."""
    state: TileState = parameter._tofu
    tiles = state.variables
    assert tiles is not None
    home = arrays_without_memory(tiles)
    autograd.mark_variables(tiles, home, parameter.grad_req)
    state.gradients = Gradients(parameter.name, tiles, home, state, has_memory=False)
    set_marks(tiles, [fresh] * len(tiles))


def _has_values(array: Any) -> bool:
    with autograd.pause():
        return bool(nd.max(nd.abs(array)).asscalar() != 0)  # NaN too


def _gradient_tiles(parameter: Any) -> tuple[Optional[list[Any]], Any]:
    """The tiles of a tiled parameter's gradient and their layout; zeros where it is gone."""
    state: TileState = parameter._tofu
    if state.gradients is None:
        return None, state.layout
    if state.gradients.is_gone:
        return [nd.zeros_like(tile) for tile in parameter._tofu.variables], state.layout
    return state.gradients.in_place()


def _forget_views(parameter: Any) -> None:
    for view in parameter._tofu_views or ():
        view.forget()


def _plain_copy(
    parameter: Any, tiles: Optional[list[Any]], layout: Optional[Any] = None
) -> Optional[list[Any]]:
    if tiles is None:
        return None
    for view in parameter._views():
        view.flush()
    return _plain(parameter._tofu, tiles, parameter._ctx_list[0], layout)


def _plain(
    state: TileState, tiles: Sequence[Any], where: Any, layout: Optional[Any] = None
) -> list[Any]:
    """The arrays of a plain parameter on one context, gathered from tiles."""
    return shown([state.gather(tiles, where, layout=layout)], numpy=state.numpy)
