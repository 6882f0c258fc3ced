"""Loops over the slices of tensors (``foreach``), unrolled.

Every shape of a training graph is known, and with it the number of steps. So a copy of the
body for each step replaces the loop, and is partitioned as a net unrolled in Python is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tofu.errors import GraphError
from tofu.mx.nnvm import Entry, Graph, Node, Shape
from tofu.plans.names import STAGE

from .infer import infer
from .statistics import refuse_statistics

__all__ = ["unroll_loops"]

_FOREACH = "_foreach"


def unroll_loops(graph: Graph, variables: Mapping[str, tuple[Shape, str]]) -> None:
    """Replace every loop of a graph, and the loops inside of it, by its steps.

    Args:
        graph: the graph, changed in place.
        variables: name -> (shape, dtype) of its variables.

    Raises:
        GraphError: the length of a loop cannot be inferred, or its body has running
            statistics.
    """
    while True:
        loop = next((node for node in graph.topological() if node.op == _FOREACH), None)
        if loop is None:
            return
        refuse_statistics(loop)
        infer(Graph(list(loop.inputs)), variables)
        graph.replace(dict(zip(_outputs(loop), _unrolled(loop))))


def _unrolled(loop: Node) -> list[Entry]:
    """Unroll a loop and return its outputs."""
    slices, states, rest = (
        _numbers(loop, f"{kind}_locs") for kind in ("in_data", "in_state", "remain")
    )
    data = loop.inputs[: len(slices)]
    length = data[0].shape[0]
    for entry in data:
        if entry.shape[0] != length:
            raise GraphError(
                f"node {loop.name!r} ({_FOREACH}): its inputs have {length} and {entry.shape[0]} "
                "slices, expected equally many"
            )
    entries = dict(zip((*slices, *states, *rest), loop.inputs))
    cut = {at: _slices(loop, entry, at) for at, entry in zip(slices, data)}
    num_data = int(loop.attrs["num_out_data"])
    collected: list[list[Entry]] = [[] for _ in range(num_data)]
    for step in range(length):
        entries.update({at: each[step] for at, each in cut.items()})
        results = _step(loop, entries, step)
        for steps, result in zip(collected, results):
            steps.append(result)
        entries.update(zip(states, results[num_data:]))
    stacked = [_stacked(loop, number, steps) for number, steps in enumerate(collected)]
    return [*stacked, *(entries[at] for at in states)]


def _step(loop: Node, entries: Mapping[int, Entry], step: int) -> list[Entry]:
    """Copy the body; the copy reads the given entries."""
    (record,) = loop.subgraphs
    body = Graph.from_json(json.dumps(record))
    variables = body.variables()
    for node in body.topological():
        node.name += f"{STAGE}step{step}"
    names = [record["nodes"][number]["name"] for number in record["arg_nodes"]]
    body.replace({Entry(variables[name]): entries[at] for at, name in enumerate(names)})
    return body.heads


def _slices(loop: Node, entry: Entry, number: int) -> list[Entry]:
    """The slices along the first dimension; slices of vectors keep it."""
    length = entry.shape[0]
    attrs = {
        "num_outputs": str(length),
        "axis": "0",
        "squeeze_axis": str(len(entry.shape) > 1),
    }
    name = f"{loop.name}{STAGE}slices{number}"
    return _outputs(Node("SliceChannel", name, attrs, [entry], num_outputs=length))


def _stacked(loop: Node, number: int, steps: Sequence[Entry]) -> Entry:
    attrs = {"axis": "0", "num_args": str(len(steps))}
    return Entry(Node("stack", f"{loop.name}{STAGE}output{number}", attrs, list(steps)))


def _outputs(node: Node) -> list[Entry]:
    return [Entry(node, index) for index in range(node.num_outputs)]


def _numbers(node: Node, name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", node.attrs[name])]
