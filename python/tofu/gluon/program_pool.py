"""From a block's symbol to the programs that run it: plan, tile the parameters, bind.

A ``Pool`` holds the programs for one signature. It needs several if a script calls a
block again before the backward pass of an earlier call, because each program keeps the
tensors saved for its own backward pass.
"""

from __future__ import annotations

import dataclasses
import json
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet import autograd

from tofu.errors import GradientError, InternalError, PlanError
from tofu.plan import Compiled

from . import messages, saved_plans
from .gradients import is_overwritten
from .parameter import check_tileable, gated_tiles, is_tiled, shape_of, tile
from .recording import Recording
from .session import Session

__all__ = ["Pool", "Signature", "make_pool"]

_UPDATED = (
    "backward: a second pass through a retained graph after its parameters were updated; the "
    "first pass has overwritten the activations, and tofu would recompute them with the new "
    "values. Call backward twice before step(), or record the graph again"
)

Described = tuple[str, tuple[int, ...], str]  # name, shape, dtype


@dataclasses.dataclass(frozen=True)
class Signature:
    """The key of a training graph: a symbol has one graph per signature.

    Attributes:
        inputs: name, shape and dtype of the script's inputs.
        parameter_dtypes: dtype of every parameter, in the symbol's order.
        gradients: names of the inputs and parameters whose gradient is wanted.
        train: whether operators behave as in training.
    """

    inputs: tuple[Described, ...]
    parameter_dtypes: tuple[str, ...]
    gradients: frozenset[str]
    train: bool


@dataclasses.dataclass
class _Bound:
    """One program, and the recording that may still need its saved tensors.

    The reference to the recording is weak because recordings refer to programs; autograd's
    graph keeps them alive.
    """

    program: Any
    recording: Callable[[], Optional[Recording]] = lambda: None

    def free(self) -> bool:
        recording = self.recording()
        return recording is None or recording.finished()


class Pool:
    """The programs for one signature of one symbol.

    Args:
        compiled: the partitioned graph.
        parameters: the symbol's parameters by name, all of them tiled.
        signature: the signature that the graph was made for.
        session: the session, with its workers.
    """

    def __init__(
        self,
        compiled: Compiled,
        parameters: Mapping[str, Any],
        signature: Signature,
        session: Session,
    ) -> None:
        self._compiled = compiled
        self._parameters = dict(parameters)
        self._signature = signature
        self._session = session
        # Calls of one group update the same running statistics.
        self._group = next(
            (p for name, p in parameters.items() if name not in signature.gradients), None
        )
        self._bound: list[_Bound] = []
        self._generations: tuple[int, ...] = ()

    def run(self, inputs: Mapping[str, Any], *, record: bool, context: Any) -> list[Any]:
        """Return the outputs for `inputs`, whole and on `context`.

        Args:
            inputs: the script's arrays by name.
            record: whether to record the call in autograd's graph.
            context: the script's context.
        """
        bound = self._take()
        self._session.state.ran.add(bound.program)
        self._reclaim(bound.program)
        recording = autograd.set_recording(False)
        try:
            outputs: list[Any] = bound.program.forward(
                inputs, is_train=self._signature.train, ctx=context
            )
        finally:
            autograd.set_recording(recording)
        if record:
            recorded = self._record(bound.program, inputs, outputs, context)
            bound.recording = weakref.ref(recorded)
        return outputs

    def prepare(self) -> None:
        """Bind a program if there is none, so that errors appear before anything runs."""
        self._drop_stale()
        if not self._bound:
            self._bound.append(self._bind())

    def _take(self) -> _Bound:
        self._drop_stale()
        for bound in self._bound:
            if bound.free():
                bound.recording = lambda: None
                return bound
        self._bound.append(self._bind())
        return self._bound[-1]

    def _drop_stale(self) -> None:
        generations = tuple(p._tofu.generation for p in self._parameters.values())
        if generations != self._generations:
            self._bound.clear()
            self._generations = generations

    def _bind(self) -> _Bound:
        variables = self._compiled.variables
        tiles = {
            tile_name: array
            for name, parameter in self._parameters.items()
            for tile_name, array in zip(variables[name].tiles, parameter._tofu.tiles)
        }
        make = self._session.state.backend.program
        return _Bound(make(self._compiled.step, self._session.contexts, tiles))

    def _record(
        self, program: Any, inputs: Mapping[str, Any], outputs: Sequence[Any], context: Any
    ) -> Recording:
        gradients = self._signature.gradients
        wanted = [name for name in inputs if name in gradients]
        trained = {name: p for name, p in self._parameters.items() if name in gradients}
        gated = {name: gated_tiles(parameter) for name, parameter in trained.items()}
        # Use today's objects: a parameter whose gradients are replaced has left this graph.
        delivered = {n: p._tofu.gradients for n, p in trained.items() if is_overwritten(p)}
        gather = self._session.state.backend.gather

        updates = self._updates()

        def differentiate(
            heads: list[Any],
        ) -> tuple[list[Any], list[Any], Callable[[int], None]]:
            if program.is_used_up and self._updates() != updates:
                raise GradientError(_UPDATED)
            self._reclaim(program)
            found = program.backward(heads)

            def deliver(serial: int) -> None:
                for name, gradients in delivered.items():
                    gradients.hand_over(serial, found[name], program)

            return (
                [gather(found[name], program.layouts[name], context) for name in wanted],
                [array for name, tiles in gated.items() if tiles for array in found[name]],
                deliver,
            )

        return Recording(
            self._session.state.calls,
            [inputs[name] for name in wanted],
            [tile for tiles in gated.values() for tile in tiles],
            outputs,
            differentiate,
            self._group,
        )

    def _updates(self) -> list[int]:
        return [p._tofu.updates for p in self._parameters.values()]

    def _reclaim(self, program: Any) -> None:
        """Take back the gradients that this program lends, before it overwrites them."""
        for parameter in self._parameters.values():
            if parameter._tofu.gradients is not None:
                parameter._tofu.gradients.reclaim(program)


def make_pool(
    name: str,
    symbol: Any,
    parameters: Mapping[str, Any],
    signature: Signature,
    session: Session,
    *,
    first: bool,
) -> Pool:
    """Plan `symbol` for `signature`, and tile its parameters unless they are tiled already.

    Args:
        name: the block's name, for messages.
        symbol: the block's symbol.
        parameters: its initialized parameters by name.
        signature: shapes, dtypes and mode.
        session: the session, with its workers.
        first: whether this is the block's first graph. Only the first one issues warnings
            and logs its summary at level info; later ones log at level debug.

    Raises:
        TofuError: the graph cannot be partitioned, or a parameter cannot be tiled.
    """
    for parameter in parameters.values():
        if not is_tiled(parameter):
            check_tileable(parameter)
    backend = session.state.backend
    session.state.runs_python |= any(
        node["op"] == "Custom" for node in json.loads(symbol.tojson())["nodes"]
    )
    graph = _training_graph(symbol, parameters, signature, session)
    table, unknown = backend.strategy_table(graph)
    fetch, reason = backend.usable_fetch(session.fetch, session.contexts)
    if reason is not None:
        messages.plain_fetch(reason, session)
    training = bool(signature.gradients)
    pins = {n: p._tofu.cuts for n, p in parameters.items() if is_tiled(p)}
    parts = _parts(parameters)
    options = saved_plans.options_for(name, table, session, training=training)
    saved = saved_plans.plan_for(name, table, pins, parts, session, training=training)
    with saved_plans.checked_pins(options):
        compiled = backend.compile_graph(
            table,
            workers=session.workers,
            pins=pins,
            options=dataclasses.replace(options, parts=parts),
            saved=saved,
            fetch=fetch,
            dump_dir=session.dump_dir,
        )
    if training and not compiled.has_backward:
        raise PlanError("this mode computes no gradients; expected a backward graph")
    for parameter_name, parameter in parameters.items():
        layout = compiled.variables[parameter_name].layout
        if not is_tiled(parameter):
            cuts = tuple(compiled.searched.cuts(parameter_name))
            tile(parameter, layout, session, cuts, tuple(compiled.searched.parts))
        elif parameter._tofu.layout.boxes != layout.boxes:
            raise InternalError(f"{name}: the plan has moved the tiles of {parameter_name}")
    size = sum(math.prod(shape_of(parameter)) for parameter in parameters.values())
    messages.partitioned(name, compiled, size, session, first=first)
    if first:
        messages.replicated(name, compiled)
        if unknown:
            messages.undescribed(name, unknown, compiled)
    return Pool(compiled, parameters, signature, session)


def _parts(parameters: Mapping[str, Any]) -> tuple[int, ...]:
    """The number of parts per step of the parameters that are tiled already; () for none.

    Raises:
        PlanError: earlier plans have cut these parameters in different steps.
    """
    tiled = {p._tofu.parts: p.name for p in parameters.values() if is_tiled(p)}
    if len(tiled) > 1:
        shown = ", ".join(
            f"{name} in {' x '.join(map(str, parts))}" for parts, name in tiled.items()
        )
        raise PlanError(
            f"earlier graphs have cut the parameters in different steps: {shown} parts; "
            "expected the same steps. Call the block that has all of them first"
        )
    return next(iter(tiled), ())


def optimizer_kind(parameters: Mapping[str, Any]) -> Optional[str]:
    """The update to plan for: "sgd", "sgd_mom", "adam", or None (another optimizer or none)."""
    trainers = [p._trainer for p in parameters.values() if getattr(p, "_trainer", None)]
    if not trainers:
        return None
    optimizer = trainers[0]._optimizer
    if type(optimizer) is mx.optimizer.SGD:
        return "sgd_mom" if optimizer.momentum else "sgd"
    return "adam" if type(optimizer) is mx.optimizer.Adam else None


def _training_graph(
    symbol: Any, parameters: Mapping[str, Any], signature: Signature, session: Session
) -> Any:
    auxiliary = set(symbol.list_auxiliary_states())
    described = {
        name: (shape_of(parameter), dtype)
        for (name, parameter), dtype in zip(parameters.items(), signature.parameter_dtypes)
    }
    return session.state.backend.training_graph(
        symbol,
        inputs={name: (shape, dtype) for name, shape, dtype in signature.inputs},
        parameters={n: d for n, d in described.items() if n not in auxiliary},
        aux={n: d for n, d in described.items() if n in auxiliary},
        gradients=sorted(signature.gradients),
        train=signature.train,
        optimizer=optimizer_kind(parameters) if signature.gradients else None,
        workers=session.workers,
        statistics_in_forward=any(each.device_type == "gpu" for each in session.contexts),
    )
