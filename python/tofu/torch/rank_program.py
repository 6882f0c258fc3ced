"""Runs a planned joint graph on this rank: ATen operators on tiles, exchanged where needed.

A tensor is kept as the tile that the plan gives this rank. An operator reads the regions that its
split needs; operators that read the same region share one redistribution. Their outputs are brought
to the kept tiles, terms by reducing them. Several tensors are exchanged together (``batches``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch
from torch.distributed.device_mesh import DeviceMesh

from tofu.analysis.apply_row import part_of
from tofu.torch.batches import Task, batched, reordered
from tofu.torch.calls import arguments_of, filled, function_of, is_random
from tofu.torch.compiling import Segment, segments
from tofu.torch.exchange import Exchange, Moving
from tofu.torch.module_graph import attributes_of
from tofu.torch.module_trace import Entry, Operator
from tofu.torch.moves import Move, kept_placement, split_of
from tofu.torch.order import arranged
from tofu.torch.placements import Placing
from tofu.torch.redistribution import WHOLE, Placement, route
from tofu.torch.torch_plan import TorchPlan

__all__ = ["Program", "Saved"]

Tiles = dict[Entry, dict[Placement, Any]]
Saved = Mapping[Entry, Any]


@dataclass(frozen=True)
class _Output:
    """An output of a call: its position in the operator's results, and its placements."""

    entry: Entry
    position: int
    made: Placement
    kept: Placement


@dataclass(frozen=True)
class _Call:
    """An operator as this rank runs it.

    Attributes:
        function: the function to call.
        inputs: each tensor, its placement, and whether this rank reads zeros instead.
        positional, named: arguments; a tensor is its number among `inputs`, see `filled`.
        outputs: the outputs that something reads.
        drops: tensors that no later call reads.
        seed: for random operators, a text that differs between ranks' parts; else None.
    """

    function: Any
    inputs: tuple[tuple[Entry, Placement, bool], ...]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    outputs: tuple[_Output, ...]
    drops: tuple[Entry, ...]
    seed: Optional[str]


@dataclass(frozen=True)
class _Pass:
    """The calls of a pass, and the exchanges before each of them and after the last one.

    Attributes:
        compiled: number of the first call -> compiled segment and number of its end.
    """

    calls: tuple[_Call, ...]
    batches: Sequence[Sequence[Sequence[Task]]]
    compiled: Mapping[int, tuple[int, Segment]]


class Program:
    """A planned module on one rank.

    Args:
        plan: the plan, the same on all ranks.
        mesh: the mesh of devices, of the plan's sizes.
        seed: seed of random numbers, the same on all ranks.
        compiled: whether torch.compile compiles the calls between exchanges.

    Attributes:
        exchange: moves tiles between ranks.
    """

    def __init__(
        self, plan: TorchPlan, mesh: DeviceMesh, seed: int = 0, *, compiled: bool = False
    ) -> None:
        self._compiled = compiled
        self.plan = plan
        self.mesh = mesh
        self.exchange = Exchange(mesh)
        self._seed = seed
        self._step = 0
        traced = plan.traced
        self._metas: dict[Entry, Any] = {}
        for variable in traced.variables:
            self._metas[Entry(variable.name)] = variable.meta
        for operator in traced.operators:
            for k, tensor in enumerate(operator.outputs):
                self._metas[Entry(operator.name, k)] = tensor
        self._shapes = {entry: tuple(meta.shape) for entry, meta in self._metas.items()}
        self._kept = {entry: kept_placement(plan, entry) for entry in self._shapes}
        first = [o for o in traced.operators if o.name in traced.forward]
        second = [o for o in traced.operators if o.name not in traced.forward]
        read_later = {entry for o in second for _, entry in o.inputs}
        read_later |= set(traced.gradients.values())
        heads = {e for e in traced.outputs if e is not None} | set(traced.mutations.values())
        made_first = {v for v in self._shapes if v.node in traced.forward}
        inputs = {Entry(v.name) for v in traced.variables if v.kind != "tangent"}
        self._saved = tuple(sorted(read_later & (made_first | inputs), key=str))
        self._forward = self._pass(reordered(first), keep=heads | read_later)
        self._backward = self._pass(reordered(second), keep=set(traced.gradients.values()))

    def placements(self, entry: Entry) -> Placement:
        """The placement in which a tensor is kept."""
        return self._kept[entry]

    def shape(self, entry: Entry) -> tuple[int, ...]:
        """The shape of a whole tensor."""
        return self._shapes[entry]

    # --- Running ------------------------------------------------------------------------

    def moved(self, tile: Any, entry: Entry, source: Placement, target: Placement) -> Any:
        """Bring a tile of a tensor to another placement."""
        return self.exchange.move(tile, self._shapes[entry], source, target)

    def forward(self, inputs: Mapping[Entry, Any]) -> tuple[Saved, dict[Entry, Any]]:
        """Run the forward pass on this rank's tiles of parameters, buffers and inputs.

        Returns the tiles that the backward pass reads, and outputs and new values of buffers.
        """
        self._step += 1
        tiles: Tiles = {e: {self.placements(e): tile} for e, tile in inputs.items()}
        for variable in self.plan.traced.variables:
            if variable.kind == "constant":
                entry = Entry(variable.name)
                kept = self.placements(entry)
                whole = (WHOLE,) * len(kept)
                tiles[entry] = {kept: self.moved(variable.value, entry, whole, kept)}
        self._run_all(self._forward, tiles)
        traced = self.plan.traced
        heads = [*(e for e in traced.outputs if e is not None), *traced.mutations.values()]
        return {e: self._tile(tiles, e) for e in self._saved}, {
            e: self._tile(tiles, e) for e in heads
        }

    def backward(self, given: dict[Entry, Any]) -> dict[Entry, Any]:
        """Run the backward pass; returns gradients.

        Args:
            given: tiles that the forward pass saved, and gradients of outputs. It is emptied, so
                that each is freed after its last use.
        """
        tiles: Tiles = {}
        while given:
            entry, tile = given.popitem()
            tiles[entry] = {self.placements(entry): tile}
            del tile
        self._run_all(self._backward, tiles)
        return {e: self._tile(tiles, e) for e in self.plan.traced.gradients.values()}

    def _tile(self, tiles: Tiles, entry: Entry) -> Any:
        return tiles[entry][self.placements(entry)]

    def _run_all(self, steps: _Pass, tiles: Tiles) -> None:
        number = 0
        while number <= len(steps.calls):
            for batch in steps.batches[number]:
                self._exchange(batch, tiles)
            if number in steps.compiled:
                end, segment = steps.compiled[number]
                results = segment([tiles[entry][place] for entry, place in segment.reads])
                for (entry, place), tile in zip(segment.makes, results):
                    tiles[entry] = {place: tile}
                for call in steps.calls[number:end]:
                    self._drop(call, tiles)
                number = end
                continue
            if number < len(steps.calls):
                self._run(steps.calls[number], tiles)
            number += 1

    def _exchange(self, batch: Sequence[Task], tiles: Tiles) -> None:
        moving = []
        for task in batch:
            known = tiles[task.entry]
            moving.append(
                Moving(known[task.source], self._shapes[task.entry], task.source, task.target)
            )
            if task.source != self.placements(task.entry):
                del known[task.source]  # nothing else reads an operator's own parts
        for task, tile in zip(batch, self.exchange.move_all(moving)):
            tiles[task.entry][task.target] = tile

    def _run(self, call: _Call, tiles: Tiles) -> None:
        values = []
        for entry, place, is_zero in call.inputs:
            value = tiles[entry][place]
            values.append(torch.zeros_like(value) if is_zero else value)
        positional = [filled(each, values) for each in call.positional]
        named = {name: filled(each, values) for name, each in call.named.items()}
        if call.seed is None:
            result = call.function(*positional, **named)
        else:
            with _seeded(f"{self._seed}/{self._step}/{call.seed}"):
                result = call.function(*positional, **named)
        for out in call.outputs:
            value = result[out.position] if isinstance(result, (tuple, list)) else result
            tiles[out.entry] = {out.made: value}
        self._drop(call, tiles)

    def _drop(self, call: _Call, tiles: Tiles) -> None:
        """Free the tiles that nothing reads after a call."""
        for entry in call.drops:
            tiles.pop(entry, None)

    # --- Preparing ----------------------------------------------------------------------

    def _pass(self, operators: Sequence[Operator], keep: Iterable[Entry]) -> _Pass:
        kept = set(keep)
        read = {entry for operator in operators for _, entry in operator.inputs} | kept
        calls = arranged([self._call(operator, read) for operator in operators])
        last = {entry: k for k, call in enumerate(calls) for entry, _, _ in call.inputs}
        for k, call in enumerate(calls):
            drops = {e for e, _, _ in call.inputs if last[e] == k and e not in kept}
            calls[k] = replace(call, drops=tuple(drops))
        batches = batched(self._tasks(calls), len(calls))
        starts = [k for k, each in enumerate(batches) if each]
        compiled = segments(calls, starts, kept) if self._compiled else {}
        return _Pass(tuple(calls), batches, compiled)

    def _tasks(self, calls: Sequence[_Call]) -> list[Task]:
        """The moves of a pass: of outputs to their kept placements, and of inputs to calls."""
        by_output: dict[Entry, Task] = {}
        read: dict[tuple[Entry, Placement], Task] = {}
        ready: dict[Entry, int] = {}
        for k, call in enumerate(calls):
            for entry, place, _ in call.inputs:
                before = by_output.get(entry)
                kept = self.placements(entry)
                if before is not None:
                    before.due = min(before.due, k)
                if place != kept and (entry, place) not in read:
                    task = self._task(entry, kept, place, ready.get(entry, -1), k)
                    task.after = before
                    read[entry, place] = task
            for out in call.outputs:
                ready[out.entry] = k
                if out.made != out.kept:
                    task = self._task(out.entry, out.made, out.kept, k, len(calls))
                    task.due = k + 1 if task.bytes == 0 else task.due  # a tile takes less
                    by_output[out.entry] = task
        return [*by_output.values(), *read.values()]

    def _task(
        self, entry: Entry, source: Placement, target: Placement, ready: int, due: int
    ) -> Task:
        move = Move(entry, self._metas[entry], source, target)
        size = move.received_bytes(self.plan.mesh) // self.mesh.size()
        way = route(self._shapes[entry], source, target, self.plan.mesh)
        messages = frozenset((k, stage.all_reduce is not None) for k, stage in enumerate(way))
        return Task(entry, source, target, size, ready, due, messages=messages)

    def _call(self, operator: Operator, read: set[Entry]) -> _Call:
        attrs = attributes_of(operator)
        ins = [tuple(self._shapes[entry]) for _, entry in operator.inputs]
        outs = [tuple(tensor.shape) for tensor in operator.outputs]
        split = split_of(self.plan, operator, ins, outs)
        splits, digits, where = [], [], []
        for dim, variable in enumerate(split.variables):
            if variable is not None:
                splits.append((variable, self.plan.mesh[dim]))
                digits.append(self.mesh.get_local_rank(dim))
                where.append(f"{dim}.{digits[-1]}")
        changed = {}
        if splits and split.row is not None:
            part = part_of(split.row, attrs, ins, outs, splits, tuple(digits))
            changed = {n: v for n, v in part.attributes.items() if attrs.get(n) != v}
        inputs = [
            (entry, split.needed(k), self._gets_zeros(split.placings, k))
            for k, (_, entry) in enumerate(operator.inputs)
        ]
        outputs = [
            _Output(Entry(operator.name, k), position, split.made(k), self.placements(entry))
            for k, position in enumerate(operator.positions)
            for entry in [Entry(operator.name, k)]
            if entry in read
        ]
        positional, named = arguments_of(operator, changed, self.mesh.device_type)
        seed = f"{operator.name}/{','.join(where)}" if is_random(operator) else None
        return _Call(
            function_of(operator), tuple(inputs), positional, named, tuple(outputs), (), seed
        )

    def _gets_zeros(self, split: Sequence[Optional[Placing]], number: int) -> bool:
        return any(
            each is not None and number in each.zeros and self.mesh.get_local_rank(dim) != 0
            for dim, each in enumerate(split)
        )


class _seeded:  # noqa: N801 - a context manager
    """Seeds torch's random numbers from a text, and restores the script's state afterwards."""

    def __init__(self, text: str) -> None:
        digest = hashlib.sha256(text.encode()).digest()
        self._seed = int.from_bytes(digest[:7], "big")
        self._fork = torch.random.fork_rng()

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *reason: Any) -> None:
        self._fork.__exit__(*reason)
