"""Tests whether an optimizer may update tiles one by one, by trying it.

An optimizer that reads whole tensors (a norm, a mean), counts its calls, or draws
random numbers gives different results on tiles. A list of names could not cover the
user's own optimizers. So copies of the optimizer update small tensors, once whole and
once in two tiles along each dimension, and the results are compared. An optimizer may treat
tensors differently by their number of dimensions, so there is one of each that layers have.
"""

from __future__ import annotations

import copy
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

__all__ = ["updates_elementwise"]

# The weights of layers have one (biases) to five dimensions (Conv3D). No two of the first three
# lengths are equal, so an optimizer that mistakes one dimension for another is found, too.
_SHAPES = [(4, 6, 2, 2, 2)[:rank] for rank in range(1, 6)]
# Small and large gradients: an optimizer may act on a norm only beyond a threshold.
_GRADIENT_SCALES = (1e-3, 1.0, 1e3)
_RELATIVE_TOLERANCE = 1e-6


def updates_elementwise(optimizer: Any, context: Any) -> bool:
    """Whether `optimizer` updates each element independently of the others.

    Args:
        optimizer: an mx.optimizer.Optimizer; only copies of it run.
        context: the context to try it on.
    """
    try:
        return all(_is_elementwise(optimizer, shape, context) for shape in _SHAPES)
    except Exception:  # an optimizer that cannot be tried is not trusted with tiles
        return False


def _is_elementwise(optimizer: Any, shape: tuple[int, ...], context: Any) -> bool:
    """Whether a tensor of a shape is updated in the same way in two tiles along each dimension."""
    random = np.random.RandomState(0)
    weight = random.uniform(-1, 1, shape).astype(np.float32)
    gradients = [
        (scale * random.uniform(-1, 1, shape)).astype(np.float32) for scale in _GRADIENT_SCALES
    ]
    whole = _run(optimizer, 0, 1, weight, gradients, context)
    return all(
        np.allclose(
            whole,
            _run(optimizer, dim, 2, weight, gradients, context),
            rtol=_RELATIVE_TOLERANCE,
            atol=0.0,
            equal_nan=True,
        )
        for dim in range(len(shape))
    )


def _run(
    optimizer: Any, dim: int, parts: int, weight: Any, gradients: list[Any], context: Any
) -> Any:
    """The weight after one update per gradient, in parts along a dimension.

    Each part has its own updater.
    """
    tried = copy.deepcopy(optimizer)
    # A schedule may start at zero, which would hide every difference.
    tried.lr_scheduler, tried.lr, tried.rescale_grad = None, 0.1, 1.0
    tried.param_dict = {}
    updaters = [mx.optimizer.get_updater(tried) for _ in range(parts)]
    arrays = [dense_array(tile, ctx=context) for tile in np.split(weight, parts, dim)]
    counts: list[dict[Any, Any]] = [{} for _ in range(parts)]
    for gradient in gradients:
        tiles = np.split(gradient, parts, dim)
        for updater, array, tile, count in zip(updaters, arrays, tiles, counts):
            # Every worker has its own counts, as every device has in MXNet.
            tried._all_index_update_counts = {context.device_id: count}
            updater([0], [dense_array(tile, ctx=context)], [array])
    return np.concatenate([array.asnumpy() for array in arrays], dim)
