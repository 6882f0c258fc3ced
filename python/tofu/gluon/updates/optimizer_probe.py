"""Tests whether an optimizer may update tiles one by one, by trying it.

An optimizer that reads whole tensors (a norm, a mean), counts its calls, or draws
random numbers gives different results on tiles. A list of names could not cover the
user's own optimizers. So copies of the optimizer update a small tensor, once whole and
once in two tiles, and the results are compared.
"""

from __future__ import annotations

import copy
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import nd

__all__ = ["updates_elementwise"]

_SHAPE = (4, 6)
# Small and large gradients: an optimizer may act on a norm only beyond a threshold.
_GRADIENT_SCALES = (1e-3, 1.0, 1e3)
_RELATIVE_TOLERANCE = 1e-6


def updates_elementwise(optimizer: Any, context: Any) -> bool:
    """Whether `optimizer` updates each element independently of the others.

    Args:
        optimizer: an mx.optimizer.Optimizer; only copies of it run.
        context: the context to try it on.
    """
    random = np.random.RandomState(0)
    weight = random.uniform(-1, 1, _SHAPE).astype(np.float32)
    gradients = [
        (scale * random.uniform(-1, 1, _SHAPE)).astype(np.float32) for scale in _GRADIENT_SCALES
    ]
    try:
        whole = _run(optimizer, [slice(None)], weight, gradients, context)
        tiles = _run(optimizer, [slice(0, 2), slice(2, 4)], weight, gradients, context)
    except Exception:  # an optimizer that cannot be tried is not trusted with tiles
        return False
    return bool(np.allclose(whole, tiles, rtol=_RELATIVE_TOLERANCE, atol=0.0, equal_nan=True))


def _run(
    optimizer: Any, pieces: list[slice], weight: Any, gradients: list[Any], context: Any
) -> Any:
    """The weight after one update per gradient, each piece with its own updater."""
    tried = copy.deepcopy(optimizer)
    # A schedule may start at zero, which would hide every difference.
    tried.lr_scheduler, tried.lr, tried.rescale_grad = None, 0.1, 1.0
    tried.param_dict = {}
    updaters = [mx.optimizer.get_updater(tried) for _ in pieces]
    arrays = [nd.array(weight[piece], ctx=context) for piece in pieces]
    counts: list[dict[Any, Any]] = [{} for _ in pieces]
    for gradient in gradients:
        for updater, array, piece, count in zip(updaters, arrays, pieces, counts):
            # Every worker has its own counts, as every device has in MXNet.
            tried._all_index_update_counts = {context.device_id: count}
            updater([0], [nd.array(gradient[piece], ctx=context)], [array])
    return np.concatenate([array.asnumpy() for array in arrays])
