"""The strategy table of a training graph: the strategies of each of its operators.

    table, undescribed = strategy_table(graph)

This needs no framework: the graph has all shapes, and tofu.tdl describes the operators.
"""

from __future__ import annotations

from typing import Any, Optional

from tofu import _core
from tofu.analysis.table import described_name, document, row_for

__all__ = ["strategy_table", "table_document"]


def strategy_table(graph: _core.Graph) -> tuple[_core.StrategyTable, list[str]]:
    """The strategies of every operator of a training graph.

    Returns the table and the operators without a description, each once.
    """
    text, undescribed = table_document(graph)
    return _core.StrategyTable(text, graph), undescribed


def table_document(graph: _core.Graph) -> tuple[str, list[str]]:
    """The same, the table as JSON (docs/formats.md)."""
    rows: list[Optional[dict[str, Any]]] = []
    undescribed: dict[str, None] = {}
    for node in graph.nodes:
        row = None
        if node.op:
            inputs = [shape for shape, _ in node.inputs]
            row = row_for(node.op, node.attrs, inputs, [shape for shape, _ in node.outputs])
            if row is None:
                undescribed[described_name(node.op, node.attrs)[0]] = None
        rows.append(row)
    return document(rows), list(undescribed)
