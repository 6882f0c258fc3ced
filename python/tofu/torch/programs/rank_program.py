"""Runs a planned joint graph on this rank: ATen operators on tiles, and exchanges between them.

What a rank calls, fetches and sends is read from its program (``rank_graph``). Here it gets its
order, the same on all ranks, and several fetches become one exchange (``batches``), which
starts once the tiles that it sends are there and ends at the first step that reads a region.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional, Union

import torch
from torch.distributed.device_mesh import DeviceMesh

from tofu.dtypes import NAMES
from tofu.errors import ConnectionLostError, GraphError
from tofu.torch.graphs.calls import arguments_of, filled, function_of, is_random
from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.graphs.traced import Entry, Operator
from tofu.torch.programs.batches import Task, batched, reordered, started
from tofu.torch.programs.compiling import Segment, with_segments
from tofu.torch.programs.in_place import in_place
from tofu.torch.programs.order import arranged
from tofu.torch.programs.rank_graph import Group, Instance, Moves, RankGraph, Tile, Tiled
from tofu.torch.programs.rank_steps import Call, Fetch, Planned, Start, read_first, with_ends
from tofu.torch.tiles.exchange import COLLECTIVE_BYTES, Exchange, Pending, Transfers
from tofu.torch.tiles.placements import WHOLE, Boxes, Placement, regions_between

__all__ = ["Program", "Step", "Tiles"]

Tiles = dict[Tile, Any]
Step = Union[Planned, Segment]


class Program:
    """A planned module on one rank.

    Args:
        plan: the plan, the same on all ranks.
        mesh: the mesh of devices, of the plan's sizes.
        compiled: whether torch.compile compiles the calls between exchanges.

    Attributes:
        graph: the rank's calls and fetches.
        exchange: moves regions between ranks.
        edges: brings the user's tensors to the plan's tiles, and back.
        worker: this rank's number among the mesh's devices.
        forward_steps, backward_steps: the calls and exchanges that the rank runs.
        is_random: whether an operator draws random numbers.
    """

    def __init__(self, plan: TorchPlan, mesh: DeviceMesh, *, compiled: bool = False) -> None:
        self.plan = plan
        self.mesh = mesh
        self.exchange = Exchange(mesh)
        self.worker = self.exchange.worker
        self.graph = RankGraph(plan, self.worker)
        self.edges = Exchange(mesh)
        self._moves = functools.cache(self._moved)
        self._compiled = compiled
        self._seed = 0
        self._floats: Mapping[int, float] = {}
        self.is_random = any(map(is_random, plan.traced.operators))
        own = self._own
        forward, traced = self._forward_groups(), plan.traced
        heads = own([*self.graph.outputs, *self.graph.mutations.values()])
        gradients = own(self.graph.gradients.values())
        second = [o for o in traced.operators if o.name not in traced.forward]
        backward_steps = self._steps(second, self.graph.fetches.keys() - forward, gradients)
        missing = read_first(backward_steps, gradients)
        tangents = own(
            self.graph.variables[v.name] for v in traced.variables if v.kind == "tangent"
        )
        self._saved = tuple(sorted(missing - tangents))
        first = [o for o in traced.operators if o.name in traced.forward]
        self.forward_steps = self._finished(
            self._steps(first, forward, heads | set(self._saved)), heads | set(self._saved)
        )
        self.backward_steps = self._finished(backward_steps, gradients)

    def _own(self, divided: Iterable[Tiled]) -> set[Tile]:
        """This rank's tiles of variables or heads."""
        tiles = (each.tile for each in divided)
        return {tile for tile in tiles if tile is not None}

    # --- The user's tensors -------------------------------------------------------------

    def placement(self, entry: Entry) -> Placement:
        """The placement of a tensor as a DTensor."""
        left = iter(self.plan.cuts[entry])
        return tuple(next(left) if size > 1 else WHOLE for size in self.plan.mesh)

    def shape(self, entry: Entry) -> tuple[int, ...]:
        """The shape of a whole tensor."""
        return self.plan.details.tensor(entry.node, entry.index).shape

    def boxes(self, name: str) -> Boxes:
        """The boxes of a variable that the plan gives the ranks."""
        return self.graph.variables[name].boxes

    def moved(self, moves: Sequence[tuple[Any, Boxes, Boxes]]) -> list[Any]:
        """Brings tiles from the boxes that ranks hold to others, in one exchange."""
        key = tuple(
            (2 * k, value.dtype, source, target)
            for k, (value, source, target) in enumerate(moves)
            if source != target
        )
        tiles = {2 * k: value for k, (value, _, _) in enumerate(moves)}
        if key:
            self.edges.run(self._moves(key), tiles)
        return [tiles.get(2 * k + 1, tiles[2 * k]) for k in range(len(moves))]

    def _moved(self, key: Sequence[Any]) -> Transfers:
        sizes = tuple(self.mesh.mesh.shape)
        every = (
            regions_between(source, target, k, k + 1, dtype, sizes)
            for k, dtype, source, target in key
        )
        return self.edges.part_in([region for regions in every for region in regions])

    # --- Running ------------------------------------------------------------------------

    def forward(
        self, inputs: Mapping[str, Any], seed: int = 0, floats: Optional[Mapping[int, float]] = None
    ) -> tuple[Tiles, list[Any], dict[str, Any]]:
        """Run the forward pass on this rank's tiles of parameters, buffers and inputs.

        Args:
            inputs: the tiles.
            seed: seed of this call's random numbers, the same on all ranks.
            floats: the floats among the call's arguments, by position.

        Returns the tiles that the backward pass reads, the outputs' tiles, and those of buffers'
        new values.
        """
        self._seed, self._floats = seed, floats or {}
        tiles: Tiles = {}
        for variable in self.plan.traced.variables:
            divided = self.graph.variables[variable.name]
            tile = divided.tile
            if tile is not None and variable.kind == "constant":
                box = divided.boxes[self.worker]
                piece = variable.value[tuple(slice(*side) for side in box)]
                tiles[tile] = piece.to(self.mesh.device_type)
            elif tile is not None and variable.name in inputs:
                tiles[tile] = inputs[variable.name]
        self._run_all(self.forward_steps, tiles)
        saved = {tile: tiles[tile] for tile in self._saved}
        outputs = [self._tile(tiles, each) for each in self.graph.outputs]
        return saved, outputs, {k: self._tile(tiles, v) for k, v in self.graph.mutations.items()}

    def backward(
        self,
        saved: Tiles,
        tangents: Mapping[str, Any],
        seed: int = 0,
        floats: Optional[Mapping[int, float]] = None,
    ) -> dict[str, Any]:
        """Run the backward pass; return gradients by the names of their tensors.

        Args:
            saved: tiles that the forward pass saved. It is emptied, so that each is freed after
                its last use.
            tangents: tiles of the outputs' gradients by name.
            seed: the forward pass's.
            floats: the forward pass's.
        """
        self._seed, self._floats = seed, floats or {}
        tiles: Tiles = {}
        while saved:
            tile, value = saved.popitem()
            tiles[tile] = value
            del value
        for name, value in tangents.items():
            own = self.graph.variables[name].tile
            if own is not None:
                tiles[own] = value
        self._run_all(self.backward_steps, tiles)
        return {name: self._tile(tiles, each) for name, each in self.graph.gradients.items()}

    def _tile(self, tiles: Tiles, head: Tiled) -> Any:
        tile = head.tile
        assert tile is not None
        return tiles[tile]

    def _run_all(self, steps: Sequence[Step], tiles: Tiles) -> None:
        pending: dict[str, Pending] = {}
        try:
            for step in steps:
                self._step(step, tiles, pending)
                for tile in step.drops:
                    tiles.pop(tile, None)
        except Exception:  # messages that are left would meet those of a later call
            for each in pending.values():
                with contextlib.suppress(ConnectionLostError):
                    self.exchange.wait(each)
            raise

    def _step(self, step: Step, tiles: Tiles, pending: dict[str, Pending]) -> None:
        if isinstance(step, (Start, Fetch)):
            self._exchange(step, tiles, pending)
        elif isinstance(step, Call):
            self._run(step, tiles)
        else:
            results = step([tiles[tile] for tile in step.reads])
            tiles.update(zip(step.makes, results))

    def _exchange(
        self, step: Union[Start, Fetch], tiles: Tiles, pending: dict[str, Pending]
    ) -> None:
        """Start an exchange, or finish it; one that sends and receives nothing has no start."""
        exchange = pending.pop(step.name, None) or self._started(step.moves, tiles)
        if isinstance(step, Start):
            pending[step.name] = exchange
        else:
            self.exchange.finish(exchange, tiles)

    def _started(self, moves: Moves, tiles: Tiles) -> Pending:
        return self.exchange.start(moves.transfers, tiles)

    def _run(self, call: Call, tiles: Tiles) -> None:
        values = [tiles[tile] for tile in call.reads]
        named = call.named
        if call.places is None:
            floats = self._floats
            positional = [filled(each, values, floats) for each in call.positional]
            named = {name: filled(each, values, floats) for name, each in call.named.items()}
        else:
            positional = list(call.positional)
            for place, number in call.places:
                positional[place] = values[number]
        result = self._results(call, positional, named)
        for position in call.blanks:
            if result[position].numel():
                raise GraphError(
                    f"{call.name}: {call.function} returned elements as result {position}, which "
                    "had none when it was traced; run this part of the module outside of it"
                )
        for tile, position in call.makes:
            tiles[tile] = result[position] if isinstance(result, (tuple, list)) else result

    def _results(self, call: Call, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if call.seed is None:
            return call.function(*positional, **named)
        with _seeded(f"{self._seed}/{call.seed}", self.mesh.device_type):
            return call.function(*positional, **named)

    # --- Preparing ----------------------------------------------------------------------

    def _forward_groups(self) -> set[str]:
        """The fetches of the forward pass: for its operators, and of their outputs."""
        graph, forward = self.graph, self.plan.traced.forward
        names = {name for name in graph.fetches if name.rpartition("/out")[0] in forward}
        readers = [group for name, group in graph.calls.items() if name in forward]
        names |= set().union(*(group.reads for group in readers))
        names |= {head.maker for head in [*graph.outputs, *graph.mutations.values()]}
        names &= graph.fetches.keys()
        while True:
            before = {read for name in names for read in graph.fetches[name].reads}
            more = (before & graph.fetches.keys()) - names
            if not more:
                return names
            names |= more

    def _steps(
        self, operators: Sequence[Operator], fetches: Iterable[str], heads: set[Tile]
    ) -> list[Planned]:
        """A pass's steps of this rank in order."""
        graph = self.graph
        ordered = reordered(operators, self._fetching)
        groups = [graph.calls[o.name] for o in ordered if o.name in graph.calls]
        late = {operator.name for operator in operators if operator.repeats}
        calls = arranged(groups, graph.fetches, late=late)
        batches = started(batched(self._tasks(calls, set(fetches)), len(calls)))
        steps: list[Planned] = []
        for number, group in enumerate([*calls, None]):
            for batch in batches[number]:
                joined = [graph.fetches[task.name] for task in batch]
                moves = graph.moves(joined, is_crowded=self._is_crowded(joined))
                if moves.has_messages:
                    steps.append(Start(batch[0].name, moves))
                elif moves.makes:
                    steps.append(Fetch(batch[0].name, moves))
            if group is not None and group.step is not None:
                steps.append(self._call(graph.instance(group.step)))
        return self._with_constants(with_ends(steps), heads)

    @functools.cached_property
    def _fetching(self) -> set[str]:
        """The operators that read a region of which ranks receive pieces."""
        received = {fetch.name for fetch in self.graph.fetches.values() if fetch.received_bytes}
        return {call.name for call in self.graph.calls.values() if received & call.reads}

    def _is_crowded(self, fetches: Sequence[Group]) -> bool:
        """Whether every rank sends a little to every other, judging by a rank in the middle."""
        parts = self.plan.details.parts
        pairs = self.mesh.size() * (self.mesh.size() - 1)
        mean = sum(fetch.received_bytes for fetch in fetches) / max(pairs, 1)
        found = set[tuple[int, int]]().union(*(fetch.senders for fetch in fetches))
        return 0 < mean <= COLLECTIVE_BYTES and all(
            (steps, math.prod(size - 1 for k, size in enumerate(parts) if steps >> k & 1)) in found
            for steps in range(1, 1 << len(parts))
        )

    def _with_constants(self, steps: Sequence[Planned], heads: set[Tile]) -> list[Planned]:
        """Adds the calls that make constants, each before its first reader."""
        done: list[Planned] = []
        made: set[Tile] = set()
        for step in [*steps, None]:
            reads = heads if step is None else step.reads
            for tile in sorted(t for t in reads if t not in made and self.graph.is_constant(t)):
                made.add(tile)
                done.append(self._call(self.graph.instance(tile[0])))
            if step is not None:
                done.append(step)
        return done

    def _tasks(self, calls: Sequence[Group], names: set[str]) -> list[Task]:
        """The fetches of a pass, each after those that make what it reads."""
        graph = self.graph
        place = {call.name: k for k, call in enumerate(calls)}
        due: dict[str, int] = {}
        for k, call in enumerate(calls):
            for read in call.reads:
                due.setdefault(read, k)
        tasks: dict[str, Task] = {}
        for name, group in graph.fetches.items():  # in the order in which they can be made
            if name not in names:
                continue
            after = tuple(tasks[read] for read in sorted(group.reads) if read in tasks)
            ready = max([place.get(read, -1) for read in group.reads], default=-1)
            ready = max([ready, *(before.ready for before in after)])
            size = -(-group.received_bytes // self.mesh.size())
            slot = name.rpartition("/")[2]
            last = ready + 1 if not size and slot.startswith("out") else len(calls)
            messages = group.senders or frozenset([(-1, 0)])
            when, frees = min(due.get(name, last), last), not slot.startswith("in")
            tasks[name] = Task(name, size, ready, when, after, messages, frees)
        return list(tasks.values())

    def _call(self, instance: Instance) -> Call:
        node, operator = instance.tile[0], instance.operator
        if operator is None:
            shape, flag = self.graph.form(instance.tile)
            named = {"dtype": getattr(torch, NAMES[flag]), "device": self.mesh.device_type}
            return Call("", torch.zeros, (), (shape,), named, ((instance.tile, 0),))
        positional, named = arguments_of(operator, instance.changed, self.mesh.device_type)
        makes = tuple(((node, k), position) for k, position in enumerate(operator.positions))
        seed = f"{operator.name}/{self._part_of(operator)}" if is_random(operator) else None
        return Call(
            operator.name, function_of(operator), instance.inputs, positional, named, makes,
            blanks=operator.blanks, seed=seed,
        )  # fmt: skip

    def _part_of(self, operator: Operator) -> str:
        """A text that differs between the parts of an operator, not between ranks of one part."""
        left, parts = self.worker, []
        for step, size in reversed(list(enumerate(self.plan.details.parts))):
            left, digit = divmod(left, size)
            if self.plan.splits[operator.name][step] is not None:
                parts.append(f"{step}.{digit}")
        return ",".join(parts)

    def _finished(self, steps: Sequence[Planned], heads: set[Tile]) -> list[Step]:
        """Compiles steps, if asked to, and says which tiles each one drops."""
        last: dict[Tile, int] = {}
        read = {tile for step in steps for tile in step.reads} | heads
        for k, step in enumerate(steps):
            written = step.makes if isinstance(step, Fetch) else [tile for tile, _ in step.makes]
            last.update((tile, k) for tile in [*step.reads, *written])
        drops: dict[int, list[Tile]] = {}
        for tile, k in last.items():
            if tile not in heads:
                drops.setdefault(k, []).append(tile)
        done: list[Step] = []
        for k, step in enumerate(steps):
            dropped = tuple(drops.get(k, ()))
            if isinstance(step, Call):
                makes = tuple(each for each in step.makes if each[0] in read)
                done.append(replace(step, makes=makes, drops=dropped))
            else:
                done.append(replace(step, drops=dropped))
        if self._compiled:
            return with_segments(done, _is_compiled, heads)
        calls = [step for step in done if isinstance(step, Call)]
        return in_place(calls, done, self.graph.form)


def _is_compiled(step: Step) -> bool:
    """Whether torch.compile compiles a step: seeds of random operators depend on the rank."""
    return (
        isinstance(step, Call)
        and step.seed is None
        and not step.blanks
        and hasattr(step.function, "_schema")
    )


class _seeded:  # noqa: N801 - a context manager
    """Seeds torch's random numbers from a text, and restores the script's state afterwards.

    On CPUs, only their generator: torch.manual_seed takes longer than a small operator, as it notes
    the stack for each kind of device that is not there.
    """

    def __init__(self, text: str, device: str) -> None:
        digest = hashlib.sha256(text.encode()).digest()
        self._seed = int.from_bytes(digest[:7], "big")
        self._fork = torch.random.fork_rng() if device == "cuda" else None
        self._state: Any = None

    def __enter__(self) -> None:
        if self._fork is not None:
            self._fork.__enter__()
            torch.manual_seed(self._seed)
        else:
            self._state = torch.default_generator.get_state()
            torch.default_generator.manual_seed(self._seed)

    def __exit__(self, *reason: Any) -> None:
        if self._fork is not None:
            self._fork.__exit__(*reason)
        else:
            torch.default_generator.set_state(self._state)
