"""The objective time: the model of a graph's operators and a machine that the search uses."""

from __future__ import annotations

from tofu import _core
from tofu.analysis.work import node_work
from tofu.plans.machine_files import read_machine

__all__ = ["time_model"]


def time_model(table: _core.StrategyTable, machine: str) -> _core.TimeModel:
    """Make the model that predicts the time of a graph's plans.

    Args:
        table: strategy table of the graph.
        machine: a machine file, or the name of a machine that tofu ships.

    Raises:
        ConfigError: there is no such machine.
    """
    calls = _core.OperatorCalls(table.graph)
    return _core.TimeModel(read_machine(machine), calls, list(map(node_work, calls.nodes)))
