"""The strategy table of a training graph: the strategies of each of its operators.

    table, undescribed = strategy_table(graph_json)

This needs no framework: the graph is NNVM JSON with shapes (docs/formats.md), and tofu.tdl
describes the operators.
"""

from __future__ import annotations

import json
from typing import Any, Optional

from tofu.analysis.table import described_name, document, row_for

__all__ = ["strategy_table"]

_VARIABLE = "null"  # NNVM's operator for a variable


def strategy_table(graph_json: str) -> tuple[str, list[str]]:
    """The strategies of every operator of a training graph.

    Returns the table (JSON, docs/formats.md) and the operators without a description.
    """
    graph = json.loads(graph_json)
    shapes = [tuple(shape) for shape in graph["attrs"]["shape"][1]]
    starts = graph["node_row_ptr"]
    rows: list[Optional[dict[str, Any]]] = []
    undescribed: dict[str, None] = {}
    for node, start, end in zip(graph["nodes"], starts, starts[1:]):
        row = None
        if node["op"] != _VARIABLE:
            sources = [shapes[starts[source] + index] for source, index, *_ in node["inputs"]]
            row = row_for(node["op"], node.get("attrs", {}), sources, shapes[start:end])
            if row is None:
                undescribed[described_name(node["op"], node.get("attrs", {}))[0]] = None
        rows.append(row)
    return document(rows), list(undescribed)
