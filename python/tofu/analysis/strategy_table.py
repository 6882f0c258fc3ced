"""The strategy table of a training graph: the strategies of each of its operators.

    table, undescribed = strategy_table(graph)

This needs no framework: the graph has all shapes, and tofu.tdl describes the operators.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Callable, Optional

from tofu import _core
from tofu.analysis.table import Row, described_name, document, row_for
from tofu.errors import ConfigError, TofuError
from tofu.lang.tracing import Shape

__all__ = ["WHOLE", "strategy_table", "table_document"]

# The attribute of a node that must not be split; its value is the reason.
WHOLE = "__tofu_whole__"

# Replaces a row, given the shapes of its operator's inputs and outputs.
Restrict = Callable[[Row, Sequence[Shape], Sequence[Shape]], Row]


def strategy_table(
    graph: _core.Graph, restrict: Optional[Restrict] = None
) -> tuple[_core.StrategyTable, dict[str, str]]:
    """Builds the strategy table of a training graph.

    Args:
        graph: the graph.
        restrict: drops a row's strategies that a front end cannot run; None: keeps all.

    Returns the table, and the operators without a row, each with the reason ("" if it has no
    description). A description that fails affects its own operator only.

    Raises:
        ConfigError: a file or package that should describe operators cannot be loaded.
    """
    text, undescribed = table_document(graph, restrict)
    return _core.StrategyTable(text, graph), undescribed


def table_document(
    graph: _core.Graph, restrict: Optional[Restrict] = None
) -> tuple[str, dict[str, str]]:
    """Builds the table as JSON (docs/formats.md); returns it with the operators without a row."""
    rows: list[Optional[Row]] = []
    undescribed: dict[str, str] = {}
    seen: dict[Hashable, tuple[Optional[Row], str]] = {}  # equal operators share a row
    for node in graph.nodes:
        row = None
        if node.op:
            attrs = node.attrs
            inputs, outputs = (
                tuple(tuple(shape) for shape, _ in side) for side in (node.inputs, node.outputs)
            )
            key = node.op, tuple(sorted(attrs.items())), inputs, outputs
            if key not in seen:
                seen[key] = _row_or_reason(node.op, attrs, inputs, outputs)
            row, reason = seen[key]
            if row is None:
                name = described_name(node.op, attrs)[0]
                undescribed[name] = undescribed.get(name) or reason
            elif restrict is not None:
                row = restrict(row, inputs, outputs)
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
    except Exception as error:  # a description is a program, so it may raise anything
        problem = _in_short(error, f"description of {described_name(op, attrs)[0]}: ")
        return None, f"its description fails for inputs of {_listed(ins)}: {problem}"


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) or "()" for shape in shapes) or "no shape"


def _in_short(error: Exception, prefix: str) -> str:
    """Shortens an error to its first line, its place, and what was found there."""
    lines = [line.strip() for line in str(error).splitlines()]
    more = [line for line in lines if line.startswith(("found: ", "in "))]
    if isinstance(error, TofuError):
        return lines[0].replace(prefix, "") + (f" ({', '.join(more)})" if more else "")
    return f"{type(error).__name__}: {error}"
