"""The optimizer states of a gluon.Trainer, of which every worker has its part.

State files are those of plain MXNet: whole states, gathered.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet import autograd
from mxnet.ndarray import NDArray

from tofu.errors import ConfigError
from tofu.gluon.session import messages
from tofu.gluon.session.session import active, describe_contexts
from tofu.gluon.training.tile_state import TileState

from . import checkpoints, distributed
from .norm_updates import Rule, rule_for
from .optimizer_probe import updates_elementwise

__all__ = [
    "Updaters",
    "follow_parameters",
    "in_kvstore",
    "load_states",
    "merge_states",
    "save_states",
    "split_states",
    "updaters_for",
    "whole_states",
    "whole_updater",
]


@dataclasses.dataclass(eq=False)
class Updaters:
    """The workers' updaters of one Trainer, stored as its attribute ``_tofu``.

    Attributes:
        optimizer: the optimizer that the other attributes belong to.
        elementwise: whether it may update tiles.
        rule: how tiles are updated if not element by element, or None.
        updaters: one per worker, for parts of tiled parameters.
        split: the parameters whose optimizer states are in `updaters`: index -> TileState.
            The Trainer's own updater has all other states.
    """

    optimizer: Any
    elementwise: bool
    rule: Optional[Rule]
    updaters: list[Any]
    split: dict[int, Any] = dataclasses.field(default_factory=dict)

    def __reduce__(self) -> Any:
        # A copy of a parameter copies its Trainer, too; the copy has no updaters here.
        return type(None), ()


def _updaters_of(trainer: Any) -> Optional[Updaters]:
    """A Trainer's updaters; None before its first update of a tile."""
    updaters: Optional[Updaters] = getattr(trainer, "_tofu", None)
    return updaters


def updaters_for(trainer: Any, tile_state: TileState) -> Updaters:
    """Return a Trainer's updaters; make them if its optimizer has none yet."""
    existing, optimizer = _updaters_of(trainer), trainer._optimizer
    if existing is not None and existing.optimizer is optimizer:
        return existing
    contexts = tile_state.contexts
    elementwise = updates_elementwise(optimizer, contexts[0])
    rule = None if elementwise else rule_for(optimizer)
    if not elementwise and rule is None:
        messages.warn(
            f"{type(optimizer).__name__} does not update every element by itself: each step "
            f"gathers whole weights and gradients from {describe_contexts(contexts)} on "
            f"{trainer._contexts[0]} and updates them there; SGD or Adam would update the tiles"
        )
    updaters = [mx.optimizer.get_updater(optimizer) for _ in contexts]
    for updater, context in zip(updaters, contexts):
        updater.tofu_device = context.device_id
    all_updaters = trainer._tofu = Updaters(optimizer, elementwise, rule, updaters)
    tile_state.state.trainers.add(trainer)
    return all_updaters


def whole_updater(trainer: Any) -> Any:
    """The Trainer's own updater, with the optimizer states of parameters that are not tiled."""
    if trainer._kvstore and trainer._update_on_kvstore:
        return trainer._kvstore._updater
    return trainer._updaters[0]


def in_kvstore(parameter: Any) -> bool:
    """Whether a Trainer under tofu leaves a parameter's update to the kvstore."""
    return bool(parameter._stype != "default")


def _counts(optimizer: Any, device: int) -> dict[int, int]:
    """The number of updates of each parameter on a device by the optimizer."""
    counts: dict[int, int] = optimizer._all_index_update_counts.setdefault(device, {})
    return counts


def save_states(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer.save_states: write the file that plain MXNet would write."""

    def _save_states(self: Any, fname: str) -> None:
        if _without_keys(self, "save_states") and checkpoints.is_left_out(fname):
            return
        updaters = _updaters_of(self)
        if updaters is None or not updaters.split:
            with checkpoints.replacing(fname) as partial:
                original(self, partial)
            return
        optimizer = copy.copy(self._optimizer)
        device = self._contexts[0].device_id
        counts = dict(_counts(optimizer, device))
        counts.update(_counts(optimizer, updaters.updaters[0].tofu_device))
        optimizer._all_index_update_counts = {device: counts}
        optimizer._index_update_count = counts
        updater = mx.optimizer.get_updater(optimizer)
        updater.states = _whole_states(self, updaters)
        with checkpoints.replacing(fname) as partial, open(partial, "wb") as file:
            file.write(updater.get_states(dump_optimizer=True))

    return _save_states


def load_states(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer.load_states: load whole states; the next update splits them again."""

    def _load_states(self: Any, fname: str) -> None:
        _without_keys(self, "load_states")
        self._tofu_on_file = True
        try:
            original(self, fname)
        finally:
            del self._tofu_on_file
        vars(self).pop("_tofu", None)

    return _load_states


def merge_states(trainer: Any) -> None:
    """Give a Trainer's own updater all optimizer states back, whole."""
    distributed.forget(trainer)
    if vars(trainer).pop("_tofu_past_kvstore", False):
        trainer._params_to_init += [p for p in trainer._params if not in_kvstore(p)]
    _merge(trainer)


def follow_parameters(trainer: Any) -> None:
    """Merge a Trainer's states if a parameter is no longer divided as its state is."""
    updaters = _updaters_of(trainer)
    for index, state in () if updaters is None else updaters.split.items():
        if getattr(trainer._params[index], "_tofu", None) is not state:
            _merge(trainer)
            return


def _merge(trainer: Any) -> None:
    updaters: Optional[Updaters] = vars(trainer).pop("_tofu", None)
    if updaters is None or not updaters.split:
        return
    updater = whole_updater(trainer)
    updater.states = _whole_states(trainer, updaters)
    updater.states_synced = dict.fromkeys(updater.states, True)
    counts = _counts(trainer._optimizer, updaters.updaters[0].tofu_device)
    trainer._optimizer._all_index_update_counts = {trainer._contexts[0].device_id: counts}


def split_states(trainer: Any, updaters: Updaters, indices: Sequence[int]) -> None:
    """Move the existing optimizer states of these parameters to the workers."""
    plain, optimizer = whole_updater(trainer), trainer._optimizer
    counts = _counts(optimizer, trainer._contexts[0].device_id)
    for index in indices:
        if index in updaters.split:
            continue
        tile_state = trainer._params[index]._tofu
        updaters.split[index] = tile_state
        for updater in updaters.updaters:
            if index in counts:
                _counts(optimizer, updater.tofu_device).setdefault(index, counts[index])
        if index not in plain.states:
            continue
        whole = plain.states.pop(index)
        plain.states_synced.pop(index, None)
        for updater, part in zip(updaters.updaters, _scatter(whole, tile_state)):
            updater.states[index] = part
            updater.states_synced[index] = True


def _without_keys(trainer: Any, what: str) -> bool:
    """Whether a Trainer is distributed, with its optimizer states in this process.

    Raises:
        ConfigError: they are on the servers.
    """
    if active() is None or not distributed.is_distributed(trainer):
        return False
    if not trainer._kv_initialized:
        trainer._init_kvstore()
    if trainer._update_on_kvstore:
        raise ConfigError(
            f"gluon.Trainer.{what}: the optimizer runs on the parameter servers, and MXNet cannot "
            "get its states from there; expected a Trainer with update_on_kvstore=False"
        )
    return True


def whole_states(trainer: Any) -> dict[int, Any]:
    """The optimizer states of all of a Trainer's parameters, gathered."""
    updaters = _updaters_of(trainer)
    if updaters is None:
        return dict(whole_updater(trainer).states)
    return _whole_states(trainer, updaters)


def _whole_states(trainer: Any, updaters: Updaters) -> dict[int, Any]:
    states = dict(whole_updater(trainer).states)
    where = trainer._contexts[0]
    for index, tile_state in updaters.split.items():
        if index in updaters.updaters[0].states:
            parts = [updater.states[index] for updater in updaters.updaters]
            states[index] = _gather(parts, tile_state, where)
    return dict(sorted(states.items()))


def _scatter(whole: Any, tile_state: Any) -> list[Any]:
    """Each worker's part of an optimizer state: an array, None, or a nested structure of them."""
    if isinstance(whole, NDArray) and whole.shape == tuple(tile_state.layout.shape):
        with autograd.pause():
            parts: list[Any] = tile_state.scatter(whole, layout=tile_state.update_layout)
        return parts
    if isinstance(whole, (tuple, list)):
        columns = [_scatter(item, tile_state) for item in whole]
        workers = range(len(tile_state.contexts))
        return [type(whole)(column[worker] for column in columns) for worker in workers]
    return [copy.deepcopy(whole) for _ in tile_state.contexts]


def _gather(parts: Sequence[Any], tile_state: Any, context: Any) -> Any:
    first = parts[0]
    if isinstance(first, NDArray):
        return tile_state.gather(parts, context, layout=tile_state.update_layout)
    if isinstance(first, (tuple, list)):
        return type(first)(_gather(column, tile_state, context) for column in zip(*parts))
    return first
