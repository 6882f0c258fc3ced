"""Reads the program of a rank: its calls, the regions that it fetches, and the pieces it sends.

All ranks have the same calls and fetches, by the same names and in the same order, though a rank
may take no part in one. So ranks can order calls and join fetches alike without any other rank's
program. What they decide by is the same on all of them: names, and the bytes that all receive.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from tofu import _core
from tofu.dtypes import NAMES
from tofu.plans.layout import boxes_of
from tofu.torch.graphs.module_graph import attributes_of
from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.graphs.traced import Entry, Operator
from tofu.torch.tiles.exchange import APART, FILL, WEIGHTED, Piece, Region, Transfers
from tofu.torch.tiles.placements import Boxes

__all__ = ["Group", "Instance", "Moves", "RankGraph", "Senders", "Tile", "Tiled"]

Tile = tuple[int, int]  # a step of the program, and its output
Senders = frozenset[tuple[int, int]]


@dataclass
class Group:
    """An operator, or a fetch, on all ranks.

    Attributes:
        name: its name.
        step: its number in this rank's program; None if the rank takes no part.
        reads: the names of the calls and fetches that make what ranks read here.
        received_bytes: bytes that all ranks of a fetch receive together.
        senders: for a rank in the middle of the mesh, how many ranks send to it, by the set of
            mesh dimensions (as bits) in which their places differ.
    """

    name: str
    step: Optional[int] = None
    reads: set[str] = field(default_factory=set)
    received_bytes: int = 0
    senders: Senders = frozenset()


@dataclass(frozen=True)
class Instance:
    """An operator on this rank.

    Attributes:
        operator: the module's operator; None for zeros.
        changed: the attributes that differ from the operator's.
        tile: its first output.
        inputs: the tiles and regions that it reads.
    """

    operator: Optional[Operator]
    changed: Mapping[str, str]
    tile: Tile
    inputs: tuple[Tile, ...]


@dataclass(frozen=True)
class Tiled:
    """A variable or a head, divided.

    Attributes:
        tile: this rank's tile; None if nothing reads it.
        shape: the whole tensor's.
        cuts: the dimension that each part of `parts` cuts, -1 for none.
        parts: the sizes of the mesh's dimensions that have 2 or more devices.
        maker: the name of the call or fetch that makes it on some rank; "" for a variable.
    """

    tile: Optional[Tile]
    shape: tuple[int, ...]
    cuts: tuple[int, ...]
    parts: tuple[int, ...]
    maker: str = ""

    @functools.cached_property
    def boxes(self) -> Boxes:
        """The tile of each rank."""
        return boxes_of(self.shape, self.cuts, self.parts)


@dataclass(frozen=True)
class Moves:
    """A rank's part in an exchange of some fetches. Its messages are made when they are needed.

    Attributes:
        graph: the rank's graph.
        fetches: the fetches.
        has_messages: whether the rank sends or receives, or a collective of all ranks does.
        sent: the tiles that the rank sends.
        reads: the tiles of which its own regions have pieces.
        makes: the regions.
        is_crowded: whether every rank sends a little to every other.
    """

    graph: RankGraph
    fetches: tuple[Group, ...]
    has_messages: bool
    sent: tuple[Tile, ...]
    reads: tuple[Tile, ...]
    makes: tuple[Tile, ...]
    is_crowded: bool

    @functools.cached_property
    def transfers(self) -> Transfers:
        """The messages and regions."""
        regions = [self.graph.region(fetch) for fetch in self.fetches]
        sent = [
            (reader, piece, region)
            for fetch, region in zip(self.fetches, regions)
            for reader, piece in self.graph.sent(fetch)
        ]
        own = [region for fetch, region in zip(self.fetches, regions) if fetch.step is not None]
        return Transfers(own, sent, self.graph.worker, is_crowded=self.is_crowded)


class RankGraph:
    """The program of one rank.

    Args:
        plan: the plan.
        worker: the rank's number among the mesh's devices.

    Attributes:
        worker: as given.
        calls: the operators by name.
        fetches: the fetches by name, in an order in which they can be made.
        variables: the module's variables, divided, by name.
        outputs, gradients, mutations: the heads by their kind in the trace.
    """

    def __init__(self, plan: TorchPlan, worker: int) -> None:
        self.worker = worker
        self._program = program = plan.program(worker)
        self._steps = program.steps
        self._operators = {operator.name: operator for operator in plan.traced.operators}
        self._nodes = plan.problem.graph.nodes
        self._names = [step.name for step in self._steps]
        self._kinds = [step.kind for step in self._steps]
        self.calls: dict[str, Group] = {}
        self.fetches: dict[str, Group] = {}
        for number, step in enumerate(self._steps):
            if self._kinds[number] in ("run", "fetch"):
                self._add(number, step)
        parts = plan.details.parts
        self.outputs: list[Tiled] = []
        self.gradients: dict[str, Tiled] = {}
        self.mutations: dict[str, Tiled] = {}
        self._ends: set[int] = set()
        read = {tile for step in self._steps for tile in step.inputs}
        read |= {step.held for step in self._steps if step.sends}
        for role, tile, maker, shape, cuts in program.heads:
            kind, _, name = role.partition(":")
            tiled = Tiled(tile, shape, tuple(cuts), parts, self._group_name(maker))
            read.add(tile)
            self._ends.add(maker)
            if kind == "output":
                self.outputs.append(tiled)
            else:
                {"gradient": self.gradients, "aux": self.mutations}[kind][name] = tiled
        self.variables = {
            self._names[number]: Tiled(
                (number, 0) if (number, 0) in read else None,
                self._whole_shape(number),
                plan.cuts[Entry(self._names[number])],
                parts,
            )
            for number, kind in enumerate(self._kinds)
            if kind == "variable"
        }

    def _add(self, number: int, step: _core.ProgramStep) -> None:
        groups = self.calls if self._kinds[number] == "run" else self.fetches
        groups[step.name] = Group(
            step.name,
            number if step.takes_part else None,
            {name for name in map(self._group_name, step.after) if name},
            step.received_bytes,
            frozenset(step.pattern),
        )

    def _group_name(self, number: int) -> str:
        return self._names[number] if self._kinds[number] in ("run", "fetch") else ""

    def _whole_shape(self, number: int) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._nodes[self._steps[number].node].outputs[0][0]
        return shape

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names)}

    def region(self, group: Group) -> Region:
        """The region of a fetch; without pieces if this rank takes no part."""
        return self._region(group, self._step(group).pieces)

    def region_outline(self, group: Group) -> Region:
        """A region that takes as much memory where it is assembled, with few pieces."""
        return self._region(group, self._step(group).outline)

    def _step(self, group: Group) -> _core.ProgramStep:
        return self._steps[self._numbers[group.name]]

    def _region(self, group: Group, found: Sequence[Any]) -> Region:
        number = self._numbers[group.name]
        step = self._steps[number]
        ((shape, flag),) = step.outputs
        shape = shape[1:] if step.reduction == APART else shape
        pieces = tuple(
            Piece(owner, step.held if owner == self.worker else None, term, start, to, extents)
            for owner, term, start, to, extents in found
            if owner == FILL or 0 not in extents
        )
        dtype = getattr(torch, NAMES[flag])
        return Region(
            self.worker, (number, 0), shape, dtype, pieces, step.reduction, step.terms,
            float(step.fill), self._order(number), self._weights(step),
        )  # fmt: skip

    def _weights(self, step: _core.ProgramStep) -> Optional[tuple[Tile, tuple[int, ...]]]:
        """The tile of a fetch's weights, which its program lists last, and their dimensions."""
        if step.reduction != WEIGHTED or not step.takes_part:
            return None
        return step.inputs[-1], tuple(step.weighted_dims)

    def sent(self, group: Group) -> list[tuple[int, Piece]]:
        """The pieces of this rank's tile that others fetch, each with its reader."""
        step = self._step(group)
        return [
            (reader, self.sent_piece(group, start, extents)) for reader, start, extents in step.sent
        ]

    def sent_piece(self, group: Group, start: tuple[int, ...], extents: tuple[int, ...]) -> Piece:
        """A piece of this rank's tile."""
        return Piece(self.worker, self._step(group).held, 0, start, (), extents)

    def outline(self, groups: Sequence[Group]) -> _core.ExchangeOutline:
        """The bytes of this rank's messages in an exchange of some fetches."""
        numbers = [self._numbers[group.name] for group in groups]
        orders = [self._order(number) for number in numbers]
        return self._program.outline(numbers, [orders.index(order) for order in orders])

    def _order(self, number: int) -> tuple[int, ...]:
        """A region's dimensions in the order of memory, judging by the trace; () as they come."""
        if number in self._ends:
            return ()
        maker, output = self._steps[number].source
        if self._kinds[maker] == "fetch":
            return self._order(maker)
        operator = self._operators.get(self._names[maker])
        return () if operator is None else operator.order(output)

    def fills(self) -> set[float]:
        """The values that regions and constants are filled with."""
        fetched = {float(self._steps[self._numbers[name]].fill) for name in self.fetches}
        made = (step.attrs for step, kind in zip(self._steps, self._kinds) if kind == "constant")
        return fetched | {float(attrs["value"]) for attrs in made if "value" in attrs}

    def instance(self, number: int) -> Instance:
        """The operator of a step: a call's, or a constant's."""
        step = self._steps[number]
        inputs = tuple(step.inputs)
        if step.node < 0:
            return Instance(None, {}, (number, 0), inputs)
        operator = self._operators[self._nodes[step.node].name]
        own = attributes_of(operator)
        attrs = {k: v for k, v in step.attrs.items() if not k.startswith("__")}
        changed = {name: value for name, value in attrs.items() if own.get(name) != value}
        return Instance(operator, changed, (number, 0), inputs)

    def moves(self, fetches: Sequence[Group], *, is_crowded: bool) -> Moves:
        """This rank's part in an exchange of some fetches."""
        steps = [self._step(fetch) for fetch in fetches]
        return Moves(
            self,
            tuple(fetches),
            is_crowded or any(step.receives or step.sends for step in steps),
            tuple(dict.fromkeys(step.held for step in steps if step.sends)),
            tuple(dict.fromkeys(tile for step in steps for tile in step.inputs)),
            tuple((fetch.step, 0) for fetch in fetches if fetch.step is not None),
            is_crowded,
        )

    def is_constant(self, tile: Tile) -> bool:
        """Whether a tile is a constant that the rank makes where it reads it."""
        return self._kinds[tile[0]] == "constant"

    def form(self, tile: Tile) -> tuple[tuple[int, ...], int]:
        """The shape of a tile or region, and the number of its type."""
        shape, flag = self._steps[tile[0]].outputs[tile[1]]
        return tuple(shape), flag
