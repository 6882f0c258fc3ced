"""``tofu simulate``: predicts a training step on a machine that is described."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Optional

import click

from tofu.cli.model import open_model
from tofu.cli.mxnet_model import SymbolInputs
from tofu.cli.options import (
    Script,
    allow_replication_option,
    allow_replication_within_option,
    batch_size_option,
    describe_option,
    fetch_option,
    format_option,
    log_option,
    mesh_option,
    objective_option,
    optimizer_option,
    search_option,
    shape_option,
    workers_option,
)
from tofu.cli.reports.trace_file import check_output, predicted, write_trace
from tofu.planner.decide import plan_problem
from tofu.planner.model import Devices
from tofu.planner.prediction import check_devices
from tofu.planner.search import default_fetch
from tofu.planner.wish import Wish
from tofu.plans import Problem
from tofu.plans.machine_files import read_machine
from tofu.plans.simulated_step import Simulation
from tofu.simulate.render import render_json, render_text

__all__ = ["simulate"]


@click.command(cls=Script, short_help="Predict a training step on a machine that is described.")
@workers_option
@mesh_option
@click.option(
    "--machine",
    required=True,
    metavar="FILE|NAME",
    help="A machine file (tofu calibrate writes one), or a machine that tofu ships: see "
    "docs/simulation.md.",
)
@click.option("--plan", metavar="PLAN", help="Simulate a plan that tofu plan --save wrote.")
@fetch_option
@search_option
@allow_replication_option
@allow_replication_within_option
@objective_option
@log_option
@describe_option
@optimizer_option
@shape_option
@batch_size_option
@click.option(
    "--perfetto",
    metavar="FILE",
    help="Write the predicted step as tofu trace writes a measured one, for ui.perfetto.dev.",
)
@format_option(("text", "json"), "Tables, or the JSON document of docs/formats.md.")
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2|config.json")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def simulate(
    workers: Optional[str],
    mesh: Optional[str],
    machine: str,
    plan: Optional[str],
    optimizer: Optional[str],
    shapes: tuple[str, ...],
    batch_size: Optional[int],
    perfetto: Optional[str],
    form: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Simulate a training step on a machine.

    The partitioned graph is the one that would run, with MXNet's scheduling. Prints the step's
    time, what workers and links did, the critical path, and the memory. Nothing runs: a SCRIPT ends
    at its first training call. With --mesh: MODULE:FUNCTION returns a module of PyTorch and its
    inputs, FILE.pt2 is a program that torch.export saved.
    """
    if perfetto is not None:
        check_output(Path(perfetto), target, "--perfetto")
    described = read_machine(machine)
    # Nothing runs, so there may be fewer GPUs here than workers.
    if plan is None and workers is None and mesh is None and described.is_gpu:
        workers = os.environ.get("TOFU_WORKERS") or str(described.devices)
    opened = open_model(
        target, args, workers=workers, meshes=[mesh] if mesh else [], symbol=SymbolInputs(shapes),
        optimizer=optimizer, batch_size=batch_size, plan=plan,
        settings={"machine": machine, "device": "cpu", **settings},
    )  # fmt: skip
    model, devices, config = opened.model, opened.devices, opened.config
    check_devices(devices[0].workers, described)
    fetch = config.fetch or default_fetch(described)
    wish = Wish.of(dataclasses.replace(config, fetch=fetch))

    def simulated(each: Devices) -> tuple[Simulation, Problem]:
        problem, plan = plan_problem(model.problem(each), wish)
        simulation = problem.front_end.simulate(
            plan.in_graph(problem.table), described, fetch=fetch, with_timeline=perfetto is not None
        )
        return simulation, problem

    steps = list(map(simulated, devices))
    simulation, problem = min(steps, key=lambda step: step[0].step_seconds)
    if len(devices) > 1:
        each = " or ".join(map(str, devices))
        best = devices[steps.index((simulation, problem))]
        click.echo(f"tofu: of the meshes {each}, {best} is predicted to be fastest", err=True)
    if perfetto is not None:
        title = f"{problem.name}, predicted on {described.name}"
        document = predicted(simulation, problem.table).to_document(title)
        write_trace(Path(perfetto), document, "--perfetto")
    render = render_json if form == "json" else render_text
    size = model.batch_size(problem)
    click.echo(render(simulation, model=problem.name, batch_size=size), nl=False)
