"""gluon.Trainer on tiled parameters: every worker updates its own part of each.

Nothing is reduced between workers: a gradient is complete when the backward pass is. A part that
is smaller than the worker's tile is then copied to the workers that share the tile. Parameters
that are not tiled are updated as before, in the same step. Of the optimizers that do not update
element by element, LAMB, LARS and LBSGD share norms (tofu.gluon.updates.norm_updates); others get
whole weights and gradients.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

from tofu import _core
from tofu.errors import ConfigError
from tofu.gluon.session import block_report, messages
from tofu.gluon.session.arrays import classic
from tofu.gluon.session.marks import marks_of, set_marks
from tofu.gluon.session.session import active
from tofu.gluon.training import views
from tofu.gluon.training.parameter import is_tiled, shape_of, variables_of
from tofu.gluon.training.tile_state import TileState

from . import distributed
from .grouped_updates import Job, Tile, calls_for
from .norm_updates import Spread
from .optimizer_states import make_states
from .trainer_states import (
    Updaters,
    follow_parameters,
    in_kvstore,
    split_states,
    updaters_for,
    whole_updater,
)

__all__ = [
    "allreduce_grads",
    "init",
    "init_kvstore",
    "init_params",
    "update",
]


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
        dtype = np.dtype(self.parameter._tofu.variables[0].dtype).name
        is_copied = self.parameter._tofu.copies_parts()
        return Tile(self.index, dtype, self.layout.boxes[0].shape, is_copied)

    def weights(self) -> list[Any]:
        """The part of each worker; in some layouts these are copies."""
        state = self.parameter._tofu
        parts: list[Any] = state.parts_to_update(state.variables)
        return parts

    def gradients(self) -> list[Any]:
        """The gradient's part of each worker, to read."""
        parts: list[Any] = self.parameter._tofu.gradients.to_update()
        return parts

    def spread(self, weights: list[Any]) -> None:
        """Give all workers the parts that the others have updated."""
        self.parameter._tofu.spread_parts(weights, self.parameter._tofu.variables)


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
            self._params_to_init = [p for p in self._params_to_init if in_kvstore(p)]
            self._tofu_past_kvstore = True
            session.state.trainers.add(self)
            return
        with _core.Changed(session.state.depth, peeking=True):
            for parameter in self._params:  # as MXNet does, for the error if one has no value yet
                parameter.data(self._contexts[0])
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
            if parameter.grad_req != "null" and in_kvstore(parameter):
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
        follow_parameters(self)
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
        _wait_for_python(self)  # which may read weights, so not while others must wait
        with state.changing:
            if not _update_tiles(self, tiled, ignore_stale_grad):
                return
        if state.first_step is not None:
            block_report.first_step(_share_of_tiles(self), tiled._tofu.session)

    return _update


def _update_tiles(trainer: Any, tiled: Any, ignore_stale_grad: bool) -> bool:
    """Update tiles and whole parameters; return False if gradients overflow.

    tiled: any tiled parameter of the trainer.
    """
    state = tiled._tofu.state
    views.flush(state.views)
    if _overflows(trainer):
        return False
    updaters = updaters_for(trainer, tiled._tofu)
    divided: list[_Divided] = []
    whole: list[Job] = []
    gathered: list[tuple[Any, Any]] = []
    for index, parameter in enumerate(trainer._params):
        if parameter.grad_req == "null" or in_kvstore(parameter):
            continue
        if not _is_fresh(parameter, ignore_stale_grad):
            continue
        if not is_tiled(parameter):
            whole.append((index, parameter._grad[0], parameter._data[0]))
            continue
        parameter._tofu.updates += 1
        if updaters.elementwise or updaters.rule is not None:
            divided.append(_divided(index, parameter))
        else:
            gathered.append((index, parameter))
    split_states(trainer, updaters, [each.index for each in divided])
    parts_without_states = (
        (each.index, each.parameter, each.weights())
        for each in divided
        if any(each.index not in updater.states for updater in updaters.updaters)
    )
    make_states(updaters.optimizer, updaters.updaters, parts_without_states)
    if updaters.rule is None:
        _update_elementwise(updaters, divided)
    if whole:
        whole_updater(trainer)(*zip(*whole))
    if updaters.rule is not None:
        _update_spread(updaters, divided)
    _update_gathered(trainer, gathered)
    views.refresh(state.views)
    return True


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


def _update_whole(trainer: Any, ignore_stale_grad: bool) -> None:
    """Update the parameters that the kvstore does not update; none of them is tiled."""
    if _overflows(trainer):
        return
    for index, parameter in enumerate(trainer._params):
        if parameter.grad_req == "null" or in_kvstore(parameter):
            continue
        if _is_fresh(parameter, ignore_stale_grad):
            whole_updater(trainer)(index, parameter._grad[0], parameter._data[0])


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
    arrays = variables_of(parameter)
    marks = marks_of(arrays)
    fresh = all(marks)
    if not fresh and not ignore_stale_grad:
        raise UserWarning(messages.stale_text(parameter))
    if any(marks):  # an array that the script has put there may not be a variable
        set_marks(arrays, [False] * len(arrays))
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
def _parts(group: Sequence[_Divided]) -> Iterator[list[tuple[list[Any], list[Any]]]]:
    """Gradients and weights to update; afterwards all workers get all parts.

    Copies live no longer than this context. After an interrupt, too, all workers have the same
    weights.
    """
    parts = [(each.gradients(), each.weights()) for each in group]
    try:
        yield parts
    finally:
        for each, (_, weights) in zip(group, parts):
            each.spread(weights)


def _update_elementwise(updaters: Updaters, divided: Sequence[_Divided]) -> None:
    """Update each worker's parts."""
    tiles = [each.tile() for each in divided]
    devices = [updater.tofu_device for updater in updaters.updaters]
    for numbers, update in calls_for(updaters.optimizer, devices, tiles):
        group = [divided[number] for number in numbers]
        with _parts(group) as parts:
            for worker, updater in enumerate(updaters.updaters):
                jobs = [
                    (each.index, gradients[worker], weights[worker])
                    for each, (gradients, weights) in zip(group, parts)
                ]
                update(updater, jobs)


def _update_spread(updaters: Updaters, divided: Sequence[_Divided]) -> None:
    """Update tiles by a rule, as many weights at a time as the optimizer takes in one call."""
    optimizer = updaters.optimizer
    at_once = max(1, optimizer.aggregate_num)

    def count(index: int) -> None:
        for updater in updaters.updaters:
            optimizer._set_current_context(updater.tofu_device)
            optimizer._update_count(index)

    for begin in range(0, len(divided), at_once):
        group = divided[begin : begin + at_once]
        assert updaters.rule is not None
        with _parts(group) as parts, autograd.pause():
            spread = [_spread_of(updaters, each, *both) for each, both in zip(group, parts)]
            updaters.rule(optimizer, spread, count)


def _spread_of(
    updaters: Updaters, divided: _Divided, gradients: list[Any], weights: list[Any]
) -> Spread:
    """The parts of a tiled parameter with its optimizer states."""
    states = [updater.states[divided.index] for updater in updaters.updaters]
    return Spread(divided.index, weights, gradients, states, divided.layout.boxes)


def _update_gathered(trainer: Any, gathered: Sequence[tuple[int, Any]]) -> None:
    """Gather and update whole weights, as many at a time as the optimizer takes in one call."""
    at_once = max(1, trainer._optimizer.aggregate_num)
    for begin in range(0, len(gathered), at_once):
        group = gathered[begin : begin + at_once]
        with autograd.pause():
            jobs = []
            for index, parameter in group:
                tile_state, where = parameter._tofu, parameter._ctx_list[0]
                tiles, layout = tile_state.gradients.in_place()
                gradient = tile_state.gather(tiles, where, layout=layout)
                jobs.append((index, gradient, tile_state.gather(tile_state.variables, where)))
            whole_updater(trainer)(*zip(*jobs))
            for (_, parameter), (_, _, weight) in zip(group, jobs):
                parameter._tofu.scatter(weight, out=parameter._tofu.variables)


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
