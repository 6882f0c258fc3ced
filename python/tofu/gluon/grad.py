"""``autograd.grad`` with respect to the values of tiled parameters.

MXNet knows no variable for them: recordings deliver their gradients past it. So it is asked
for the gradients of the recordings' sentinels, and what is delivered meanwhile is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from mxnet import autograd, nd
from mxnet.ndarray import NDArray

from . import recording
from .parameter import collecting, gated_tiles, is_tiled

__all__ = ["of_tiles"]

Parts = Mapping[Any, Sequence[Sequence[Any]]]


def of_tiles(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces autograd.grad."""

    def grad(heads: Any, variables: Any, *args: Any, **kwargs: Any) -> Any:
        asked = [variables] if isinstance(variables, NDArray) else list(variables)
        owners = [_owner(array) for array in asked]
        if not any(owner is not None for owner in owners):
            return original(heads, variables, *args, **kwargs)
        sentinels = _sentinels([heads] if isinstance(heads, NDArray) else heads)
        known = [
            [array] if owner is None else gated_tiles(owner) for array, owner in zip(asked, owners)
        ]
        if not sentinels:  # MXNet says what is wrong
            known = [[array] if o is None else o._data for array, o in zip(asked, owners)]
        flat = [array for arrays in known for array in arrays]
        with collecting() as delivered:
            found = iter(original(heads, [*flat, *sentinels], *args, **kwargs))
        of_each = [[next(found) for _ in arrays] for arrays in known]
        return [
            gradients[0] if owner is None else _whole(owner, gradients, delivered, array.context)
            for array, owner, gradients in zip(asked, owners, of_each)
        ]

    return grad


def _owner(array: Any) -> Any:
    """The tiled parameter whose value an array is, or None."""
    parameter = getattr(array, "parameter", None)
    return parameter if is_tiled(parameter) else None


def _sentinels(heads: Sequence[Any]) -> list[Any]:
    """Those of the recordings that the heads are computed by."""
    inputs = set().union(*map(recording.inputs_of, heads))
    found = (recorded.sentinel_in(inputs) for recorded in recording.recorded())
    return [sentinel for sentinel in found if sentinel is not None]


def _whole(owner: Any, gradients: Sequence[Any], delivered: Parts, context: Any) -> Any:
    """The gradient of a parameter: what MXNet says, or the sum of what was delivered."""
    parts = [gradients] if gradients else delivered.get(owner, ())
    with autograd.pause():
        if not parts:
            return owner._tofu.gather([nd.zeros_like(tile) for tile in owner._data], context)
        sums = [tiles[0] if len(tiles) == 1 else sum(tiles) for tiles in zip(*parts)]
        return owner._tofu.gather(sums, context)
