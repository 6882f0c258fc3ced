"""Finds the strategies of ATen operators, and which operators are light or compute nothing."""

from __future__ import annotations

import functools
import importlib

import torch

from tofu import _core
from tofu.analysis.strategy_table import Call, strategy_table
from tofu.analysis.table import Row
from tofu.analysis.work import is_light
from tofu.lang.description import Description
from tofu.torch.graphs.calls import run_as

__all__ = ["aten_table", "computes_nothing"]

importlib.import_module("tofu.tdl.aten")  # the operators that this package plans

# Descriptions of operators that compute nothing.
_MOVES = ("movement", "creation")


def aten_table(graph: _core.Graph) -> tuple[_core.StrategyTable, dict[str, str]]:
    """The strategies of a module's graph, and the operators without any, each with the reason."""
    return strategy_table(graph, _Marker())


class _Marker:
    """Marks rows of light operators, and of views.

    Returns the same row for the same row, if its calls are alike.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], tuple[Row, Row]] = {}

    def __call__(self, row: Row, call: Call) -> Row:
        light = is_light(call.op, dict(call.attrs), call.inputs, call.outputs)
        known = self._known.get((id(row), light))
        if known is None:
            known = row, {**row, "light": light, "views": _views(row["op"])}
            self._known[id(row), light] = known
        return known[1]


def computes_nothing(operator: str) -> bool:
    """Whether an operator only moves elements or fills a tensor with a value."""
    return operator in _moves()


@functools.cache
def _moves() -> frozenset[str]:
    modules = [importlib.import_module(f"tofu.tdl.aten.{name}") for name in _MOVES]
    described = [x for m in modules for x in vars(m).values() if isinstance(x, Description)]
    return frozenset(name for each in described for name in each.names if not _is_drawn(name))


def _views(operator: str) -> bool:
    """Whether an operator's results are in the memory of its first argument."""
    namespace, _, rest = operator.partition(".")
    name, _, overload = rest.partition(".")
    target = getattr(getattr(torch.ops.aten, name, None), overload or "default", None)
    arguments = [] if namespace != "aten" or target is None else run_as(target)._schema.arguments
    alias = arguments[0].alias_info if arguments else None
    return alias is not None and not alias.is_write


def _is_drawn(name: str) -> bool:
    return name.startswith(("aten.rand.", "aten.randn."))
