"""SGD on tiles, as many of them at a time as is fast.

MXNet's SGD updates 4 weights by one operator unless told otherwise, in the order of the
parameters. Workers have k times as many weights of a k-th of the size, so the calls would cost
more than the arithmetic. The operator goes over the largest weight of a call, and looks at every
weight at each element, so weights of different sizes in one call are slow. Here a call takes
weights of similar sizes: many small ones, and a large one alone. Which weights share a call
changes no result; learning rates are found in MXNet's order, as a schedule may advance on the way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import nd

from tofu.plan.layout import Layout

from .arrays import classic

__all__ = ["Job", "group_tiles", "is_grouped", "update_in_groups", "update_tiles"]

Job = tuple[int, Any, Any]  # index, gradient, weight, in the order of an updater's arguments

_AT_MOST = 60  # what MXNet's operator has places for
# Elements of the largest weight, times weights. With 2^15 to 2^18, the update of ResNet-50 takes
# two thirds of the time that it takes with MXNet's groups.
_ELEMENTS = 1 << 16


def update_tiles(
    optimizer: Any,
    updaters: Sequence[Any],
    jobs: Sequence[Sequence[Job]],
    layouts: Sequence[Layout],
) -> None:
    """Update the tiles of every worker, in groups or as the optimizer does.

    Args:
        optimizer: the updaters'.
        updaters: one per worker, with the states of all tiles.
        jobs: each worker's tiles, of the same parameters.
        layouts: the boxes of these tiles.
    """
    if not jobs[0]:
        return
    if not is_grouped(optimizer):
        for updater, own in zip(updaters, jobs):
            updater(*zip(*own))
        return
    dtypes = [np.dtype(weight.dtype).name for _, _, weight in jobs[0]]
    groups = group_tiles(dtypes, [layout.boxes[0].shape for layout in layouts])
    for updater, own in zip(updaters, jobs):
        update_in_groups(updater, own, dtypes, groups)


def is_grouped(optimizer: Any) -> bool:
    """Whether tiles may be updated in other groups than the optimizer's own."""
    return (
        type(optimizer) is mx.optimizer.SGD
        and optimizer.aggregate_num > 1
        and "MXNET_OPTIMIZER_AGGREGATION_SIZE" not in os.environ
    )


def group_tiles(dtypes: Sequence[str], shapes: Sequence[Sequence[int]]) -> list[list[int]]:
    """The numbers of the tiles that one call updates."""
    sizes = [math.prod(shape) for shape in shapes]
    groups: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda each: (dtypes[each], sizes[each])):
        last = groups[-1] if groups else []
        count = len(last) + 1
        joins = bool(last) and dtypes[last[0]] == dtypes[number]
        if not joins or count > _AT_MOST or count * sizes[number] > _ELEMENTS:
            groups.append([])
        groups[-1].append(number)
    return groups


def update_in_groups(
    updater: Any,
    jobs: Sequence[Job],
    dtypes: Sequence[str],
    groups: Sequence[Sequence[int]],
) -> None:
    """Update the tiles of one worker.

    Args:
        updater: the worker's, whose optimizer is SGD, with the states of all tiles.
        jobs: index, gradient and weight of each tile.
        dtypes: their data types.
        groups: the numbers of the tiles that one call updates, all of one data type.
    """
    optimizer = updater.optimizer
    optimizer._set_current_context(jobs[0][2].context.device_id)
    rates = _rates(optimizer, [job[0] for job in jobs], dtypes)
    options = {"rescale_grad": optimizer.rescale_grad}
    if optimizer.momentum > 0:
        options["momentum"] = optimizer.momentum
    if optimizer.clip_gradient:
        options["clip_gradient"] = optimizer.clip_gradient
    for group in groups:
        is_mixed = optimizer.multi_precision and dtypes[group[0]] == "float16"
        arrays: list[Any] = []
        weights = []
        for index, gradient, weight in (jobs[number] for number in group):
            weights.append(classic(weight))
            arrays += (weights[-1], classic(gradient))
            arrays += _states(updater.states[index], is_mixed, optimizer.momentum > 0)
        lrs, wds = zip(*(rates[number] for number in group))
        _OPERATORS[is_mixed, optimizer.momentum > 0](
            *arrays, out=weights, num_weights=len(weights), lrs=lrs, wds=wds, **options
        )


_OPERATORS = {
    (False, False): nd.multi_sgd_update,
    (False, True): nd.multi_sgd_mom_update,
    (True, False): nd.multi_mp_sgd_update,
    (True, True): nd.multi_mp_sgd_mom_update,
}


def _rates(
    optimizer: Any, indices: Sequence[int], dtypes: Sequence[str]
) -> list[tuple[float, float]]:
    """Count an update of each tile; its learning rate and its weight decay."""
    found: list[tuple[float, float]] = [(0.0, 0.0)] * len(indices)
    for dtype in dict.fromkeys(dtypes):
        numbers = [number for number, each in enumerate(dtypes) if each == dtype]
        for begin in range(0, len(numbers), optimizer.aggregate_num):
            some = numbers[begin : begin + optimizer.aggregate_num]
            at_once = [indices[number] for number in some]
            optimizer._update_count(at_once)
            rates = zip(optimizer._get_lrs(at_once), optimizer._get_wds(at_once))
            for number, both in zip(some, rates):
                found[number] = both
    return found


def _states(state: Any, is_mixed: bool, has_momentum: bool) -> Sequence[Any]:
    """A tile's states in the order of the operator's inputs."""
    if not is_mixed:
        return [state] if has_momentum else []
    momentum, master = state
    return [momentum, master] if has_momentum else [master]
