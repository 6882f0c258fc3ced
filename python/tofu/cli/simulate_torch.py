"""``tofu simulate MODULE:FUNCTION --mesh 2,4``: predicts a training step of a PyTorch module."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional

import click

from tofu.cli.plan_torch import parse_mesh, torch_module
from tofu.cli.trace_file import check_output, predicted, write_trace
from tofu.errors import ConfigError
from tofu.planner.prediction import check_devices
from tofu.plans import SearchOptions
from tofu.plans.machine_files import read_machine
from tofu.simulate.render import render_json, render_text

__all__ = ["simulate_module"]

_WHO = "tofu simulate --mesh"


def simulate_module(
    target: str,
    mesh: Optional[str],
    machine: str,
    options: SearchOptions,
    *,
    optimizer: Optional[str],
    perfetto: Optional[str],
    form: str,
) -> None:
    """Plan a module, and print what a machine needs for a training step.

    Raises:
        ConfigError: torch is not installed, no mesh is given, the target is no module, or the
            machine has too few devices.
        GraphError: the module cannot be traced.
    """
    if mesh is None:
        raise ConfigError(f"tofu simulate {target}: give the devices, such as --mesh 2,2")
    sizes = parse_mesh(mesh)
    if perfetto is not None:
        check_output(Path(perfetto), target, "--perfetto")
    described = read_machine(machine)
    check_devices(math.prod(sizes), described)
    planning: Any = torch_module("planning", _WHO)
    model, args, kwargs = torch_module("loading", _WHO).load(target)
    plan = planning.plan(
        model, args, kwargs, mesh=sizes, optimizer=optimizer, options=options, name=target
    )
    simulation = torch_module("module_simulation", _WHO).simulate_module(
        plan, described, with_timeline=perfetto is not None
    )
    if perfetto is not None:
        title = f"{target}, predicted on {described.name}"
        document = predicted(simulation, plan.problem.table).to_document(title)
        write_trace(Path(perfetto), document, "--perfetto")
    render = render_json if form == "json" else render_text
    click.echo(render(simulation, model=target, batch_size=_batch_size(plan.traced)), nl=False)


def _batch_size(traced: Any) -> int:
    """The first dimension of the first input that has one."""
    shapes = (v.meta.shape for v in traced.variables if v.kind == "input")
    return next((int(shape[0]) for shape in shapes if len(shape)), 1)
