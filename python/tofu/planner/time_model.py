"""The objective time: the model of a graph's operators and a machine that the search uses."""

from __future__ import annotations

from tofu import _core
from tofu.analysis.work import node_work
from tofu.plans.machine_files import read_machine

__all__ = ["time_model"]


def time_model(
    table: _core.StrategyTable, machine: str, *, is_balanced: bool = False
) -> _core.TimeModel:
    """Make the model that predicts the time of a graph's plans.

    Args:
        table: strategy table of the graph.
        machine: a machine file, or the name of a machine that tofu ships.
        is_balanced: whether the devices of a mixed machine have parts of the size that they take
            equally long for; else parts are equal, and everyone waits for the slowest.

    Raises:
        ConfigError: there is no such machine.
    """
    calls = _core.OperatorCalls(table.graph)
    works = list(map(node_work, calls.nodes))
    return _core.TimeModel(read_machine(machine), calls, works, is_balanced=is_balanced)
