"""A graph of objects that can be rewritten; reads and writes NNVM's JSON.

    graph = Graph.from_symbol(symbol)
    for node in graph.topological():
        print(node.op, node.name, [entry.node.name for entry in node.inputs])
    symbol = graph.to_symbol()

A node's outputs are entries. The graph consists of all nodes that its heads reach, and of
the variables in ``kept``, which stay even if nothing reads them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import Iterable
from typing import Any, Optional

import mxnet as mx
from mxnet.base import _LIB, SymbolHandle, check_call

from tofu.errors import GraphError

__all__ = [
    "Entry",
    "Graph",
    "Node",
    "Shape",
    "VARIABLE",
    "format_shape",
    "merge_variables",
    "symbol_text",
    "unique_names",
]

Shape = tuple[int, ...]

VARIABLE = "null"
_MXNET_VERSION = 10901


def symbol_text(symbol: mx.sym.Symbol) -> str:
    """Return the text of ``symbol.tojson()`` without its leak.

    MXNet 1.9.1's ``tojson`` makes a copy of the symbol without casts of mixed precision, and
    never frees it: 30 KiB for a symbol of 40 nodes, in every call.
    """
    handle = SymbolHandle()
    check_call(_LIB.MXSymbolRemoveAmpCast(symbol.handle, ctypes.byref(handle)))
    return str(mx.sym.Symbol(handle).tojson(remove_amp_cast=False))


@dataclasses.dataclass(eq=False)
class Node:
    """An operator or variable (``op`` is VARIABLE); compared by identity.

    Once inferred, ``shapes`` and ``dtypes`` have one element per output. Control flow has
    ``subgraphs``, as JSON.
    """

    op: str
    name: str
    attrs: dict[str, str] = dataclasses.field(default_factory=dict)
    inputs: list[Entry] = dataclasses.field(default_factory=list)
    control_deps: list[Node] = dataclasses.field(default_factory=list)
    num_outputs: int = 1
    shapes: list[Shape] = dataclasses.field(default_factory=list)
    dtypes: list[int] = dataclasses.field(default_factory=list)
    subgraphs: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def is_variable(self) -> bool:
        """Whether the node is a variable."""
        return self.op == VARIABLE


@dataclasses.dataclass(frozen=True)
class Entry:
    """One output of a node."""

    node: Node
    index: int = 0

    @property
    def shape(self) -> Shape:
        """Shape of the entry, once inferred."""
        return self.node.shapes[self.index]

    @property
    def dtype(self) -> int:
        """MXNet type flag of the entry, once inferred."""
        return self.node.dtypes[self.index]


@dataclasses.dataclass
class Graph:
    """The nodes that the heads reach, and the kept variables."""

    heads: list[Entry]
    kept: list[Node] = dataclasses.field(default_factory=list)

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Read NNVM JSON. Raises GraphError for anything else."""
        try:
            return _read(json.loads(text))
        except GraphError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise GraphError(
                f"symbol JSON: cannot be read ({type(error).__name__}: {error}); expected the "
                "text that mxnet.sym.Symbol.tojson() or save() writes"
            ) from error

    @classmethod
    def from_symbol(cls, symbol: mx.sym.Symbol) -> Graph:
        """Read an MXNet symbol."""
        return cls.from_json(symbol_text(symbol))

    def topological(self) -> list[Node]:
        """List all nodes, each after its inputs and control dependencies."""
        order: list[Node] = []
        begun: set[Node] = set()
        ended: set[Node] = set()
        # A node is on the stack until it ends; a second visit finds all before it ended.
        stack = [*reversed(self.kept), *(entry.node for entry in reversed(self.heads))]
        while stack:
            node = stack[-1]
            if node in ended:
                stack.pop()
            elif node in begun:
                stack.pop()
                ended.add(node)
                order.append(node)
            else:
                begun.add(node)
                stack += [each for each in reversed(node.control_deps) if each not in begun]
                stack += [each.node for each in reversed(node.inputs) if each.node not in begun]
        return order

    def nodes_read(self) -> set[Node]:
        """The nodes that the heads reach through inputs, ignoring control dependencies."""
        read: set[Node] = set()
        pending = [*(entry.node for entry in self.heads), *self.kept]
        while pending:
            node = pending.pop()
            if node not in read:
                read.add(node)
                pending += [entry.node for entry in node.inputs]
        return read

    def variables(self) -> dict[str, Node]:
        """The variables by name."""
        return {node.name: node for node in self.topological() if node.is_variable}

    def copy(self) -> Graph:
        """Return an equal graph of new nodes."""
        copies: dict[Node, Node] = {}

        def entries(of: Iterable[Entry]) -> list[Entry]:
            return [Entry(copies[entry.node], entry.index) for entry in of]

        for node in self.topological():
            copies[node] = Node(
                node.op,
                node.name,
                dict(node.attrs),
                entries(node.inputs),
                [copies[each] for each in node.control_deps],
                node.num_outputs,
                list(node.shapes),
                list(node.dtypes),
                list(node.subgraphs),
            )
        return Graph(entries(self.heads), [copies[node] for node in self.kept])

    def replace(self, replacements: dict[Entry, Entry]) -> None:
        """Make all readers of an entry, heads included, read another entry instead."""

        def resolve(entry: Entry) -> Entry:
            while entry in replacements:
                entry = replacements[entry]
            return entry

        self.heads = [resolve(entry) for entry in self.heads]
        # Replacements make more nodes reachable, so repeat until nothing changes.
        seen: set[Node] = set()
        pending = [entry.node for entry in self.heads]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            node.inputs = [resolve(entry) for entry in node.inputs]
            pending += [entry.node for entry in node.inputs]
            pending += node.control_deps

    def to_json(self, attrs: Optional[dict[str, Any]] = None, *, all_heads: bool = False) -> str:
        """Write NNVM JSON with extra graph attributes.

        all_heads: write every entry as a head, hidden outputs included.
        """
        order = self.topological()
        ids = {node: i for i, node in enumerate(order)}
        row = [0]
        for node in order:
            row.append(row[-1] + node.num_outputs)
        heads: Iterable[Entry] = self.heads
        if all_heads:
            heads = (Entry(node, i) for node in order for i in range(node.num_outputs))
        return json.dumps(
            {
                "nodes": [_node_json(node, ids) for node in order],
                "arg_nodes": [i for i, node in enumerate(order) if node.is_variable],
                "node_row_ptr": row,
                "heads": [[ids[entry.node], entry.index, 0] for entry in heads],
                "attrs": {"mxnet_version": ["int", _MXNET_VERSION], **(attrs or {})},
            }
        )

    def to_symbol(self, *, all_heads: bool = False) -> mx.sym.Symbol:
        """Convert to an MXNet symbol. Raises GraphError if MXNet refuses the graph."""
        try:
            return mx.sym.load_json(self.to_json(all_heads=all_heads))
        except mx.base.MXNetError as error:
            raise GraphError(f"MXNet cannot load the rewritten graph: {error}") from error


def format_shape(shape: Iterable[int]) -> str:
    """Format a shape as MXNet's attributes expect it: "(2, 3)", "(2,)"."""
    return str(tuple(shape))


def unique_names(graph: Graph) -> None:
    """Make node names unique; variables and the first node of each name keep theirs."""
    order = graph.topological()
    names = {node.name for node in order if node.is_variable}
    counts: dict[str, int] = {}
    for node in order:
        if node.is_variable:
            continue
        name = node.name
        while name in names:
            counts[node.name] = counts.get(node.name, 0) + 1
            name = f"{node.name}_{counts[node.name]}"
        node.name = name
        names.add(name)


def merge_variables(graph: Graph) -> None:
    """Merge variables that have the same name."""
    first: dict[str, Entry] = {}
    same: dict[Entry, Entry] = {}
    for node in graph.topological():
        if node.is_variable and first.setdefault(node.name, Entry(node)) != Entry(node):
            same[Entry(node)] = first[node.name]
    graph.replace(same)


def _read(data: dict[str, Any]) -> Graph:
    rows = data["node_row_ptr"]
    nodes: list[Node] = []
    for i, record in enumerate(data["nodes"]):
        nodes.append(
            Node(
                op=record["op"],
                name=record["name"],
                attrs=dict(record.get("attrs", record.get("param", {}))),
                inputs=[_entry(nodes, each) for each in record["inputs"]],
                control_deps=[nodes[each] for each in record.get("control_deps", [])],
                num_outputs=rows[i + 1] - rows[i],
                subgraphs=record.get("subgraphs", []),
            )
        )
    heads = [_entry(nodes, head) for head in data["heads"]]
    reached = set(Graph(heads).topological())
    return Graph(heads, [node for node in nodes if node.is_variable and node not in reached])


def _entry(nodes: list[Node], record: list[int]) -> Entry:
    number, output = record[:2]
    if number < 0 or not 0 <= output < nodes[number].num_outputs:
        raise IndexError(f"there is no output {output} of node {number}")
    return Entry(nodes[number], output)


def _node_json(node: Node, ids: dict[Node, int]) -> dict[str, Any]:
    record: dict[str, Any] = {"op": node.op, "name": node.name}
    if node.attrs:
        record["attrs"] = node.attrs
    record["inputs"] = [[ids[entry.node], entry.index, 0] for entry in node.inputs]
    if node.control_deps:
        record["control_deps"] = [ids[dep] for dep in node.control_deps]
    if node.subgraphs:
        record["subgraphs"] = node.subgraphs
    return record
