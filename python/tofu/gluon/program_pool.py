"""From a block's symbol to the programs that run it: plan, tile the parameters, bind.

A ``Pool`` holds the programs for one signature. It needs several if a script calls a
block again before the backward pass of an earlier call, because each program keeps the
tensors saved for its own backward pass.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet import autograd

from tofu.errors import GradientError, InternalError, PlanError
from tofu.mx.build.nnvm import symbol_text
from tofu.plan import Compiled, SearchOptions

from . import memory_limits, messages, outputs, saved_plans
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
        divisions: how inputs that are tiles are divided. It does not distinguish: the first
            plan follows it, and later inputs follow that plan.
    """

    inputs: tuple[Described, ...]
    parameter_dtypes: tuple[str, ...]
    gradients: frozenset[str]
    train: bool
    divisions: Mapping[str, Optional[outputs.Division]] = dataclasses.field(
        default_factory=dict, compare=False
    )


@dataclasses.dataclass(eq=False)
class _Bound:
    """One program, and the recording that may still need its saved tensors.

    A weak reference, as recordings refer to programs: autograd's graph keeps them alive.

    Attributes:
        links: inputs that are bound to the outputs of another program, without a copy.
        lenders: weak references to those programs.
        readers: weak references to the programs that are bound to outputs of this one.
        lent: weak references to the outputs that may still lie with the program.
    """

    program: Any
    links: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    lenders: Sequence[Callable[[], Optional[_Bound]]] = ()
    recording: Callable[[], Optional[Recording]] = lambda: None
    readers: list[Callable[[], Optional[_Bound]]] = dataclasses.field(default_factory=list)
    lent: Sequence[Callable[[], Optional[outputs.Memory]]] = ()

    def free(self) -> bool:
        """Whether nothing needs what the last run has left here."""
        self.readers = [reader for reader in self.readers if reader() is not None]
        found = (reader() for reader in self.readers)
        return self._is_done() and all(r is None or r._is_done() for r in found)

    def takes(self, values: Mapping[str, Any]) -> bool:
        """Whether the arrays that inputs are bound to are those of a call."""
        return all(_are_same(values[name], arrays) for name, arrays in self.links.items())

    def _is_done(self) -> bool:
        recording = self.recording()
        return recording is None or recording.finished()

    def keep_outputs(self) -> None:
        """Before the program overwrites its outputs: copy those that nothing has read."""
        for reference in self.lent:
            memory = reference()
            if memory is not None:
                memory.keep()
        self.lent = ()


def _are_same(value: Any, arrays: Sequence[Any]) -> bool:
    """Whether tiles are these arrays themselves."""
    found = getattr(value, "arrays", ())
    return len(found) == len(arrays) and all(a is b for a, b in zip(found, arrays))


class Pool:
    """The programs for one signature of one symbol.

    Args:
        compiled: the partitioned graph.
        parameters: the symbol's parameters by name, all of them tiled.
        signature: what the graph was made for.
        session: the workers.
        name: the block, for what the user is told.
    """

    def __init__(
        self,
        compiled: Compiled,
        parameters: Mapping[str, Any],
        signature: Signature,
        session: Session,
        name: str = "",
    ) -> None:
        self._compiled = compiled
        self._parameters = dict(parameters)
        self._signature = signature
        self._session = session
        self._backend = session.state.backend
        self._name = name
        # Calls that update the same running statistics.
        self._group = next(
            (p for name, p in parameters.items() if name not in signature.gradients), None
        )
        self._bound: list[_Bound] = []
        self._generations: tuple[int, ...] = ()

    def run(self, inputs: Mapping[str, Any], *, record: bool, context: Any) -> list[Any]:
        """The outputs for `inputs`, which `context` gathers when the script reads them.

        Args:
            inputs: the script's arrays by name, as outputs.look returns them.
            record: whether to enter the outputs in autograd's graph.
            context: the script's context.
        """
        with self._session.state.running:
            return self._run(inputs, record=record, context=context)

    def _run(self, inputs: Mapping[str, Any], *, record: bool, context: Any) -> list[Any]:
        values = {name: outputs.value(found) for name, found in inputs.items()}
        bound = self._take(inputs, values)
        self._session.state.ran.add(bound.program)
        self._session.state.gathered.pop(bound.program, None)
        self._reclaim(bound.program)
        bound.keep_outputs()
        recording = autograd.set_recording(False)
        try:
            found = bound.program.forward_tiles(values, is_train=self._signature.train)
        finally:
            autograd.set_recording(recording)
        program = bound.program
        memories = [self._memory(program, i, tiles, context) for i, tiles in enumerate(found)]
        for memory in memories:
            memory.lender = weakref.ref(bound)
        bound.lent = [weakref.ref(memory) for memory in memories]
        if not record:
            return [outputs.make_output(memory) for memory in memories]
        tokens = [outputs.new_token(context) for _ in memories]
        heads = [outputs.HeadGradient(self._backend, self._session.contexts) for _ in memories]
        recorded = self._record(bound.program, inputs, tokens, heads, memories, context)
        bound.recording = weakref.ref(recorded)
        return [
            outputs.make_output(memory, token, head, recorded.serial)
            for memory, token, head in zip(memories, tokens, heads)
        ]

    def prepare(self, inputs: Mapping[str, Any]) -> None:
        """Bind a program if there is none, so that faults show before anything runs.

        inputs: those of the call that is to come, as outputs.look returns them.
        """
        with self._session.state.running:
            self._drop_stale()
            if not self._bound:
                self._bound.append(self._bind(inputs))

    @property
    def bound(self) -> int:
        """How many programs are bound."""
        return len(self._bound)

    def release(self) -> None:
        """Unbind the programs that nothing waits for."""
        self._bound = [bound for bound in self._bound if not bound.free()]

    def _take(self, inputs: Mapping[str, Any], values: Mapping[str, Any]) -> _Bound:
        """A program that nothing needs, which takes these values.

        Programs of blocks that follow each other are mostly called in pairs, so that one can
        be bound to the other's outputs. Where the pairs change, the tiles are copied.
        """
        self._drop_stale()
        free = [bound for bound in self._bound if bound.free()]
        fitting = [bound for bound in free if bound.takes(values)]
        if fitting:
            found = max(fitting, key=lambda bound: len(bound.links))
        else:
            changes = False
            if free:
                self._bound.remove(free[0])
                changes = any(lender() is not None for lender in free[0].lenders)
            found = self._bind({} if changes else inputs)
            self._bound.append(found)
        found.recording = lambda: None
        return found

    def _drop_stale(self) -> None:
        generations = tuple(p._tofu.generation for p in self._parameters.values())
        if generations != self._generations:
            self._bound.clear()
            self._generations = generations

    def _bind(self, inputs: Mapping[str, Any]) -> _Bound:
        """Bind a program, to the outputs of others where its inputs are these."""
        variables = self._compiled.variables
        tiles = {
            tile_name: array
            for name, parameter in self._parameters.items()
            for tile_name, array in zip(variables[name].tiles, parameter._tofu.tiles)
        }
        links, lenders = {}, []
        for name, found in inputs.items():
            lender = outputs.lender(found)
            value = outputs.value(found)
            if lender is None or value.layout != variables[name].layout:
                continue
            links[name] = value.arrays
            lenders.append(lender)
            tiles.update(zip(variables[name].tiles, value.arrays))
        memory_limits.check_room(self._name, self, self.bound, self._session)
        with messages.phase(self._name, "binding the graphs of all workers", self._session):
            program = self._backend.program(self._compiled.step, self._session.contexts, tiles)
        bound = _Bound(program, links, [weakref.ref(lender) for lender in lenders])
        for lender in lenders:
            lender.readers.append(weakref.ref(bound))
        return bound

    def _memory(self, program: Any, number: int, tiles: Any, context: Any) -> outputs.Memory:
        parts, name, session = tuple(self._compiled.searched.parts), self._name, self._session
        what, source = f"output {number} of {name}", weakref.ref(program)

        def on_gather(tiles: Any) -> None:
            made_by = source()
            if made_by is not None:
                gathered = session.state.gathered.setdefault(made_by, {})
                gathered[number] = (what, context)
            messages.gathered(name, number, tiles, session)

        return outputs.Memory(what, tiles, parts, context, self._backend, on_gather)

    def _record(
        self,
        program: Any,
        inputs: Mapping[str, Any],
        tokens: Sequence[Any],
        heads: Sequence[outputs.HeadGradient],
        memories: Sequence[outputs.Memory],
        context: Any,
    ) -> Recording:
        gradients = self._signature.gradients
        wanted = [name for name in inputs if name in gradients]
        trained = {name: p for name, p in self._parameters.items() if name in gradients}
        gated = {name: gated_tiles(parameter) for name, parameter in trained.items()}
        # Use today's objects: a parameter whose gradients are replaced has left this graph.
        delivered = {n: p._tofu.gradients for n, p in trained.items() if is_overwritten(p)}
        slots = [outputs.slot(inputs[name]) for name in wanted]
        backend = self._backend
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

            of_inputs = [
                backend.gather(found[name], program.layouts[name], context)
                if slot is None
                else backend.tiles(found[name], program.layouts[name])
                for name, slot in zip(wanted, slots)
            ]
            return (
                of_inputs,
                [array for name, tiles in gated.items() if tiles for array in found[name]],
                deliver,
            )

        return Recording(
            self._session.state.calls,
            [outputs.token(inputs[name]) for name in wanted],
            [tile for tiles in gated.values() for tile in tiles],
            tokens,
            differentiate,
            self._group,
            slots,
            [(head, memory.layout) for head, memory in zip(heads, memories)],
            self._lead(inputs),
        )

    def _lead(self, inputs: Mapping[str, Any]) -> Optional[int]:
        """What tells the first input, if it is a variable whose gradient is wanted."""
        for name, array in inputs.items():
            leads = name in self._signature.gradients and array.grad is not None
            return int(array.handle.value) if leads else None
        return None

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
    messages.many_workers(session)
    backend = session.state.backend
    session.state.runs_python |= any(
        node["op"] == "Custom" for node in json.loads(symbol_text(symbol))["nodes"]
    )
    prepare = functools.partial(_prepared, name, symbol, parameters, signature, session)
    fetch = backend.usable_fetch(session.fetch, session.contexts)
    # MXNet refuses to bind a BatchNorm after a copy between workers.
    of_whole = None if fetch.crossing == "copies" else lambda norms: prepare(norms)[0]
    table, unknown = prepare(None if of_whole is None else ())
    refine = None if of_whole is None else functools.partial(backend.refined, of_whole)
    if fetch.reason is not None:
        messages.plain_fetch(fetch.reason, session, partly=bool(fetch.apart))
    training = bool(signature.gradients)
    pins = {n: p._tofu.cuts for n, p in parameters.items() if is_tiled(p)}
    parts = _parts(parameters)
    options = saved_plans.options_for(name, table, session, training=training)
    saved = None
    if parameters:  # saved plans are for what is trained
        saved = saved_plans.plan_for(
            name, table, pins, parts, session, training=training, of_whole=of_whole
        )
    of_inputs, parts = _pins_of_inputs(signature, parts, options, backend)

    def compile_graph(table: Any, options: SearchOptions, repeats: bool) -> Compiled:
        # BatchNorm in parts can run again; MXNet's operator, which keeps state, cannot.
        return _compiled(
            name, table, session, fetch,
            pins=pins, of_inputs=of_inputs, options=options, saved=saved,
            refine=None if repeats else refine,
        )  # fmt: skip

    wanted = dataclasses.replace(options, parts=parts)
    compiled, footprint = memory_limits.compile_within(
        name, compile_graph, table if saved is None else saved.table, wanted, parameters, session,
        recompute=session.recompute if training and saved is None else "none",
        is_saved=saved is not None,
    )  # fmt: skip
    if training and not compiled.has_backward:
        raise PlanError("this mode computes no gradients; expected a backward graph")
    _tile_parameters(name, parameters, compiled, session)
    size = sum(math.prod(shape_of(parameter)) for parameter in parameters.values())
    plan_file = session.plans.path if saved is not None and session.plans is not None else None
    messages.partitioned(name, compiled, size, session, first=first, plan_file=plan_file)
    if first:
        if parameters:
            messages.replicated(name, compiled)
        if unknown:
            messages.undescribed(name, unknown, compiled)
    pool = Pool(compiled, parameters, signature, session, name)
    if footprint is not None:
        session.state.footprints[pool] = footprint
    return pool


def _compiled(
    name: str,
    table: Any,
    session: Session,
    fetch: Any,
    *,
    pins: Mapping[str, tuple[int, ...]],
    of_inputs: Mapping[str, tuple[int, ...]],
    options: SearchOptions,
    saved: Any,
    refine: Any,
) -> Compiled:
    """Plan, partition and schedule; inputs that do not go together are divided otherwise."""

    def compile_graph(pins: Mapping[str, tuple[int, ...]]) -> Compiled:
        doing = "partitioning" if saved else "searching a plan and partitioning"
        with saved_plans.checked_pins(options), messages.phase(name, doing, session):
            found = saved
            if saved is None and options.objective == "time":
                found = session.state.backend.choose_plan(
                    table, session.workers, pins, options, fetch=fetch.kind, refine=refine
                )
            compiled: Compiled = session.state.backend.compile_graph(
                table,
                workers=session.workers,
                pins=pins,
                options=options,
                saved=found,
                refine=refine,
                fetch=fetch.kind,
                crossing=fetch.crossing,
                apart=fetch.apart,
                relays=session.contexts[0].device_type == "cpu",
                dump_dir=session.dump_dir,
            )
        return compiled

    try:
        return compile_graph({**pins, **of_inputs})
    except PlanError:
        if not of_inputs:
            raise
        return compile_graph(pins)


def _tile_parameters(
    name: str, parameters: Mapping[str, Any], compiled: Compiled, session: Session
) -> None:
    """Tile the parameters as planned; those that are tiled already keep their tiles."""
    for parameter_name, parameter in parameters.items():
        layout = compiled.variables[parameter_name].layout
        if not is_tiled(parameter):
            cuts = tuple(compiled.searched.cuts(parameter_name))
            tile(parameter, layout, session, cuts, tuple(compiled.searched.parts))
        elif parameter._tofu.layout.boxes != layout.boxes:
            raise InternalError(f"{name}: the plan has moved the tiles of {parameter_name}")


def _pins_of_inputs(
    signature: Signature, parts: tuple[int, ...], options: SearchOptions, backend: Any
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """Cuts of the inputs that are tiles, to take these as they are, and the parts of each step.

    parts: those that the parameters need, () for any.
    """
    pins: dict[str, tuple[int, ...]] = {}
    pinned = {name for name, _ in options.pins}
    for name, division in signature.divisions.items():
        if division is None or name in pinned or (parts and division.parts != parts):
            continue
        cuts = backend.cuts_of(*division)
        if cuts is not None:
            pins[name], parts = cuts, division.parts
    return pins, parts


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


def _prepared(
    name: str,
    symbol: Any,
    parameters: Mapping[str, Any],
    signature: Signature,
    session: Session,
    fused: Optional[Collection[str]],
) -> tuple[Any, dict[str, str]]:
    """The strategy table of the training graph, and the operators without a description."""
    with messages.phase(name, "preparing the training graph", session):
        graph = _training_graph(symbol, parameters, signature, session, fused)
        return session.state.backend.strategy_table(graph)


def _training_graph(
    symbol: Any,
    parameters: Mapping[str, Any],
    signature: Signature,
    session: Session,
    fused: Optional[Collection[str]],
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
        on_gpus=any(each.device_type == "gpu" for each in session.contexts),
        fused=fused,
    )
