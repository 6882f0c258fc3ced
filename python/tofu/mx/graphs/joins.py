"""NumPy's hstack and dstack as concatenations.

MXNet infers their shapes only if the shapes of their inputs are known before, as those of variables
are, and those of computed tensors are not. Concatenations have no such limit, but need an axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from tofu.mx.nnvm import Entry, Graph, Node, Shape

from .infer import infer

__all__ = ["concatenate_stacks"]

_HSTACK, _DSTACK = "_npi_hstack", "_npi_dstack"


def concatenate_stacks(graph: Graph, variables: Mapping[str, tuple[Shape, str]]) -> None:
    """Replace the stacks of a graph, whose shapes need not be inferred.

    Args:
        graph: the graph, changed in place.
        variables: name -> (shape, dtype) of its variables.

    Raises GraphError if the shape of a stack's input cannot be inferred.
    """
    for node in graph.topological():
        if node.op not in (_HSTACK, _DSTACK):
            continue
        infer(Graph(list(node.inputs)), variables, may_be_empty=True)
        joined = _joined(node)
        if joined is not None:
            graph.replace({Entry(node): joined})


def _joined(node: Node) -> Optional[Entry]:
    """The stack as a concatenation; None for scalars."""
    ranks = {len(entry.shape) for entry in node.inputs}
    if 0 in ranks:
        return None
    if node.op == _HSTACK:
        axis, inputs = (0 if ranks == {1} else 1), node.inputs
    else:
        axis, inputs = 2, [_deep(node, i) for i in range(len(node.inputs))]
    attrs = {"num_args": str(len(inputs)), "axis": str(axis)}
    return Entry(Node("_npi_concatenate", node.name, attrs, inputs, list(node.control_deps)))


def _deep(node: Node, number: int) -> Entry:
    """Give an input three dimensions, as NumPy does: a vector is a row."""
    entry = node.inputs[number]
    rank = len(entry.shape)
    for axis in {1: (0, 2), 2: (2,)}.get(rank, ()):
        name = f"{node.name}_in{number}_axis{axis}"
        entry = Entry(Node("expand_dims", name, {"axis": str(axis)}, [entry]))
    return entry
