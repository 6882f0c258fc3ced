"""gluon.Trainer on tiled parameters: every worker updates its own part of each.

Nothing is reduced between workers: a gradient is complete when the backward pass is. A part that
is smaller than the worker's tile is then copied to the workers that share the tile. Parameters
that are not tiled are updated as before, in the same step. Of the optimizers that do not update
element by element, LAMB, LARS and LBSGD share norms (tofu.gluon.training.norm_updates); others get
whole weights and gradients.
State files are those of plain MXNet: whole states, gathered.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from tofu.errors import ConfigError
from tofu.gluon.session import block_report, messages
from tofu.gluon.session.arrays import classic
from tofu.gluon.session.marks import marks_of, set_marks
from tofu.gluon.session.session import active, describe_contexts

from . import checkpoints, distributed, views
from .grouped_updates import Job, Tile, calls_for
from .norm_updates import Rule, Spread, rule_for
from .optimizer_probe import updates_elementwise
from .optimizer_states import make_states
from .parameter import is_tiled, shape_of
from .tile_state import TileState

__all__ = [
    "allreduce_grads",
    "init",
    "init_kvstore",
    "init_params",
    "load_states",
    "merge_states",
    "save_states",
    "update",
]


@dataclasses.dataclass(eq=False)
class _Updaters:
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


@dataclasses.dataclass(frozen=True)
class _Divided:
    """A tiled parameter to be updated, with its index in its Trainer.

    Workers update parts of its tiles, see ``TileState.spread_parts``.
    """

    index: int
    parameter: Any

    @property
    def layout(self) -> Any:
        """The layout of the parts."""
        return self.parameter._tofu.update_layout

    def tile(self) -> Tile:
        """The properties that decide the order of updates."""
        dtype = np.dtype(self.parameter._data[0].dtype).name
        is_copied = self.parameter._tofu.copies_parts()
        return Tile(self.index, dtype, self.layout.boxes[0].shape, is_copied)

    def weights(self) -> list[Any]:
        """The part of each worker; in some layouts these are copies."""
        parts: list[Any] = self.parameter._tofu.parts_to_update(self.parameter._data)
        return parts

    def gradients(self) -> list[Any]:
        """The same parts of the gradient, to read."""
        parts: list[Any] = self.parameter._tofu.gradients.to_update()
        return parts

    def spread(self, weights: list[Any]) -> None:
        """Give all workers the parts that the others have updated."""
        self.parameter._tofu.spread_parts(weights, self.parameter._data)


def init(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer.__init__: refuse kvstores that reduce whole gradients."""

    def __init__(  # noqa: N807 - replaces the method of that name
        self: Any,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        kvstore: Any = "device",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        session = active()
        if session is not None:
            distributed.check_kind(self, kvstore)
            session.state.unstepped.add(self)
        original(self, params, optimizer, optimizer_params, kvstore, *args, **kwargs)

    return __init__


def init_kvstore(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer._init_kvstore: make a kvstore only for sparse weights, which pull rows from it.

    All other parameters are tiled, now or later, or are updated as MXNet does without a
    kvstore.
    """

    def _init_kvstore(self: Any) -> None:
        session = active()
        if session is None or len(self._contexts) != 1:
            original(self)
            return
        if distributed.is_distributed(self):
            distributed.connect(self, original, session)
            session.state.trainers.add(self)
            return
        if self._contains_sparse_weight:
            original(self)
            self._params_to_init = [p for p in self._params_to_init if _in_kvstore(p)]
            self._tofu_past_kvstore = True
            session.state.trainers.add(self)
            return
        # With one context a local kvstore has nothing to reduce.
        self._kvstore = self._update_on_kvstore = None
        self._distributed = False
        self._kv_initialized = True

    return _init_kvstore


def init_params(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer._init_params: over several processes, tiles are keys of their own.

    Loading states does not need them, and parameters may not be tiled yet.
    """

    def _init_params(self: Any) -> None:
        if distributed.of(self) is None:
            original(self)
        elif not vars(self).get("_tofu_on_file"):
            distributed.start(self)

    return _init_params


def allreduce_grads(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer._allreduce_grads: push only gradients of sparse weights to a local kvstore."""

    def _allreduce_grads(self: Any) -> None:
        if distributed.of(self) is not None:
            if not self._update_on_kvstore:
                _wait_for_python(self)
                distributed.allreduce(self)
            return
        tiled = next(filter(is_tiled, self._params), None)
        if not getattr(self, "_tofu_past_kvstore", False):
            if self._kvstore and tiled is not None:
                raise ConfigError(
                    "gluon.Trainer: its kvstore was filled before tofu.enable(), with parameters "
                    f"that are tiled now, such as {tiled.name}; expected a Trainer made after "
                    "tofu.enable()"
                )
            original(self)
            return
        for index, parameter in enumerate(self._params):
            if parameter.grad_req != "null" and _in_kvstore(parameter):
                self._kvstore.push(index, parameter.list_grad(), priority=-index)

    return _allreduce_grads


def update(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer._update: the workers' updaters update tiles, MXNet's all other parameters."""

    def _update(self: Any, ignore_stale_grad: bool = False) -> None:
        _note_step(self)
        if distributed.of(self) is not None and self._update_on_kvstore:
            _wait_for_python(self)
            distributed.update_on_servers(self, ignore_stale_grad)
            return
        tiled = next(filter(is_tiled, self._params), None)
        past_kvstore = getattr(self, "_tofu_past_kvstore", False)
        if tiled is None and past_kvstore:
            _update_whole(self, ignore_stale_grad)
            return
        if tiled is None:
            original(self, ignore_stale_grad)
            return
        state = tiled._tofu.state
        state.calls.free()
        views.flush(state.views)
        if _overflows(self):
            return
        _wait_for_python(self)
        own = _updaters(self, tiled._tofu)
        divided: list[_Divided] = []
        whole: list[Job] = []
        gathered: list[tuple[Any, Any]] = []
        for index, parameter in enumerate(self._params):
            if parameter.grad_req == "null" or _in_kvstore(parameter):
                continue
            if not _is_fresh(parameter, ignore_stale_grad):
                continue
            if not is_tiled(parameter):
                whole.append((index, parameter._grad[0], parameter._data[0]))
                continue
            parameter._tofu.updates += 1
            if own.elementwise or own.rule is not None:
                divided.append(_divided(index, parameter))
            else:
                gathered.append((index, parameter))
        _split_states(self, own, [each.index for each in divided])
        parts_without_states = (
            (each.index, each.parameter, each.weights())
            for each in divided
            if any(each.index not in updater.states for updater in own.updaters)
        )
        make_states(own.optimizer, own.updaters, parts_without_states)
        if own.rule is None:
            _update_elementwise(own, divided)
        if whole:
            _updater(self)(*zip(*whole))
        if own.rule is not None:
            _update_spread(own, divided)
        _update_gathered(self, gathered)
        views.refresh(state.views)
        if state.first_step is not None:
            block_report.first_step(_share_of_tiles(self), tiled._tofu.session)

    return _update


def _note_step(trainer: Any) -> None:
    """Check the pins when every Trainer has stepped: all of a first step's graphs are known."""
    session = active()
    if session is not None and trainer in session.state.unstepped:
        session.state.unstepped.discard(trainer)
        if not len(session.state.unstepped):
            messages.check_pins(session)


def _share_of_tiles(trainer: Any) -> Fraction:
    """The share of a trainer's elements that are in tiled parameters."""
    trained = [p for p in trainer._params if p.grad_req != "null" and p._data is not None]
    sizes = {p: math.prod(shape_of(p)) for p in trained}
    return Fraction(sum(sizes[p] for p in sizes if is_tiled(p)), sum(sizes.values()))


def save_states(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Trainer.save_states: write the file that plain MXNet would write."""

    def _save_states(self: Any, fname: str) -> None:
        if _without_keys(self, "save_states") and checkpoints.is_left_out(fname):
            return
        own = _updaters_of(self)
        if own is None or not own.split:
            with checkpoints.replacing(fname) as partial:
                original(self, partial)
            return
        optimizer = copy.copy(self._optimizer)
        device = self._contexts[0].device_id
        counts = dict(_counts(optimizer, device))
        counts.update(_counts(optimizer, own.updaters[0].tofu_device))
        optimizer._all_index_update_counts = {device: counts}
        optimizer._index_update_count = counts
        updater = mx.optimizer.get_updater(optimizer)
        updater.states = _whole_states(self, own)
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
        trainer._params_to_init += [p for p in trainer._params if not _in_kvstore(p)]
    own: Optional[_Updaters] = vars(trainer).pop("_tofu", None)
    if own is None or not own.split:
        return
    updater = _updater(trainer)
    updater.states = _whole_states(trainer, own)
    updater.states_synced = dict.fromkeys(updater.states, True)
    counts = _counts(trainer._optimizer, own.updaters[0].tofu_device)
    trainer._optimizer._all_index_update_counts = {trainer._contexts[0].device_id: counts}


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


def _updaters_of(trainer: Any) -> Optional[_Updaters]:
    updaters: Optional[_Updaters] = getattr(trainer, "_tofu", None)
    return updaters


def _updaters(trainer: Any, tile_state: TileState) -> _Updaters:
    """Return a Trainer's updaters; make them if its optimizer has none yet."""
    known, optimizer = _updaters_of(trainer), trainer._optimizer
    if known is not None and known.optimizer is optimizer:
        return known
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
    made = trainer._tofu = _Updaters(optimizer, elementwise, rule, updaters)
    tile_state.state.trainers.add(trainer)
    return made


def _in_kvstore(parameter: Any) -> bool:
    """Whether a Trainer under tofu leaves a parameter's update to the kvstore."""
    return bool(parameter._stype != "default")


def _updater(trainer: Any) -> Any:
    """The Trainer's own updater, with the optimizer states of parameters that are not tiled."""
    if trainer._kvstore and trainer._update_on_kvstore:
        return trainer._kvstore._updater
    return trainer._updaters[0]


def _update_whole(trainer: Any, ignore_stale_grad: bool) -> None:
    """Update the parameters that the kvstore does not update; none of them is tiled."""
    if _overflows(trainer):
        return
    for index, parameter in enumerate(trainer._params):
        if parameter.grad_req == "null" or _in_kvstore(parameter):
            continue
        if _is_fresh(parameter, ignore_stale_grad):
            _updater(trainer)(index, parameter._grad[0], parameter._data[0])


def _wait_for_python(trainer: Any) -> None:
    """Raise errors of operators written in Python before any worker updates a weight.

    If operators written in Python throw on several workers at the same time, MXNet reports
    only one error, and the other operators' results are whatever was in their memory.
    """
    session = active()
    if session is None or not session.state.runs_python:
        return
    for parameter in trainer._params:
        for gradient in _gradient_of(parameter) or ():
            gradient.wait_to_read()


def _is_fresh(parameter: Any, ignore_stale_grad: bool) -> bool:
    """Whether to update a parameter; clears the marks of its gradients.

    Raises:
        UserWarning: its gradient is stale, and `ignore_stale_grad` is off (as in MXNet).
    """
    fresh = all(marks_of(parameter._data))
    if not fresh and not ignore_stale_grad:
        raise UserWarning(messages.stale_text(parameter))
    set_marks(parameter._data, [False] * len(parameter._data))
    return fresh


def _divided(index: int, parameter: Any) -> _Divided:
    """A parameter whose parts workers update; from here on, these stay as they are.

    Raises:
        GradientError: its gradient is gone.
    """
    tile_state: TileState = parameter._tofu
    tile_state.settle()
    assert tile_state.gradients is not None
    tile_state.gradients.in_place()
    return _Divided(index, parameter)


@contextlib.contextmanager
def _parts(some: Sequence[_Divided]) -> Iterator[list[tuple[list[Any], list[Any]]]]:
    """Gradients and weights to update; afterwards all workers get all parts.

    Copies live no longer than this context. After an interrupt, too, all workers have the same
    weights.
    """
    parts = [(each.gradients(), each.weights()) for each in some]
    try:
        yield parts
    finally:
        for each, (_, weights) in zip(some, parts):
            each.spread(weights)


def _update_elementwise(own: _Updaters, divided: Sequence[_Divided]) -> None:
    """Update each worker's parts."""
    tiles = [each.tile() for each in divided]
    devices = [updater.tofu_device for updater in own.updaters]
    for numbers, update in calls_for(own.optimizer, devices, tiles):
        some = [divided[number] for number in numbers]
        with _parts(some) as parts:
            for worker, updater in enumerate(own.updaters):
                jobs = [
                    (each.index, gradients[worker], weights[worker])
                    for each, (gradients, weights) in zip(some, parts)
                ]
                update(updater, jobs)


def _update_spread(own: _Updaters, divided: Sequence[_Divided]) -> None:
    """Update tiles by a rule, as many weights at a time as the optimizer takes in one call."""
    optimizer = own.optimizer
    at_once = max(1, optimizer.aggregate_num)

    def count(index: int) -> None:
        for updater in own.updaters:
            optimizer._set_current_context(updater.tofu_device)
            optimizer._update_count(index)

    for begin in range(0, len(divided), at_once):
        some = divided[begin : begin + at_once]
        assert own.rule is not None
        with _parts(some) as parts, autograd.pause():
            spread = [_spread_of(own, each, *both) for each, both in zip(some, parts)]
            own.rule(optimizer, spread, count)


def _spread_of(own: _Updaters, each: _Divided, gradients: list[Any], weights: list[Any]) -> Spread:
    """The parts of a tiled parameter with its optimizer states."""
    states = [updater.states[each.index] for updater in own.updaters]
    return Spread(each.index, weights, gradients, states, each.layout.boxes)


def _update_gathered(trainer: Any, gathered: Sequence[tuple[int, Any]]) -> None:
    """Gather and update whole weights, as many at a time as the optimizer takes in one call."""
    at_once = max(1, trainer._optimizer.aggregate_num)
    for begin in range(0, len(gathered), at_once):
        some = gathered[begin : begin + at_once]
        with autograd.pause():
            jobs = []
            for index, parameter in some:
                tile_state, where = parameter._tofu, parameter._ctx_list[0]
                tiles, layout = tile_state.gradients.in_place()
                gradient = tile_state.gather(tiles, where, layout=layout)
                jobs.append((index, gradient, tile_state.gather(parameter._data, where)))
            _updater(trainer)(*zip(*jobs))
            for (_, parameter), (_, _, weight) in zip(some, jobs):
                parameter._tofu.scatter(weight, out=parameter._data)


def _split_states(trainer: Any, own: _Updaters, indices: Sequence[int]) -> None:
    """Move the existing optimizer states of these parameters to the workers."""
    plain, optimizer = _updater(trainer), trainer._optimizer
    counts = _counts(optimizer, trainer._contexts[0].device_id)
    for index in indices:
        if index in own.split:
            continue
        tile_state = trainer._params[index]._tofu
        own.split[index] = tile_state
        for updater in own.updaters:
            if index in counts:
                _counts(optimizer, updater.tofu_device).setdefault(index, counts[index])
        if index not in plain.states:
            continue
        whole = plain.states.pop(index)
        plain.states_synced.pop(index, None)
        for updater, part in zip(own.updaters, _scatter(whole, tile_state)):
            updater.states[index] = part
            updater.states_synced[index] = True


def _whole_states(trainer: Any, own: _Updaters) -> dict[int, Any]:
    states = dict(_updater(trainer).states)
    where = trainer._contexts[0]
    for index, tile_state in own.split.items():
        if index in own.updaters[0].states:
            parts = [updater.states[index] for updater in own.updaters]
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


def _counts(optimizer: Any, device: int) -> dict[int, int]:
    """How often the optimizer has updated each parameter on a device."""
    counts: dict[int, int] = optimizer._all_index_update_counts.setdefault(device, {})
    return counts


class _Flag:
    """A stand-in parameter for AMP's loss scaler: its gradient is finite if all given ones are."""

    grad_req = "write"

    def __init__(self, gradients: Sequence[Any], context: Any) -> None:
        finite = [mx.nd.multi_all_finite(classic(g), num_arrays=1) for g in gradients]  # 0 or 1
        self._grad = [mx.nd.add_n(*[1.0 / flag.as_in_context(context) for flag in finite])]


def _gradient_of(parameter: Any) -> Optional[Sequence[Any]]:
    """The arrays of a parameter's gradient; None if it has none or an update has used it."""
    if is_tiled(parameter):
        state = parameter._tofu.gradients
        gradients = None if state is None or state.is_gone else state.in_place()[0]
    else:
        gradients = parameter._grad
    arrays: Optional[Sequence[Any]] = gradients
    return arrays


def _overflows(trainer: Any) -> bool:
    """Whether AMP's loss scaler finds a gradient that is not finite, so the step is skipped."""
    scaler: Optional[Any] = getattr(trainer, "_amp_loss_scaler", None)
    if scaler is None:
        return False
    context = trainer._contexts[0]
    with autograd.pause():
        per_parameter = map(_gradient_of, trainer._params)
        flags = [_Flag(gradients, context) for gradients in per_parameter if gradients is not None]
    return bool(scaler.has_overflow(flags))
