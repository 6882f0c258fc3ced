"""The strategy table of a training graph: the strategies of each of its operators.

    table, undescribed = strategy_table(graph_json)

This needs no framework: the graph is NNVM JSON with shapes (docs/formats.md), and tofu.tdl
describes the operators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Optional

from tofu.analysis.table import Row, described_name, document, row_for
from tofu.errors import ConfigError, TofuError
from tofu.lang.tracing import Shape

__all__ = ["WHOLE", "strategy_table"]

_VARIABLE = "null"  # NNVM's operator of a variable
# The attribute of a node that must not be split, and says why.
WHOLE = "__tofu_whole__"


def strategy_table(graph_json: str) -> tuple[str, dict[str, str]]:
    """The strategies of every operator of a training graph.

    Returns the table (JSON, docs/formats.md) and the operators that it has no row for, each
    with the reason: "" where nothing describes it. A description that fails costs its own
    operator alone.

    Raises:
        ConfigError: a file or package that should describe operators cannot be loaded.
    """
    graph = json.loads(graph_json)
    shapes = [tuple(shape) for shape in graph["attrs"]["shape"][1]]
    starts = graph["node_row_ptr"]
    rows: list[Optional[Row]] = []
    undescribed: dict[str, str] = {}
    for node, start, end in zip(graph["nodes"], starts, starts[1:]):
        row = None
        if node["op"] != _VARIABLE:
            attrs = node.get("attrs", {})
            sources = [shapes[starts[source] + index] for source, index, *_ in node["inputs"]]
            row, reason = _row_or_reason(node["op"], attrs, sources, shapes[start:end])
            if row is None:
                name = described_name(node["op"], attrs)[0]
                undescribed[name] = undescribed.get(name) or reason
        rows.append(row)
    return document(rows), undescribed


def _row_or_reason(
    op: str, attrs: Mapping[str, str], ins: Sequence[Shape], outs: Sequence[Shape]
) -> tuple[Optional[Row], str]:
    if WHOLE in attrs:
        return None, attrs[WHOLE]
    try:
        return row_for(op, attrs, ins, outs), ""
    except ConfigError:
        raise
    except Exception as error:  # a description is a program: it may raise anything
        problem = _in_short(error, f"description of {described_name(op, attrs)[0]}: ")
        return None, f"its description fails for inputs of {_listed(ins)}: {problem}"


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) or "()" for shape in shapes) or "no shape"


def _in_short(error: Exception, prefix: str) -> str:
    """What an error says first, where it is, and what was found there."""
    lines = [line.strip() for line in str(error).splitlines()]
    more = [line for line in lines if line.startswith(("found: ", "in "))]
    if isinstance(error, TofuError):
        return lines[0].replace(prefix, "") + (f" ({', '.join(more)})" if more else "")
    return f"{type(error).__name__}: {error}"
