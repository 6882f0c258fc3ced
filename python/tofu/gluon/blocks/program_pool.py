"""The programs that run a block: bind them, run them, and enter them in autograd's graph.

A ``Pool`` holds the programs for one signature. It needs several if a script calls a
block again before the backward pass of an earlier call, because each program keeps the
tensors saved for its own backward pass.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from mxnet import autograd

from tofu.errors import GradientError
from tofu.gluon.session import messages
from tofu.gluon.session.autograd_hooks import restoring_recording
from tofu.gluon.session.session import Session
from tofu.gluon.training import outputs
from tofu.gluon.training.gradients import is_overwritten
from tofu.gluon.training.parameter import gated_tiles
from tofu.gluon.training.recording import Bypass, Order, Recording
from tofu.planner.compile_plan import Compiled
from tofu.plans.parts import Parts

from . import memory_limits
from .reach import Reach, reached

__all__ = ["Pool", "Signature"]

_UPDATED = (
    "backward: a second pass through a retained graph after its parameters were updated; the "
    "first pass has overwritten the activations, and tofu would recompute them with the new "
    "values. Call backward twice before step(), or record the graph again"
)

_REPLACED = (
    "backward: the script has replaced the array or gradient of a parameter that this graph reads; "
    "expected backward before that. Write into the array, as set_data() does, or record again"
)

Described = tuple[str, tuple[int, ...], str]  # name, shape, dtype


@dataclasses.dataclass(frozen=True)
class Signature:
    """The key of a training graph: a symbol has one graph per signature.

    Attributes:
        inputs: name, shape and dtype of the script's inputs.
        parameter_dtypes: dtype of every parameter, in the symbol's order.
        gradients: names of the inputs and parameters to differentiate by.
        train: whether operators behave as in training.
        divisions: how inputs that are tiles are divided. It is not part of the key: the first
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
        """Whether nothing needs the results of the last run."""
        self.readers = [reader for reader in self.readers if reader() is not None]
        readers = (reader() for reader in self.readers)
        return self._is_done() and all(r is None or r._is_done() for r in readers)

    def takes(self, values: Mapping[str, Any]) -> bool:
        """Whether a call's arrays are the ones that inputs are bound to."""
        return all(_are_same(values[name], arrays) for name, arrays in self.links.items())

    def _is_done(self) -> bool:
        recording = self.recording()
        return recording is None or recording.finished()

    def keep_outputs(self) -> None:
        """Copy the outputs that nothing has read, before the program overwrites them."""
        for reference in self.lent:
            memory = reference()
            if memory is not None:
                memory.keep()
        self.lent = ()


def _are_same(value: Any, arrays: Sequence[Any]) -> bool:
    """Whether tiles are these arrays themselves."""
    tiles = getattr(value, "arrays", ())
    return len(tiles) == len(arrays) and all(a is b for a, b in zip(tiles, arrays))


class Pool:
    """The programs for one signature of one symbol.

    Args:
        compiled: the partitioned graph.
        parameters: the symbol's parameters by name, all of them tiled.
        signature: the signature that the graph was made for.
        session: the workers.
        name: the block's name, for messages.
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
        # Recordings whose calls update the same running statistics form a group.
        self._group = next(
            (p for name, p in parameters.items() if name not in signature.gradients), None
        )
        self._bound: list[_Bound] = []
        self._states = [parameter._tofu for parameter in self._parameters.values()]
        self._generations: tuple[int, ...] = ()

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        record: bool,
        context: Any,
        repeat: Optional[Callable[[], Sequence[Any]]] = None,
        reach: Reach = None,
    ) -> list[Any]:
        """The outputs for `inputs`, which `context` gathers when the script reads them.

        Args:
            inputs: the script's arrays by name, as outputs.look returns them.
            record: whether to enter the outputs in autograd's graph.
            context: the script's context.
            repeat: as ``Recording.repeat``.
            reach: the variables that a backward call through each output reaches.
        """
        with self._session.state.running:
            return self._run(inputs, record=record, context=context, repeat=repeat, reach=reach)

    def _run(
        self,
        inputs: Mapping[str, Any],
        *,
        record: bool,
        context: Any,
        repeat: Optional[Callable[[], Sequence[Any]]],
        reach: Reach,
    ) -> list[Any]:
        values = {name: outputs.value(array) for name, array in inputs.items()}
        bound = self._take(inputs, values)
        self._session.state.ran.add(bound.program)
        self._session.state.gathered.pop(bound.program, None)
        with self._session.state.changing:  # else a thread reads what the program overwrites
            self._reclaim(bound.program)
        bound.keep_outputs()
        restore = restoring_recording()
        try:
            autograd.set_recording(False)
            output_tiles = bound.program.forward_tiles(values, is_train=self._signature.train)
        finally:
            restore()
        program = bound.program
        memories = [
            self._memory(program, i, tiles, context) for i, tiles in enumerate(output_tiles)
        ]
        for memory in memories:
            memory.lender = weakref.ref(bound)
        bound.lent = [weakref.ref(memory) for memory in memories]
        if not record:
            return [outputs.make_output(memory) for memory in memories]
        tokens = [outputs.new_token(context) for _ in memories]
        heads = [outputs.HeadGradient(self._backend, self._session.contexts) for _ in memories]
        recorded = self._record(bound.program, inputs, tokens, heads, memories, context, reach)
        recorded.repeat = repeat
        bound.recording = weakref.ref(recorded)
        return [
            outputs.make_output(memory, token, head, outputs.Origin(recorded.serial, number))
            for number, (memory, token, head) in enumerate(zip(memories, tokens, heads))
        ]

    def prepare(self, inputs: Mapping[str, Any]) -> None:
        """Bind a program if there is none, so that faults show before anything runs.

        inputs: the arrays of the next call, as outputs.look returns them.
        """
        with self._session.state.running:
            self._drop_stale()
            if not self._bound:
                self._bound.append(self._bind(inputs))

    @property
    def is_stale(self) -> bool:
        """Whether a parameter is not the one any more that was tiled for this graph."""
        parameters = self._parameters.values()
        return any(getattr(p, "_tofu", None) is not s for p, s in zip(parameters, self._states))

    @property
    def bound(self) -> int:
        """The number of bound programs."""
        return len(self._bound)

    @property
    def head_gradients_read(self) -> frozenset[int]:
        """The outputs whose gradients the backward pass reads: they are no losses."""
        roles = (each.role.partition(":") for each in self._compiled.variables.values())
        return frozenset(int(number) for kind, _, number in roles if kind == "head_grad")

    def release(self) -> None:
        """Unbind the programs that nothing waits for."""
        self._bound = [bound for bound in self._bound if not bound.free()]

    def _take(self, inputs: Mapping[str, Any], values: Mapping[str, Any]) -> _Bound:
        """Return a free program that takes these values.

        Programs of blocks that follow each other are mostly called in pairs, so that one can
        be bound to the other's outputs. Where the pairs change, the tiles are copied.
        """
        self._drop_stale()
        free = [bound for bound in self._bound if bound.free()]
        fitting = [bound for bound in free if bound.takes(values)]
        if fitting:
            program = max(fitting, key=lambda bound: len(bound.links))
        else:
            changes = False
            if free:
                self._bound.remove(free[0])
                changes = any(lender() is not None for lender in free[0].lenders)
            program = self._bind({} if changes else inputs)
            self._bound.append(program)
        program.recording = lambda: None
        return program

    def _drop_stale(self) -> None:
        generations = tuple(state.generation for state in self._states)
        if generations != self._generations:
            self._bound.clear()
            self._generations = generations

    def _bind(self, inputs: Mapping[str, Any]) -> _Bound:
        """Bind a program; inputs that are another program's outputs are bound to these."""
        variables = self._compiled.variables
        tiles = {
            tile_name: array
            for name, parameter in self._parameters.items()
            for tile_name, array in zip(variables[name].tiles, parameter._tofu.tiles)
        }
        links, lenders = {}, []
        for name, array in inputs.items():
            lender = outputs.lender(array)
            value = outputs.value(array)
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
        parts, name, session = Parts.of(self._compiled.searched), self._name, self._session
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
        reach: Reach,
    ) -> Recording:
        gradients = self._signature.gradients
        differentiated = [name for name in inputs if name in gradients]
        trained = {name: p for name, p in self._parameters.items() if name in gradients}
        gated = {name: gated_tiles(parameter) for name, parameter in trained.items()}
        # Use today's objects: a parameter whose gradients are replaced has left this graph.
        delivered = {n: p._tofu.gradients for n, p in trained.items() if is_overwritten(p)}
        added = {n: p._tofu.gradients for n, p in trained.items() if gated[n]}
        common = trained.keys() if reach is None else frozenset.intersection(*reach)
        for name in delivered.keys() - common:
            delivered[name].expect_to_stay()
        slots = [outputs.slot(inputs[name]) for name in differentiated]
        variables = [*inputs, *self._parameters]  # the closure must not hold the arrays
        backend = self._backend
        updates = self._updates()

        def differentiate(
            heads: list[Any],
        ) -> tuple[list[Optional[Any]], list[Optional[Any]], Callable[[int], None]]:
            names = reached(variables, heads, reach)
            tiles: dict[str, list[Any]] = {}
            if self.is_stale:
                raise GradientError(_REPLACED)
            if names:
                if program.is_used_up and self._updates() != updates:
                    raise GradientError(_UPDATED)
                self._reclaim(program)
                left = [name for name in self._parameters if name not in names]
                tiles = program.backward(heads, in_place=delivered, unchanged=left)

            def deliver(serial: int) -> None:
                for name, gradients in delivered.items():
                    if name in names:
                        layout = program.gradient_layouts[name]
                        gradients.hand_over(serial, tiles[name], program, layout)
                for name, gradients in added.items():
                    gradients.note(is_reached=name in names)

            def input_gradient(name: str, slot: Optional[outputs.HeadGradient]) -> Optional[Any]:
                if name not in names:
                    return None
                if slot is None:
                    return backend.gather(tiles[name], program.layouts[name], context)
                return backend.tiles(tiles[name], program.layouts[name])

            return (
                [input_gradient(name, slot) for name, slot in zip(differentiated, slots)],
                [
                    array if name in names else None
                    for name in gated
                    for array in (tiles[name] if name in names else gated[name])
                    if gated[name]
                ],
                deliver,
            )

        return Recording(
            self._session.state.calls,
            [outputs.token(inputs[name]) for name in differentiated],
            [tile for tiles in gated.values() for tile in tiles],
            tokens,
            differentiate,
            Order(self._group, self._lead(inputs)),
            Bypass(slots, [(head, memory.layout) for head, memory in zip(heads, memories)]),
        )

    def _lead(self, inputs: Mapping[str, Any]) -> Optional[int]:
        """The handle of the first input, if it is a variable to differentiate by."""
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
