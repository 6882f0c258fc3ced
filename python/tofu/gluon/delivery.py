"""What recordings deliver past autograd, and who takes it.

A backward call makes gradients of it, ``autograd.grad`` its results. For the latter MXNet knows no
variable of tiled parameters. So it is asked for the gradients of the recordings'
sentinels, and what is delivered meanwhile is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from . import autograd_hooks
from .gradients import is_overwritten
from .parameter import gated_tiles, is_tiled
from .session import active
from .state import Parts, State

__all__ = ["after_backward", "before_backward", "grad"]


def before_backward(state: State) -> None:
    """Before gradients are computed."""
    for parameter in _receivers(state):
        parameter._tofu.gradients.before_backward()


def after_backward(state: State) -> None:
    """After gradients are computed."""
    for parameter in _receivers(state):
        if state.collected is None:
            parameter._tofu.gradients.after_backward()
        else:
            state.collected[parameter] = parameter._tofu.gradients.take_parts()


def grad(original: Callable[..., Any]) -> Callable[..., Any]:
    """autograd.grad, with respect to values of tiled parameters, and tiles, too."""

    def _grad(heads: Any, variables: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        asked = [variables] if isinstance(variables, NDArray) else list(variables)
        asked = [getattr(array, "tofu_tile", array) for array in asked]
        owners = _owners(session.state, asked) if session is not None else []
        if session is None or not any(owner is not None for owner in owners):
            return original(heads, variables, *args, **kwargs)
        # Another thread's backward call frees what a look at the recordings would find.
        with session.state.calls.lock:
            return _grad_of_tiles(
                session.state,
                lambda arrays: original(heads, arrays, *args, **kwargs),
                [heads] if isinstance(heads, NDArray) else heads,
                list(zip(asked, owners)),
            )

    return _grad


def _grad_of_tiles(
    state: State,
    original: Callable[[Sequence[Any]], Any],
    heads: Sequence[Any],
    asked: Sequence[tuple[Any, Any]],
) -> Any:
    """Gradients with respect to arrays, each with the parameter that owns it or None."""
    sentinels = _sentinels(state, heads)
    if not sentinels:  # MXNet says what is wrong
        return original([array if o is None else o._data[0] for array, o in asked])
    known = [[array] if owner is None else gated_tiles(owner) for array, owner in asked]
    flat = [array for arrays in known for array in arrays]
    delivered: Parts = {}
    state.collected = delivered
    try:
        found = iter(original([*flat, *sentinels]))
    finally:
        state.collected = None
    of_each = [[next(found) for _ in arrays] for arrays in known]
    return [
        gradients[0] if owner is None else _result(array, owner, gradients, delivered)
        for (array, owner), gradients in zip(asked, of_each)
    ]


def _owners(state: State, arrays: Sequence[Any]) -> list[Any]:
    """The tiled parameters of which arrays are the value or a tile; None for others."""
    by_tile = {id(tile): p for p in state.tiled for tile in p._data or ()}
    found = [getattr(array, "parameter", by_tile.get(id(array))) for array in arrays]
    return [owner if is_tiled(owner) else None for owner in found]


def _sentinels(state: State, heads: Sequence[Any]) -> list[Any]:
    """Those of the recordings that the heads are computed by."""
    inputs = set().union(*map(autograd_hooks.inputs_of, heads))
    found = (recorded.sentinel_in(inputs) for recorded in state.calls.recorded())
    return [sentinel for sentinel in found if sentinel is not None]


def _result(array: Any, owner: Any, gradients: Sequence[Any], delivered: Parts) -> Any:
    """The gradient by a parameter, or by one of its tiles: what MXNet says, or was delivered."""
    parts = [gradients] if gradients else delivered.get(owner, [])
    if not parts:
        raise MXNetError(
            f"autograd.grad: parameter {owner.name} is unreachable from the outputs; expected "
            "one that they are computed by"
        )
    with autograd.pause():
        sums = [tiles[0] if len(tiles) == 1 else sum(tiles) for tiles in zip(*parts)]
        for tile, total in zip(owner._data, sums):
            if tile is array:
                return total.copy()
        return owner._tofu.gather(sums, array.context)


def _receivers(state: State) -> list[Any]:
    return [p for p in state.tiled if p._tofu.gradients is not None and is_overwritten(p)]
