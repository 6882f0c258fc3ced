"""LAMB, LARS and LBSGD on tiles: each worker updates its own, and shares only sums of squares.

They scale the update of a tensor by norms of the whole tensor. A norm is the root of the
sum of the tiles' squares, each distinct tile counted once; so no tensor is gathered. The
updates are those of ``mx.optimizer``, by MXNet's own operators, in the same order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import nd
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

__all__ = ["Rule", "Spread", "rule_for"]


@dataclasses.dataclass(frozen=True)
class Spread:
    """One parameter to be updated; lists have one item per worker.

    Attributes:
        index: the parameter's, in its Trainer.
        weights, gradients: the tiles.
        states: their optimizer states.
        boxes: where the tiles lie; workers with the same box have the same tile.
    """

    index: int
    weights: Sequence[Any]
    gradients: Sequence[Any]
    states: Sequence[Any]
    boxes: Sequence[Any]

    def sum_of_squares(self, tiles: Sequence[Any]) -> list[Any]:
        """The sum over the whole tensor: one array of one number per worker."""
        distinct = dict(zip(self.boxes, tiles))
        where = tiles[0].context
        parts = [nd.square(nd.norm(tile)).as_in_context(where) for tile in distinct.values()]
        total = nd.add_n(*parts)
        return [total.as_in_context(tile.context) for tile in tiles]


# Counts an update of a parameter, by its index, on every worker.
Count = Callable[[int], None]
# Updates some parameters that one call of the optimizer would update.
Rule = Callable[[Any, Sequence[Spread], Count], None]


def rule_for(optimizer: Any) -> Optional[Rule]:
    """The rule by which an optimizer updates tiles; None if none is known."""
    return _RULES.get(type(optimizer))


def _lamb(optimizer: Any, tensors: Sequence[Spread], count: Count) -> None:
    for tensor in tensors:
        count(tensor.index)
        _lamb_one(optimizer, tensor)


def _lamb_one(optimizer: Any, tensor: Spread) -> None:
    lr, wd = optimizer._get_lr(tensor.index), optimizer._get_wd(tensor.index)
    first = {
        **{name: getattr(optimizer, name) for name in ("beta1", "beta2", "epsilon")},
        "bias_correction": optimizer.bias_correction,
        "rescale_grad": optimizer.rescale_grad,
        "t": optimizer._index_update_count[tensor.index],
        "wd": wd,
    }
    if optimizer.clip_gradient:
        first["clip_gradient"] = optimizer.clip_gradient
    bounds = {name: getattr(optimizer, name) for name in ("lower_bound", "upper_bound")}
    second = {"lr": lr, **{name: bound for name, bound in bounds.items() if bound}}
    masters, gradients, moments = _in_single_precision(optimizer, tensor)
    steps = [
        nd.lamb_update_phase1(master, gradient, *pair, **first)
        for master, gradient, pair in zip(masters, gradients, moments)
    ]
    norms = [map(nd.sqrt, tensor.sum_of_squares(each)) for each in (masters, steps)]
    for master, step, master_norm, step_norm in zip(masters, steps, *norms):
        nd.lamb_update_phase2(master, step, master_norm, step_norm, out=master, **second)
    _set_weights(tensor, masters)


def _lars(optimizer: Any, tensors: Sequence[Spread], count: Count) -> None:
    indices = [each.index for each in tensors]
    for index in indices:
        count(index)
    lrs, wds = optimizer._get_lrs(indices), optimizer._get_wds(indices)
    options = {"rescale_grad": optimizer.rescale_grad}
    if optimizer.momentum > 0:
        options["momentum"] = optimizer.momentum
        if optimizer.momentum_correction and optimizer.last_lr != 0:
            options["momentum"] *= optimizer.cur_lr / optimizer.last_lr
    if optimizer.clip_gradient:
        options["clip_gradient"] = optimizer.clip_gradient
    for each, lr, wd in zip(tensors, lrs, wds):
        _lars_one(optimizer, each, lr, wd, options)


def _lars_one(
    optimizer: Any, tensor: Spread, lr: float, wd: float, options: dict[str, float]
) -> None:
    contexts = [weight.context for weight in tensor.weights]
    rates = [dense_array([lr], ctx=context, dtype="float32") for context in contexts]
    decays = [dense_array([wd], ctx=context, dtype="float32") for context in contexts]
    name = optimizer.idx2name.get(tensor.index, str(tensor.index))
    if not name.endswith(("gamma", "beta", "bias")):
        squares = zip(*(tensor.sum_of_squares(each) for each in (tensor.weights, tensor.gradients)))
        for rate, decay, both in zip(rates, decays, squares):
            weight_square, gradient_square = (each.astype("float32") for each in both)
            scaling = {key: getattr(optimizer, key) for key in ("eta", "eps", "rescale_grad")}
            nd.multi_lars(rate, weight_square, gradient_square, decay, out=rate, **scaling)
    mixed, has_momentum = _is_mixed(optimizer, tensor), optimizer.momentum > 0
    update = {
        (False, False): nd.preloaded_multi_sgd_update,
        (False, True): nd.preloaded_multi_sgd_mom_update,
        (True, False): nd.preloaded_multi_mp_sgd_update,
        (True, True): nd.preloaded_multi_mp_sgd_mom_update,
    }[mixed, has_momentum]
    for worker, (weight, gradient) in enumerate(zip(tensor.weights, tensor.gradients)):
        state = tensor.states[worker]
        if mixed:
            states = [each for each in state if each is not None]
        else:
            states = [state] if has_momentum else []
        inputs = [weight, gradient, *states, rates[worker], decays[worker]]
        update(*inputs, out=[weight], num_weights=1, **options)


def _lbsgd(optimizer: Any, tensors: Sequence[Spread], count: Count) -> None:
    for tensor in tensors:
        lr, wd = optimizer._get_lr(tensor.index), optimizer._get_wd(tensor.index)
        count(tensor.index)
        masters, gradients, momenta = _in_single_precision(optimizer, tensor)
        if optimizer.batch_scale > 1:  # they are kept, and their memory is used again
            gradients = [gradient.copy() for gradient in gradients]
        keys = [(tensor.index, worker) for worker in range(len(masters))]
        sums = [optimizer._cumulate_gradient(g, key) for g, key in zip(gradients, keys)]
        if sums[0]["num_cums"] % optimizer.batch_scale:
            continue  # MXNet's update has a rate of 0 here
        gradients = [each["cum_grad"] / optimizer.batch_scale for each in sums]
        if optimizer.warmup_strategy == "lars":
            lr *= _trust(tensor, masters, gradients, wd)
        else:
            lr *= optimizer._get_lbmult(sums[0]["num_cums"])
        options = {"lr": lr, "wd": wd, "rescale_grad": optimizer.rescale_grad}
        if optimizer.clip_gradient:
            options["clip_gradient"] = optimizer.clip_gradient
        for weight, gradient, momentum in zip(masters, gradients, momenta):
            if momentum is None:
                nd.sgd_update(weight, gradient, out=weight, **options)
            else:
                mixture = {"momentum": optimizer.momentum, **options}
                nd.sgd_mom_update(weight, gradient, momentum, out=weight, **mixture)
        _set_weights(tensor, masters)
        for key in keys:
            optimizer._reset_cum_gradient(key)


def _trust(tensor: Spread, weights: Sequence[Any], gradients: Sequence[Any], wd: float) -> float:
    """LBSGD's factor of the learning rate."""
    weight_square, gradient_square = (
        float(tensor.sum_of_squares(tiles)[0].asscalar()) for tiles in (weights, gradients)
    )
    ratio = weight_square / (gradient_square + wd * weight_square + 1e-18)
    return min(max(math.sqrt(ratio), 0.01), 100.0)


def _in_single_precision(
    optimizer: Any, tensor: Spread
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Weights, gradients and states; for weights in half precision, those of their masters.

    MXNet's own LAMB operators for masters do not update the moments.
    """
    if not _is_mixed(optimizer, tensor):
        return tensor.weights, tensor.gradients, tensor.states
    gradients = [gradient.astype("float32") for gradient in tensor.gradients]
    return [state[0] for state in tensor.states], gradients, [state[1] for state in tensor.states]


def _set_weights(tensor: Spread, masters: Sequence[Any]) -> None:
    """Round masters to the weights, unless these are the same arrays."""
    for weight, master in zip(tensor.weights, masters):
        if master is not weight:
            nd.cast(master, dtype=weight.dtype, out=weight)


def _is_mixed(optimizer: Any, tensor: Spread) -> bool:
    """Whether weights in half precision have copies in single precision."""
    return bool(optimizer.multi_precision and tensor.weights[0].dtype == np.float16)


_RULES: dict[type, Rule] = {
    mx.optimizer.LAMB: _lamb,
    mx.optimizer.LARS: _lars,
    mx.optimizer.LBSGD: _lbsgd,
}
