"""The calls by which an optimizer updates tiles.

All workers make a call before any makes the next one. A schedule may advance between two weights
that have been updated different numbers of times, and every worker needs the serial run's rates.

SGD takes as many tiles at a time as is fast. MXNet's updates 4 weights by one operator unless told
otherwise, in the order of the parameters. Workers have k times as many weights of a k-th of the
size, so the calls would cost more than the arithmetic. The operator goes over the largest weight of
a call, and looks at every weight at each element, so weights of different sizes in one call are
slow. Here a call takes weights of similar sizes: many small ones, and a large one alone. Which
weights share a call changes no result.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import mxnet as mx
from mxnet import nd

from tofu.gluon.session.arrays import classic

__all__ = ["Call", "Job", "Tile", "calls_for", "group_tiles", "is_grouped"]

Job = tuple[int, Any, Any]  # index, gradient, weight, in the order of an updater's arguments

_AT_MOST = 60  # weights that one call of MXNet's operator takes
# Elements of the largest weight, times weights. With 2^15 to 2^18, the update of ResNet-50 takes
# two thirds of the time that it takes with MXNet's groups.
_ELEMENTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Tile:
    """The part of a weight that a worker updates.

    Attributes:
        index: the weight's index in its Trainer.
        dtype: its data type.
        shape: the shape of the first worker's part.
        is_copied: whether a worker updates a copy of its part, or reads a copy of the gradient.
    """

    index: int
    dtype: str
    shape: Sequence[int]
    is_copied: bool


class Call(NamedTuple):
    """An update of some tiles, on every worker.

    Attributes:
        numbers: which tiles.
        update: updates them on one worker, given its updater and its jobs.
    """

    numbers: list[int]
    update: Callable[[Any, Sequence[Job]], None]


def calls_for(optimizer: Any, devices: Sequence[int], tiles: Sequence[Tile]) -> list[Call]:
    """Return the calls that update tiles, in groups or as the optimizer does.

    Calls in groups are counted when this returns, and must be made.

    Args:
        optimizer: the updaters', with the states of all tiles.
        devices: for which devices the optimizer counts updates, one per worker.
        tiles: the tiles of one worker.
    """
    dtypes = [tile.dtype for tile in tiles]
    calls = _mxnets_calls(optimizer, dtypes)
    if not is_grouped(optimizer):
        counts = optimizer._all_index_update_counts.get(devices[0], {})
        is_even = len({counts.get(tile.index) for tile in tiles}) == 1
        if is_even and not any(tile.is_copied for tile in tiles):
            calls = [list(range(len(tiles)))]  # the updater is faster over many
        return [Call(numbers, _by_optimizer) for numbers in calls]
    rates: list[tuple[float, float]] = [(0.0, 0.0)] * len(tiles)
    for numbers in calls:
        indices = [tiles[number].index for number in numbers]
        for device in devices:
            optimizer._set_current_context(device)
            optimizer._update_count(indices)
        pairs = zip(optimizer._get_lrs(indices), optimizer._get_wds(indices))
        for number, pair in zip(numbers, pairs):
            rates[number] = pair
    return [
        Call(group, functools.partial(_by_sgd, dtypes[group[0]], [rates[each] for each in group]))
        for group in group_tiles(dtypes, [tile.shape for tile in tiles])
    ]


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


def _mxnets_calls(optimizer: Any, dtypes: Sequence[str]) -> list[list[int]]:
    """The numbers of the weights in each call of MXNet's updater."""
    if optimizer.aggregate_num <= 0:
        return [[number] for number in range(len(dtypes))]
    calls = []
    for dtype in dict.fromkeys(dtypes):
        numbers = [number for number, each in enumerate(dtypes) if each == dtype]
        for begin in range(0, len(numbers), optimizer.aggregate_num):
            calls.append(numbers[begin : begin + optimizer.aggregate_num])
    return calls


def _by_optimizer(updater: Any, jobs: Sequence[Job]) -> None:
    updater(*zip(*jobs))


def _by_sgd(
    dtype: str, rates: Sequence[tuple[float, float]], updater: Any, jobs: Sequence[Job]
) -> None:
    """Update tiles of one data type by one operator; `rates`: learning rate and weight decay."""
    optimizer = updater.optimizer
    options = {"rescale_grad": optimizer.rescale_grad}
    if optimizer.momentum > 0:
        options["momentum"] = optimizer.momentum
    if optimizer.clip_gradient:
        options["clip_gradient"] = optimizer.clip_gradient
    is_mixed = optimizer.multi_precision and dtype == "float16"
    arrays: list[Any] = []
    weights = []
    for index, gradient, weight in jobs:
        weights.append(classic(weight))
        arrays += (weights[-1], classic(gradient))
        arrays += _states(updater.states[index], is_mixed, optimizer.momentum > 0)
    lrs, wds = zip(*rates)
    _OPERATORS[is_mixed, optimizer.momentum > 0](
        *arrays, out=weights, num_weights=len(weights), lrs=lrs, wds=wds, **options
    )


_OPERATORS = {
    (False, False): nd.multi_sgd_update,
    (False, True): nd.multi_sgd_mom_update,
    (True, False): nd.multi_mp_sgd_update,
    (True, True): nd.multi_mp_sgd_mom_update,
}


def _states(state: Any, is_mixed: bool, has_momentum: bool) -> Sequence[Any]:
    """A tile's states in the order of the operator's inputs."""
    if not is_mixed:
        return [state] if has_momentum else []
    momentum, master = state
    return [momentum, master] if has_momentum else [master]
