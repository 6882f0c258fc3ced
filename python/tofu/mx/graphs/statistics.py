"""Running statistics inside of control flow, which tofu refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tofu.errors import GraphError
from tofu.mx.nnvm import Graph, Node

__all__ = ["refuse_statistics"]


def refuse_statistics(node: Node) -> None:
    """Raise GraphError if an operator inside of a node updates running statistics."""
    if _any(node.subgraphs):
        raise GraphError(
            f"node {node.name!r} ({node.op}): a layer inside of it keeps running statistics "
            "(BatchNorm), expected none; move the layer out of it, or call it from a Python loop"
        )


def _any(graphs: Iterable[Mapping[str, Any]]) -> bool:
    for record in graphs:
        if Graph.from_json(json.dumps(record)).to_symbol().list_auxiliary_states():
            return True
        if any(_any(node.get("subgraphs", ())) for node in record["nodes"]):
            return True
    return False
