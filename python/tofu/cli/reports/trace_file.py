"""Files for Perfetto: a track for each worker of a step that was measured, or is predicted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tofu import _core
from tofu.errors import ConfigError
from tofu.trace.labels import Node
from tofu.trace.profile import operator_of
from tofu.trace.timeline import Timeline

if TYPE_CHECKING:
    from tofu.plans.simulated_step import Simulation

__all__ = ["check_output", "predicted", "write_trace"]

_MICROSECONDS = 1e6  # of a second


def check_output(path: Path, target: str, option: str) -> None:
    """Raise ConfigError for a file that must not be written over."""
    if path.suffix == ".py" or path.resolve() == Path(target).resolve():
        raise ConfigError(f"{option} {path}: expected a .json file, not a script")
    if not os.path.isdir(path.parent):
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}")


def predicted(simulation: Simulation, table: _core.StrategyTable) -> Timeline:
    """The timeline of a simulated step, as a trace has that of a measured one.

    simulation: with the times of its operations.
    table: the strategy table of the training graph, whose variables are not operators.
    """
    variables = {node.name for node in table.graph.nodes if node.op == "null"}
    operators = [
        operator_of(
            worker,
            begin * _MICROSECONDS,
            end * _MICROSECONDS,
            Node(name, op, is_of_variable=name.partition("@")[0] in variables),
        )
        for name, op, worker, begin, end in simulation.timeline
    ]
    workers = [simulation.machine] * len(simulation.workers)
    step = 0.0, simulation.step_seconds * _MICROSECONDS
    return Timeline.of(operators, [step], workers)


def write_trace(path: Path, document: Mapping[str, Any], option: str) -> None:
    """Write a document, and name the programs that open it. Raises ConfigError if that fails."""
    try:
        path.write_text(json.dumps(document), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None
    click.echo(f"tofu: {path} has all of it; open it in ui.perfetto.dev", err=True)
