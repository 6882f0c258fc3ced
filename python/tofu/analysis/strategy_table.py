"""The strategy table of a training graph: the strategies of each of its operators.

    table, undescribed = strategy_table(graph)

This needs no framework: the graph has all shapes, and tofu.tdl describes the operators.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from tofu import _core, file_cache
from tofu.analysis.described import is_shipped
from tofu.analysis.table import (
    Row,
    described_name,
    document,
    reason_to_decline,
    row_for,
    unweighted,
)
from tofu.errors import ConfigError, TofuError
from tofu.lang.tracing import Shape

__all__ = ["WHOLE", "Call", "strategy_table", "table_digest", "table_document", "table_text"]

# The attribute of a node that must not be split; its value is the reason.
WHOLE = "__tofu_whole__"

_KIND = "table"  # of texts in the cache of files
_WORTH_KEEPING_S = 0.1
# Of each table: a hash of its text, and the restriction that it was made with.
_origins: weakref.WeakKeyDictionary[_core.StrategyTable, tuple[str, Optional[Restrict]]]
_origins = weakref.WeakKeyDictionary()


class Call(NamedTuple):
    """A way to call an operator, with the shapes of its inputs and outputs."""

    op: str
    attrs: tuple[tuple[str, str], ...]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]


# Replaces the row of an operator's call.
Restrict = Callable[[Row, Call], Row]


def strategy_table(
    graph: _core.Graph, restrict: Optional[Restrict] = None
) -> tuple[_core.StrategyTable, dict[str, str]]:
    """Builds the strategy table of a training graph.

    Args:
        graph: the graph.
        restrict: drops a row's strategies that a front end cannot run; None: drops those of MXNet,
            whose fetches do not weigh terms.

    Returns the table, and the operators without a row, each with the reason ("" if it has no
    description). A description that fails affects its own operator only.

    Raises:
        ConfigError: a file or package that should describe operators cannot be loaded.
    """
    text, undescribed = table_document(graph, restrict)
    table = _core.StrategyTable(text, graph)
    _origins[table] = hashlib.sha256(text.encode()).hexdigest(), restrict
    return table, undescribed


def table_digest(table: _core.StrategyTable) -> Optional[str]:
    """A hash of a table that ``strategy_table`` has made, without its graph; None of others."""
    return _origins.get(table, (None,))[0]


def table_text(table: _core.StrategyTable) -> str:
    """A table that ``strategy_table`` has made, as JSON (docs/formats.md)."""
    return table_document(table.graph, _origins[table][1])[0]


def table_document(
    graph: _core.Graph, restrict: Optional[Restrict] = None
) -> tuple[str, dict[str, str]]:
    """Builds the table as JSON (docs/formats.md); returns it with the operators without a row."""
    calls, numbers = _calls(graph)
    key = None if restrict is not None or not _are_shipped(calls) else _key(calls, numbers)
    text = file_cache.find(_KIND, key) if key is not None else None
    if text is not None:
        document: tuple[str, dict[str, str]] = tuple(json.loads(text))
        return document
    begin = time.process_time()
    table = _made(calls, numbers, restrict)
    if key is not None and time.process_time() - begin >= _WORTH_KEEPING_S:
        file_cache.keep(_KIND, key, json.dumps(table))
    return table


def _calls(graph: _core.Graph) -> tuple[list[Call], list[int]]:
    """The different calls of operators, and the number of each node's; -1 for a variable."""
    number_of: dict[Call, int] = {}
    numbers = []
    for node in graph.nodes:
        number = -1
        if node.op:
            inputs, outputs = (
                tuple(tuple(shape) for shape, _ in side) for side in (node.inputs, node.outputs)
            )
            call = Call(node.op, tuple(sorted(node.attrs.items())), inputs, outputs)
            number = number_of.setdefault(call, len(number_of))
        numbers.append(number)
    return list(number_of), numbers


def _made(
    calls: Sequence[Call], numbers: Sequence[int], restrict: Optional[Restrict]
) -> tuple[str, dict[str, str]]:
    """The document, analysed."""
    undescribed: dict[str, str] = {}
    rows: list[Optional[Row]] = []
    for call in calls:
        attrs = dict(call.attrs)
        row, reason = _row_or_reason(call.op, attrs, call.inputs, call.outputs)
        if row is None:
            name = described_name(call.op, attrs)[0]
            undescribed[name] = undescribed.get(name) or reason
        else:
            row = (restrict or _of_mxnet)(row, call)
        rows.append(row)
    return document(None if number < 0 else rows[number] for number in numbers), undescribed


def _of_mxnet(row: Row, call: Call) -> Row:
    return unweighted(row)


def _are_shipped(calls: Iterable[Call]) -> bool:
    """Whether only tofu's own files describe these operators."""
    return all(
        is_shipped(name)
        for name in {described_name(call.op, dict(call.attrs))[0] for call in calls}
    )


def _key(calls: Sequence[Call], numbers: Sequence[int]) -> tuple[str, ...]:
    return file_cache.version(), _sources(), json.dumps([numbers, calls])


@functools.cache
def _sources() -> str:
    """A hash of the files that rows are made from."""
    digest = hashlib.sha256()
    for package in ("tofu.analysis", "tofu.lang", "tofu.tdl"):
        for folder in importlib.import_module(package).__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _row_or_reason(
    op: str, attrs: Mapping[str, str], ins: Sequence[Shape], outs: Sequence[Shape]
) -> tuple[Optional[Row], str]:
    if WHOLE in attrs:
        return None, attrs[WHOLE]
    try:
        row = row_for(op, attrs, ins, outs)
        return row, "" if row is not None else reason_to_decline(op, attrs, ins, outs)
    except ConfigError:
        raise
    except Exception as error:  # a description is a program, so it may raise anything
        problem = _in_short(error, f"description of {described_name(op, attrs)[0]}: ")
        return None, f"its description fails for inputs of {_listed(ins)}: {problem}"


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) or "()" for shape in shapes) or "no shape"


def _in_short(error: Exception, prefix: str) -> str:
    """Shortens an error to its first line, its place, and the text found there."""
    lines = [line.strip() for line in str(error).splitlines()]
    more = [line for line in lines if line.startswith(("found: ", "in "))]
    if isinstance(error, TofuError):
        return lines[0].replace(prefix, "") + (f" ({', '.join(more)})" if more else "")
    return f"{type(error).__name__}: {error}"
