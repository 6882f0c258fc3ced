"""Measures a rank's memory over a training step by running its program on tiles without data.

Every tile, message and copy counts from its creation until nothing refers to it, or to a view of
it, any more. Ranks with the same shares differ only in their messages, so one stands for all.

    step_memory(plan).kinds        # {"parameters": 1024, "gradients": 512, ...}
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch

from tofu.plans import Plan
from tofu.plans.peak import KINDS, Held, Peak, alive_over_time
from tofu.torch.graphs.module_graph import OPTIMIZERS
from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.graphs.traced import Entry, Variable
from tofu.torch.programs.rank_graph import Moves
from tofu.torch.programs.rank_program import Program
from tofu.torch.programs.rank_steps import Call, Fetch, Start
from tofu.torch.tiles.exchange import (
    FILL,
    Exchange,
    Message,
    Pending,
    Piece,
    Region,
    Tiles,
    Transfers,
)
from tofu.torch.tiles.placements import tiles_of
from tofu.torch.tiles.private_names import TorchDispatchMode

__all__ = [
    "Life", "Lives", "StepMemory", "dry_run", "held_by_rank", "held_bytes", "step_memory",
    "with_memory",
]  # fmt: skip

_DEVICE = "meta"


@dataclass
class Life:
    """The lifetime of a piece of memory.

    Attributes:
        operator: the operator that made it, or for which it was received.
        fetched: whether an exchange made it.
        bytes: its size.
        born, died: numbers of its first event and of the event that freed it.
    """

    operator: str
    fetched: bool
    bytes: int
    born: int
    died: Optional[int] = None


class Lives(TorchDispatchMode):
    """Records when tensors' memory is allocated and freed while the mode is active.

    Attributes:
        lives: all lives, in order of allocation.
        events: number of allocations and frees so far.
        bytes: bytes allocated now.
        most_bytes: most bytes allocated at once since `begin_operator`.
        most_event: the number of the event after which they were.
        operator, fetched: values for the lives that begin next.
    """

    def __init__(self, kept: Iterable[Any] = ()) -> None:
        super().__init__()
        self.lives: list[Life] = []
        self.events = 0
        self.bytes = 0
        self.most_bytes, self.most_event = 0, -1
        self.operator, self.fetched = "", False
        self._kept = {_place(tensor) for tensor in kept}
        self._seen: dict[int, Any] = {}  # tensors that are alive, by id
        self._shared: dict[int, list[Any]] = {}  # by storage: number of its tensors, and life

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in self._seen:
                self._note(tensor)
        return result

    def _note(self, tensor: Any) -> None:
        place, number = _place(tensor), id(tensor)
        if place in self._kept:
            return
        if place not in self._shared:
            size = tensor.untyped_storage().nbytes()
            life = Life(self.operator, self.fetched, size, self.events)
            self.lives.append(life)
            self._shared[place] = [0, life]
            self._changed(size)
        self._shared[place][0] += 1
        self._seen[number] = weakref.ref(tensor, lambda _: self._gone(number, place))

    def _gone(self, number: int, place: int) -> None:
        del self._seen[number]
        shared = self._shared[place]
        shared[0] -= 1
        if not shared[0]:
            del self._shared[place]
            shared[1].died = self.events
            self._changed(-shared[1].bytes)

    def _changed(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self.most_bytes:
            self.most_bytes, self.most_event = self.bytes, self.events
        self.events += 1

    def begin_operator(self, name: str, *, fetched: bool) -> None:
        """Note for whom memory is allocated from now on."""
        self.operator, self.fetched = name, fetched
        self.most_bytes, self.most_event = self.bytes, self.events - 1

    def of(self, tensor: Any) -> Optional[Life]:
        """The life of a tensor's memory, if it is alive."""
        shared = self._shared.get(_place(tensor))
        return None if shared is None else shared[1]


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


@dataclass(frozen=True)
class StepMemory:
    """A rank's memory at the worst moment of a training step.

    Attributes:
        kinds: bytes by kind. Parameters include buffers; optimizer state is for the plan's
            optimizer; tiles of inputs and outputs are activations.
        peak: the tensors between operators over the step, and at the worst moment.
        lives: all memory that the step allocates and frees.
    """

    kinds: Mapping[str, int]
    peak: Peak
    lives: tuple[Life, ...]

    @property
    def bytes(self) -> int:
        """The sum over all kinds."""
        return sum(self.kinds.values())


class _Place:
    """A rank's place in a mesh whose devices do not exist."""

    device_type = _DEVICE

    def __init__(self, sizes: tuple[int, ...], rank: int) -> None:
        self.mesh = torch.arange(math.prod(sizes)).reshape(sizes)
        self._rank = rank

    def size(self) -> int:
        """The number of devices."""
        return int(self.mesh.numel())

    def get_rank(self) -> int:
        """The rank at this place."""
        return self._rank


class _NoExchange(Exchange):
    """Exchanges that send nothing: memory is allocated, but there is no tensor for each message.

    A collective has the same bytes.
    """

    def start_outline(self, moves: Moves, tiles: Tiles) -> Pending:
        """Allocate the messages of an exchange."""
        outline = moves.graph.outline(moves.fetches)
        received = {sender: _bytes(size) for sender, size in outline.apart}
        received[FILL] = _bytes(outline.received_bytes)  # of all other senders
        sent = [_bytes(outline.packed_bytes)]
        for number, start, shape, count in outline.alone:
            fetch = moves.fetches[number]
            piece = moves.graph.sent_piece(fetch, start, shape)
            packed = Message([(piece, moves.graph.region_outline(fetch))]).packed(tiles)
            is_copy = packed.untyped_storage()._cdata != _place(tiles[piece.tile])
            sent += [packed, _bytes((count - 1) * packed.nbytes if is_copy else 0)]
        regions = [moves.graph.region_outline(f) for f in moves.fetches if f.step is not None]
        return Pending(Transfers(regions, (), self.worker), dict(enumerate(sent)), received, [])

    def finish(self, pending: Pending, tiles: Tiles) -> None:
        """Allocate the regions of an exchange, and free its messages."""
        pending.sent.clear()
        received, pending.received = pending.received, {}
        for region in pending.transfers.regions:
            tiles[region.tile] = self._assembled(region, tiles, received)

    def _piece(self, region: Region, piece: Piece, tiles: Tiles, received: Any) -> Any:
        if piece.worker == self.worker:
            return super()._piece(region, piece, tiles, received)
        message = received.get(piece.worker, received[FILL])
        size = math.prod(region.shape) * region.dtype.itemsize
        return message[:size].view(region.dtype).view(region.stored(region.shape))

    def _combine_into(self, result: Any, value: Any, reduction: str) -> None:
        """Do nothing: it allocates nothing."""


def _bytes(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device=_DEVICE)


@dataclass(frozen=True)
class _Effect:
    """The effect of a call on memory.

    Attributes:
        events: for each allocation its bytes; for each free, -1 - the allocation's number.
        results: for each result, its memory and place in it: the number of an input, or -1 - the
            number of an allocation; dtype, shape, strides and offset. None: the result is None.
        kind: list or tuple; None if the result is one tensor.
    """

    events: tuple[int, ...]
    results: tuple[Optional[tuple[int, torch.dtype, Any, Any, int]], ...]
    kind: Optional[type]

    def repeat(self, inputs: Sequence[Any]) -> Any:
        """Allocate and free as the call did; return tensors like its results."""
        made: list[Any] = []
        for event in self.events:
            if event >= 0:
                made.append(_bytes(event))
            else:
                made[-1 - event] = None
        results = [
            None if each is None else self._result(each, inputs, made) for each in self.results
        ]
        return results[0] if self.kind is None else self.kind(results)

    @staticmethod
    def _result(
        each: tuple[int, torch.dtype, Any, Any, int], inputs: Sequence[Any], made: Sequence[Any]
    ) -> Any:
        number, dtype, shape, strides, offset = each
        memory = inputs[number] if number >= 0 else made[-1 - number].view(dtype)
        return memory.as_strided(shape, strides, offset)


def _effect(
    lives: Lives, first: int, begin: int, inputs: Sequence[Any], results: Any
) -> Optional[_Effect]:
    """The effect of a call that has just run; None if it cannot be repeated.

    Args:
        lives: its record.
        first: the number of lives before the call.
        begin: the number of events before it.
        inputs: a tensor of each different memory that it was given.
        results: its results.
    """
    made = lives.lives[first:]
    events: dict[int, int] = {}
    for number, life in enumerate(made):
        events[life.born] = life.bytes
        if life.died is not None:
            events[life.died] = -1 - number
    if sorted(events) != list(range(begin, lives.events)):
        return None  # the call freed what it was given
    numbers = {id(life): -1 - number for number, life in enumerate(made)}
    places = {_place(tensor): number for number, tensor in enumerate(inputs)}
    kind = type(results) if isinstance(results, (tuple, list)) else None
    if kind not in (None, tuple, list):
        return None
    found: list[Any] = []
    for tensor in results if kind else [results]:
        if isinstance(tensor, torch.Tensor):
            memory = places.get(_place(tensor), numbers.get(id(lives.of(tensor))))
            if memory is None or (memory >= 0 and inputs[memory].dtype != tensor.dtype):
                return None
            place = tensor.shape, tensor.stride(), tensor.storage_offset()
            found.append((memory, tensor.dtype, *place))
        elif tensor is None:
            found.append(None)
        else:
            return None
    return _Effect(tuple(events[at] for at in sorted(events)), tuple(found), kind)


def _frozen(value: Any, inputs: dict[int, Any]) -> Any:
    """An argument as a key: equal for arguments with equal effects on memory.

    Args:
        value: the argument.
        inputs: a tensor of each memory so far, by storage; those of `value` are added.
    """
    if isinstance(value, torch.Tensor):
        place = _place(value)
        inputs.setdefault(place, value)
        number = list(inputs).index(place)
        return number, value.dtype, value.shape, value.stride(), value.storage_offset()
    if isinstance(value, (list, tuple)):
        return (list, *(_frozen(each, inputs) for each in value))
    if isinstance(value, Mapping):
        return (dict, *((name, _frozen(each, inputs)) for name, each in value.items()))
    return type(value), value


class _DryProgram(Program):
    """A program on tiles without data; records the memory alive while each operator runs."""

    def __init__(self, plan: TorchPlan, rank: int) -> None:
        place: Any = _Place(plan.mesh, rank)
        super().__init__(plan, place)
        self.exchange: _NoExchange = _NoExchange(place)
        self.lives = Lives()
        self._effects: dict[Any, _Effect] = {}
        self.nodes: list[str] = []
        self.worst_events: list[int] = []  # for each node, after which most is alive

    def _run(self, call: Call, tiles: Tiles) -> None:
        self._noted(call.name, fetched=False)
        super()._run(call, tiles)
        self.worst_events[-1] = self.lives.most_event

    def _results(self, call: Call, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Repeat the effect of an equal call: the layers of a model have few different ones."""
        inputs: dict[int, Any] = {}
        key = call.function, _frozen(positional, inputs), _frozen(named, inputs)
        try:
            known = self._effects.get(key)
        except TypeError:  # an argument without a hash
            return super()._results(call, positional, named)
        given = list(inputs.values())
        if known is not None:
            return known.repeat(given)
        first, begin = len(self.lives.lives), self.lives.events
        results = super()._results(call, positional, named)
        effect = _effect(self.lives, first, begin, given, results)
        if effect is not None:
            self._effects[key] = effect
        return results

    def _exchange(
        self, step: Union[Start, Fetch], tiles: Tiles, pending: dict[str, Pending]
    ) -> None:
        self._noted(step.name, fetched=True)
        super()._exchange(step, tiles, pending)
        self.worst_events[-1] = self.lives.most_event

    def _started(self, moves: Moves, tiles: Tiles) -> Pending:
        return self.exchange.start_outline(moves, tiles)

    def _noted(self, node: str, *, fetched: bool) -> None:
        self.lives.begin_operator(node, fetched=fetched)
        self.nodes.append(node)
        self.worst_events.append(self.lives.most_event)

    def tile(self, variable: Variable) -> Any:
        """Allocate a variable's tile without data."""
        shape = self.boxes(variable.name)[self.worker].shape
        return torch.empty(shape, dtype=variable.meta.dtype, device=_DEVICE)

    def kept_bytes(self, variable: Variable) -> Optional[int]:
        """The bytes of the DTensor that keeps a variable; None if its tile is the program's."""
        placement = self.placement(Entry(variable.name))
        own = tiles_of(tuple(variable.meta.shape), placement, self.plan.mesh)
        if own == self.boxes(variable.name):
            return None
        return int(math.prod(own[self.worker].shape) * variable.meta.dtype.itemsize)


def dry_run(plan: TorchPlan, rank: int = 0) -> tuple[_DryProgram, dict[str, int], set[int]]:
    """Run a step of a rank without data.

    Returns:
        The program, the bytes that stay allocated by kind, and the numbers of the gradients'
        lives.
    """
    program, traced = _DryProgram(plan, rank), plan.traced
    fixed = {"parameters": 0, "optimizer_state": 0, "activations": 0}
    states = OPTIMIZERS.get(plan.optimizer or "", 0)
    given: dict[str, Any] = {}
    for variable in traced.variables:
        if variable.kind in ("parameter", "buffer", "input"):
            tile = given[variable.name] = program.tile(variable)
            kind = "activations" if variable.kind == "input" else "parameters"
            fixed[kind] += tile.nbytes
            kept = program.kept_bytes(variable)
            if variable.kind != "input" and kept is not None:
                fixed[kind] += kept  # the program's tile is a copy
            if variable.kind == "parameter" and variable.name in traced.gradients:
                fixed["optimizer_state"] += states * (tile.nbytes if kept is None else kept)
    program.lives = Lives(given.values())
    with torch.no_grad(), program.lives:
        saved, outputs, changed = program.forward(given)
        del changed
        tangents = {v.name: program.tile(v) for v in traced.variables if v.kind == "tangent"}
        gradient_tiles = program.backward(saved, tangents)
        mine = {id(program.lives.of(tile)) for tile in gradient_tiles.values()}
        gradients = {k for k, life in enumerate(program.lives.lives) if id(life) in mine}
        del outputs, gradient_tiles, tangents, tile
    return program, fixed, gradients


def step_memory(plan: TorchPlan, rank: int = 0) -> StepMemory:
    """Measures the memory of a rank's training step, without the allocator's fragmentation."""
    program, fixed, gradients = dry_run(plan, rank)
    lives = program.lives.lives
    kind_of = [
        "gradients" if k in gradients else "fetch_buffers" if life.fetched else "activations"
        for k, life in enumerate(lives)
    ]
    end = program.lives.events
    spans = [
        (kind, life.bytes, life.born, end if life.died is None else life.died)
        for kind, life in zip(kind_of, lives)
    ]
    at = worst_moment(lives)
    kinds = {kind: fixed.get(kind, 0) for kind in KINDS}
    held = []
    for life, (kind, size, born, died) in zip(lives, spans):
        if born <= at < died:
            kinds[kind] += size
            shown = {"gradients": "result", "fetch_buffers": "fetched"}.get(kind, "tensor")
            held.append(Held(life.operator, 0, size, shown))
    held.sort(key=lambda each: -each.bytes)
    between = alive_over_time(spans, program.worst_events)
    peak = Peak(0, fixed, tuple(program.nodes), between, tuple(held), 0)
    return StepMemory(kinds, peak, tuple(lives))


def held_bytes(plan: TorchPlan) -> list[int]:
    """The bytes of each rank at the worst moment of its step."""
    found: dict[tuple[int, ...], int] = {}
    held = []
    for rank, shares in enumerate(_shares(plan)):
        if shares not in found:
            found[shares] = sum(step_memory(plan, rank).kinds.values())
        held.append(found[shares])
    return held


def _shares(plan: TorchPlan) -> list[tuple[int, ...]]:
    """Each rank's shares of the steps that are not divided equally; those with the same hold alike.

    Equal pieces may differ by an element, as where a dimension does not divide.
    """
    parts = plan.details.parts
    unequal = parts.shares or [()] * len(parts)
    digits = itertools.product(*map(range, parts))
    return [tuple(step[k] for step, k in zip(unequal, own) if step) for own in digits]


def held_by_rank(plan: TorchPlan) -> Plan:
    """Returns a plan's details with the memory of the rank with the largest shares."""
    shares = [math.prod(each) for each in _shares(plan)]
    rank = step_memory(plan, shares.index(max(shares)))
    return plan.details.noted(bytes_per_worker=dict(rank.kinds), memory="lives", peak=rank.peak)


def with_memory(plan: TorchPlan) -> TorchPlan:
    """Returns the plan with the memory of a rank and of one device without a mesh."""
    details = plan.details if plan.details.peak is not None else held_by_rank(plan)
    memory = details.bytes_per_worker, step_memory(plan.serial()).kinds
    return plan.replaced(details, *memory)


def worst_moment(lives: Sequence[Life]) -> int:
    """The event after which the most bytes are alive."""
    changes: dict[int, int] = {}
    for life in lives:
        changes[life.born] = changes.get(life.born, 0) + life.bytes
        if life.died is not None:
            changes[life.died] = changes.get(life.died, 0) - life.bytes
    now, most, at = 0, -1, 0
    for event in sorted(changes):
        now += changes[event]
        if now > most:
            most, at = now, event
    return at
