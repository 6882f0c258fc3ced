"""Converts between MXNet's classic arrays, which tofu uses, and its NumPy arrays, for scripts.

MXNet has two classes of arrays, ``mx.nd.NDArray`` and ``mx.np.ndarray``, which can share
memory and a place in autograd's graph. The Gluon layer and all below it use classic ones
throughout. A script gets the class that MXNet would give it: of an output that of the block's
symbol, of a parameter's value, gradient or tile the one that it was initialized with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mxnet as mx

__all__ = ["classic", "gives_numpy", "is_numpy", "shown"]


def is_numpy(array: Any) -> bool:
    """Whether an array is of the class ``mx.np.ndarray``."""
    return isinstance(array, mx.np.ndarray)


def gives_numpy(symbol: Any) -> bool:
    """Whether MXNet gives the outputs of a symbol as ``mx.np.ndarray``."""
    return isinstance(symbol, mx.sym.np._Symbol)


def classic(array: Any) -> Any:
    """The array itself, or a classic one with the same memory and place in the graph."""
    return array.as_nd_ndarray()


def shown(arrays: Iterable[Any], *, numpy: bool) -> list[Any]:
    """Classic arrays as a script gets them, with the same memory and place in the graph."""
    return [array.as_np_ndarray() if numpy else array for array in arrays]
