"""Runs a planned joint graph on this rank: ATen operators on tiles, exchanged where needed.

A tensor is kept as the tile that the plan gives this rank. An operator reads the regions that its
split needs; all that read the same region share one redistribution. What it makes is brought to the
output's own tiles at once, terms by reducing them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch.distributed.device_mesh import DeviceMesh

from tofu.analysis import row_for
from tofu.analysis.apply_row import part_of
from tofu.torch.calls import arguments_of, filled, function_of, is_random
from tofu.torch.exchange import WHOLE, Exchange, Placement
from tofu.torch.placements import Placing, placing
from tofu.torch.planning import TorchPlan
from tofu.torch.tracing import Entry, Operator
from tofu.torch.training_graph import attributes_of, operator_name

__all__ = ["Program", "Saved"]

Tiles = dict[Entry, dict[Placement, Any]]
Saved = Mapping[Entry, Any]


@dataclass(frozen=True)
class _Output:
    """An output of a call: its position in what the operator returns, and how it is placed."""

    entry: Entry
    position: int
    made: Placement
    kept: Placement


@dataclass(frozen=True)
class _Call:
    """An operator as this rank runs it.

    Attributes:
        function: what to call.
        inputs: every tensor, how it is placed, and whether this rank gets zeros instead.
        positional, named: arguments; a tensor is its number among `inputs`, see `filled`.
        outputs: the outputs that something reads.
        drops: tensors that no later call reads.
        seed: for random operators, what tells this rank's part from others; else None.
    """

    function: Any
    inputs: tuple[tuple[Entry, Placement, bool], ...]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    outputs: tuple[_Output, ...]
    drops: tuple[Entry, ...]
    seed: Optional[str]


class Program:
    """A planned module on one rank.

    Args:
        plan: the plan, the same on all ranks.
        mesh: the devices, of the plan's sizes.
        seed: of random numbers, the same on all ranks.

    Attributes:
        exchange: what moves tiles between ranks.
    """

    def __init__(self, plan: TorchPlan, mesh: DeviceMesh, seed: int = 0) -> None:
        self.plan = plan
        self.mesh = mesh
        self.exchange = Exchange(mesh)
        self._seed = seed
        self._step = 0
        traced = plan.traced
        self._shapes: dict[Entry, torch.Size] = {}
        for variable in traced.variables:
            self._shapes[Entry(variable.name)] = variable.meta.shape
        for operator in traced.operators:
            for k, tensor in enumerate(operator.outputs):
                self._shapes[Entry(operator.name, k)] = tensor.shape
        first = [o for o in traced.operators if o.name in traced.forward]
        second = [o for o in traced.operators if o.name not in traced.forward]
        read_later = {entry for o in second for _, entry in o.inputs}
        read_later |= set(traced.gradients.values())
        heads = {e for e in traced.outputs if e is not None} | set(traced.mutations.values())
        made_first = {v for v in self._shapes if v.node in traced.forward}
        inputs = {Entry(v.name) for v in traced.variables if v.kind != "tangent"}
        self._saved = tuple(sorted(read_later & (made_first | inputs), key=str))
        self._forward = self._calls(first, keep=heads | read_later)
        self._backward = self._calls(second, keep=set(traced.gradients.values()))

    def placements(self, entry: Entry) -> Placement:
        """How a tensor is kept."""
        return self._placed(self.plan.cuts[entry])

    def shape(self, entry: Entry) -> torch.Size:
        """The shape of a whole tensor."""
        return self._shapes[entry]

    # --- Running ------------------------------------------------------------------------

    def moved(self, tile: Any, entry: Entry, source: Placement, target: Placement) -> Any:
        """A tile of a tensor in another placement."""
        return self.exchange.move(tile, self._shapes[entry], source, target)

    def forward(self, inputs: Mapping[Entry, Any]) -> tuple[Saved, dict[Entry, Any]]:
        """Run the forward pass on this rank's tiles of parameters, buffers and inputs.

        Returns what the backward pass reads, and outputs and new values of buffers.
        """
        self._step += 1
        tiles: Tiles = {e: {self.placements(e): tile} for e, tile in inputs.items()}
        for variable in self.plan.traced.variables:
            if variable.kind == "constant":
                entry = Entry(variable.name)
                kept = self.placements(entry)
                whole = (WHOLE,) * len(kept)
                tiles[entry] = {kept: self.moved(variable.value, entry, whole, kept)}
        for call in self._forward:
            self._run(call, tiles)
        traced = self.plan.traced
        heads = [*(e for e in traced.outputs if e is not None), *traced.mutations.values()]
        return {e: self._tile(tiles, e) for e in self._saved}, {
            e: self._tile(tiles, e) for e in heads
        }

    def backward(self, saved: Saved, tangents: Mapping[Entry, Any]) -> dict[Entry, Any]:
        """Run the backward pass; returns gradients."""
        given = {**saved, **tangents}
        tiles: Tiles = {e: {self.placements(e): tile} for e, tile in given.items()}
        for call in self._backward:
            self._run(call, tiles)
        return {e: self._tile(tiles, e) for e in self.plan.traced.gradients.values()}

    def _tile(self, tiles: Tiles, entry: Entry) -> Any:
        return tiles[entry][self.placements(entry)]

    def _run(self, call: _Call, tiles: Tiles) -> None:
        values = []
        for entry, wanted, is_zero in call.inputs:
            known = tiles[entry]
            if wanted not in known:
                kept = self.placements(entry)
                known[wanted] = self.moved(known[kept], entry, kept, wanted)
            value = known[wanted]
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
            tiles[out.entry] = {out.kept: self.moved(value, out.entry, out.made, out.kept)}
        for entry in call.drops:
            tiles.pop(entry, None)

    # --- Preparing ----------------------------------------------------------------------

    def _placed(self, cuts: Sequence[int]) -> Placement:
        """The placements of cuts: the plan has no steps for mesh dimensions of size 1."""
        left = iter(cuts)
        return tuple(next(left) if size > 1 else WHOLE for size in self.plan.mesh)

    def _calls(self, operators: Sequence[Operator], keep: Iterable[Entry]) -> list[_Call]:
        last: dict[Entry, int] = {}
        for k, operator in enumerate(operators):
            for _, entry in operator.inputs:
                last[entry] = k
        kept = set(keep)
        read = set(last) | kept
        calls = []
        for k, operator in enumerate(operators):
            drops = {e for _, e in operator.inputs if last[e] == k and e not in kept}
            calls.append(self._call(operator, read, tuple(drops)))
        return calls

    def _call(self, operator: Operator, read: set[Entry], drops: tuple[Entry, ...]) -> _Call:
        attrs = attributes_of(operator)
        ins = [tuple(self._shapes[entry]) for _, entry in operator.inputs]
        outs = [tuple(tensor.shape) for tensor in operator.outputs]
        row = row_for(operator_name(operator), attrs, ins, outs)
        split: list[Optional[Placing]] = []
        splits, digits, where = [], [], []
        left = iter(self.plan.splits[operator.name])
        for dim, size in enumerate(self.plan.mesh):
            name = next(left) if size > 1 else None
            if name is None or row is None:
                split.append(None)
                continue
            variable = next(v for v, var in enumerate(row["vars"]) if var["name"] == name)
            split.append(placing(row, variable, ins, outs))
            splits.append((variable, size))
            digits.append(self.mesh.get_local_rank(dim))
            where.append(f"{dim}.{digits[-1]}")
        changed = {}
        if splits and row is not None:
            part = part_of(row, attrs, ins, outs, splits, tuple(digits))
            changed = {n: v for n, v in part.attributes.items() if attrs.get(n) != v}
        inputs = [
            (entry, self._needed(split, k), self._gets_zeros(split, k))
            for k, (_, entry) in enumerate(operator.inputs)
        ]
        outputs = [
            _Output(Entry(operator.name, k), position, _made(split, k), self.placements(entry))
            for k, position in enumerate(operator.positions)
            for entry in [Entry(operator.name, k)]
            if entry in read
        ]
        positional, named = arguments_of(operator, changed, self.mesh.device_type)
        seed = f"{operator.name}/{','.join(where)}" if is_random(operator) else None
        return _Call(
            function_of(operator), tuple(inputs), positional, named, tuple(outputs), drops, seed
        )

    def _needed(self, split: Sequence[Optional[Placing]], number: int) -> Placement:
        dims = [None if each is None else each.inputs[number] for each in split]
        return tuple(WHOLE if d is None else d for d in dims)

    def _gets_zeros(self, split: Sequence[Optional[Placing]], number: int) -> bool:
        return any(
            each is not None and number in each.zeros and self.mesh.get_local_rank(dim) != 0
            for dim, each in enumerate(split)
        )


def _made(split: Sequence[Optional[Placing]], number: int) -> Placement:
    """How the parts lie in an output."""
    found: list[Any] = []
    for each in split:
        reduction = None if each is None else each.reduces[number]
        cut = None if each is None else each.outputs[number]
        found.append(reduction if reduction is not None else WHOLE if cut is None else cut)
    return tuple(found)


class _seeded:  # noqa: N801 - a context manager
    """Random numbers that depend on a text only; those of the script stay as they were."""

    def __init__(self, text: str) -> None:
        digest = hashlib.sha256(text.encode()).digest()
        self._seed = int.from_bytes(digest[:7], "big")
        self._fork = torch.random.fork_rng()

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *reason: Any) -> None:
        self._fork.__exit__(*reason)
