"""Reads the partitioned graph of a plan: the calls of each rank, and the fetches between ranks.

The partition pass makes a graph of all workers' operators. A rank needs its own operators, and the
fetches of all: those that it makes, and those that read its tiles. Operators, and fetches, that
stand for the same one of the module form a group, so that all ranks order them alike.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

import torch

from tofu import _core
from tofu.dtypes import NAMES
from tofu.errors import InternalError
from tofu.plans.layout import Layout, heads_of, variables_of
from tofu.torch.exchange import FILL, Piece, Region
from tofu.torch.module_graph import attributes_of, operator_name
from tofu.torch.torch_plan import TorchPlan
from tofu.torch.traced import Operator

__all__ = ["Group", "Instance", "RankGraph", "Tile", "Tiled"]

Tile = tuple[int, int]  # a node of the partitioned graph, and its output
_FETCH = "_tofu_multifetch"
_FILLS = ("_zeros", "_full")


@dataclass
class Group:
    """The nodes that stand for one operator, or one fetch, on all workers.

    Attributes:
        name: the group's name.
        nodes: worker -> its node.
        reads: the names of the groups that make what it reads.
        received_bytes: bytes that a fetch's workers receive together.
    """

    name: str
    nodes: dict[int, int] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    received_bytes: int = 0


@dataclass(frozen=True)
class Instance:
    """An operator on one worker.

    Attributes:
        operator: the module's operator; None for a tensor filled with a value.
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
        layout: how it is divided.
        tiles: its tile on each worker; None if nothing reads it.
    """

    layout: Layout
    tiles: tuple[Optional[Tile], ...]


class RankGraph:
    """The partitioned graph of a plan.

    Attributes:
        calls: the operators by name.
        fetches: the fetches by name.
        variables: the module's variables, divided, by name.
        outputs, gradients, mutations: the heads by their kind in the trace.
    """

    def __init__(self, plan: TorchPlan) -> None:
        self._traced = plan.traced
        parted = plan.partitioned
        self._nodes = parted.graph.nodes
        self._workers = parted.node_workers
        self._sources = [node.sources for node in self._nodes]
        self._group_of: dict[int, str] = {}
        self._operators = {operator.name: operator for operator in plan.traced.operators}
        self.calls: dict[str, Group] = {}
        self.fetches: dict[str, Group] = {}
        numbers = {n.name: k for k, n in enumerate(self._nodes) if not n.op}
        self.variables = {
            name: Tiled(each.layout, tuple(_tile(numbers.get(tile)) for tile in each.tiles))
            for name, each in variables_of(parted).items()
        }
        heads = parted.graph.heads
        self.outputs: list[Tiled] = []
        self.gradients: dict[str, Tiled] = {}
        self.mutations: dict[str, Tiled] = {}
        for head in heads_of(parted.heads):
            kind, _, name = head.role.partition(":")
            tiled = Tiled(head.layout, tuple(heads[number] for number in head.numbers))
            if kind == "output":
                self.outputs.append(tiled)
            else:
                {"gradient": self.gradients, "aux": self.mutations}[kind][name] = tiled
        ends = [*self.outputs, *self.gradients.values(), *self.mutations.values()]
        self._heads = {tile for head in ends for tile in head.tiles if tile is not None}
        self._add_groups()

    def _add_groups(self) -> None:
        live = {number for number, _ in self._heads}
        for number in reversed(range(len(self._nodes))):
            if number in live:
                live |= {node for node, _ in self._sources[number]}
        for number in sorted(live):
            node, worker = self._nodes[number], self._workers[number]
            place, _, suffix = node.name.rpartition(f"@{worker}")
            if node.op == _FETCH:
                self._add(self.fetches, place + suffix, number)
                received = self.region(number).received_bytes
                self.fetches[place + suffix].received_bytes += received
            elif node.op and not suffix:
                self._add(self.calls, place, number)

    def _add(self, groups: dict[str, Group], name: str, number: int) -> None:
        group = groups.setdefault(name, Group(name))
        group.nodes[self._workers[number]] = number
        self._group_of[number] = name
        makers = (self._group_of.get(node) for node, _ in self._sources[number])
        group.reads |= {maker for maker in makers if maker is not None}

    @functools.cache  # noqa: B019 - lives as long as its program
    def region(self, number: int) -> Region:
        """The region of a fetch."""
        node, sources = self._nodes[number], self._sources[number]
        ((reduction, terms, fill, given),) = node.regions
        ((shape, flag), *_) = node.outputs
        pieces = [
            Piece(
                FILL if source < 0 else self._workers[sources[source][0]],
                None if source < 0 else sources[source],
                term, start, to, extents,
            )
            for source, term, start, to, extents in given
            if 0 not in extents
        ]  # fmt: skip
        pieces.sort(key=lambda piece: piece.term)
        dtype = getattr(torch, NAMES[flag])
        return Region(
            self._workers[number], (number, 0), shape, dtype, tuple(pieces), reduction, terms, fill,
            self._order(sources[0]) if sources and (number, 0) not in self._heads else (),
        )  # fmt: skip

    def _order(self, tile: Tile) -> tuple[int, ...]:
        """A tile's dimensions in the order of memory, judging by the trace; () as they come."""
        if self._nodes[tile[0]].op == _FETCH:
            return self.region(tile[0]).order
        operator = self._operators.get(self.made_by(tile))
        return () if operator is None else operator.order(tile[1])

    def fills(self) -> set[float]:
        """The values that regions and constants are filled with."""
        fills = {
            float(n.attrs["value"]) for n in self._nodes if n.op in _FILLS and "value" in n.attrs
        }
        numbers = [number for group in self.fetches.values() for number in group.nodes.values()]
        return fills | {self.region(number).fill for number in numbers}

    def regions(self, group: Group) -> list[Region]:
        """The regions of a fetch on all workers, in the workers' order."""
        return [self.region(group.nodes[worker]) for worker in sorted(group.nodes)]

    def instance(self, number: int) -> Instance:
        """The operator of a node."""
        node = self._nodes[number]
        attrs = {k: v for k, v in node.attrs.items() if not k.startswith("__")}
        inputs = tuple(self._sources[number])
        if node.op in _FILLS:
            return Instance(None, attrs, (number, 0), inputs)
        operator = self._operators.get(self.made_by((number, 0))) or self._maker(node)
        own = attributes_of(operator)
        changed = {name: value for name, value in attrs.items() if own.get(name) != value}
        return Instance(operator, changed, (number, 0), inputs)

    def _maker(self, node: _core.Node) -> Operator:
        """The operator of a constant that a worker makes where it reads it."""
        alike = [
            operator
            for operator in self._operators.values()
            if operator_name(operator) == node.op and not operator.inputs
        ]
        for operator in alike:
            own = attributes_of(operator).items()
            if sum(node.attrs.get(name) != value for name, value in own) <= 1:  # its size
                return operator
        raise InternalError(f"{node.name}: the module calls no {node.op} like it")

    def made_by(self, tile: Tile) -> str:
        """The name of the group that makes a tile; "" for variables and constants."""
        return self._group_of.get(tile[0], "")

    def is_constant(self, tile: Tile) -> bool:
        """Whether a tile is a constant that its reader makes."""
        number = tile[0]
        return bool(self._nodes[number].op) and number not in self._group_of

    def form(self, tile: Tile) -> tuple[tuple[int, ...], int]:
        """The shape of a tile or region, and the number of its type."""
        shape, flag = self._nodes[tile[0]].outputs[tile[1]]
        return tuple(shape), flag

    def shape(self, tile: Tile) -> tuple[int, ...]:
        """The shape of a tile or region."""
        shape: tuple[int, ...] = self._nodes[tile[0]].outputs[tile[1]][0]
        return shape


def _tile(number: Optional[int]) -> Optional[Tile]:
    return None if number is None else (number, 0)
