"""``tofu simulate``: predicts a training step on a machine that is described."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

import click

from tofu.cli.options import (
    Script,
    allow_replication_option,
    batch_size_option,
    describe_option,
    fetch_option,
    format_option,
    log_option,
    objective_option,
    optimizer_option,
    search_option,
    set_variables,
    shape_option,
    switch_on,
    tell_misplaced,
    workers_option,
)
from tofu.cli.plan_torch import check_options, is_module
from tofu.cli.simulate_torch import simulate_module
from tofu.cli.targets import Target, check_target
from tofu.cli.trace_file import check_output, predicted, write_trace
from tofu.config import Config
from tofu.installation import check_mxnet
from tofu.mx.model.sources import default_workers, names_model
from tofu.planner.estimate import batch_of
from tofu.planner.prediction import check_devices
from tofu.planner.search import default_fetch
from tofu.planner.search import search as search_problem
from tofu.plans import Problem, SearchOptions
from tofu.plans.file import read as read_plans

__all__ = ["simulate"]


@click.command(cls=Script, short_help="Predict a training step on a machine that is described.")
@workers_option
@click.option(
    "--mesh", metavar="K,K,...", help="For a module of PyTorch: the sizes of a mesh's dimensions."
)
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
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def simulate(
    workers: Optional[str],
    mesh: Optional[str],
    machine: str,
    plan: Optional[str],
    optimizer: str,
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
    if mesh is not None or is_module(target):
        check_options(click.get_current_context(), _NOT_OF_MODULES)
        set_variables(machine=machine, **settings)
        chosen = Config.from_environment()
        options = SearchOptions(
            chosen.search,
            allow_replication=chosen.replication,
            objective=chosen.objective,
            machine=chosen.machine,
        )
        simulate_module(
            target, mesh, machine, options, optimizer=_update(optimizer), perfetto=perfetto,
            form=form,
        )  # fmt: skip
        return
    check_target("tofu simulate", target, batch_size, shapes)
    tell_misplaced(click.get_current_context(), target, args)
    if perfetto is not None:
        check_output(Path(perfetto), target, "--perfetto")
    check_mxnet("tofu simulate", load=True)
    from tofu.plans.machine_files import read_machine
    from tofu.simulate.render import render_json, render_text

    described = read_machine(machine)
    saved = None if plan is None else read_plans(Path(plan))
    os.environ.pop("TOFU_PLAN", None)
    if workers is None and saved is not None:
        workers = str(saved.workers[0])
    # Nothing runs, so there may be fewer GPUs here than workers.
    if workers is None and described.is_gpu:
        workers = os.environ.get("TOFU_WORKERS") or str(described.devices)
    config = switch_on(machine=machine, workers=workers, device="cpu", plan=plan, **settings)
    count = default_workers(config)
    check_devices(count, described)
    if saved is not None:
        saved.check_workers(count)
    opened = Target.open(
        target,
        args,
        shapes=shapes,
        optimizer=_update(optimizer),
        batch_size=batch_size,
        saved=saved,
    )
    problem = opened.problem(count, None)
    from tofu.simulate.simulation import simulate_plan

    fetch = config.fetch or default_fetch(described)
    options = SearchOptions(
        config.search,
        allow_replication=config.replication,
        objective=config.objective,
        machine=config.machine,
    )
    searched = search_problem(problem, options, fetch=fetch)
    simulation = simulate_plan(
        searched.plan, described, fetch=fetch, with_timeline=perfetto is not None
    )
    if perfetto is not None:
        title = f"{problem.name}, predicted on {described.name}"
        document = predicted(simulation, problem.table).to_document(title)
        write_trace(Path(perfetto), document, "--perfetto")
    render = render_json if form == "json" else render_text
    size = _batch_size(target, batch_size, problem)
    click.echo(render(simulation, model=problem.name, batch_size=size), nl=False)


_NOT_OF_MODULES = ("workers", "plan", "fetch", "describe", "shapes", "batch_size")


def _batch_size(target: str, size: Optional[int], problem: Problem) -> int:
    from tofu import models

    return size or (models.find(target).batch_size if names_model(target) else batch_of(problem))


def _update(optimizer: str) -> Optional[str]:
    return None if optimizer == "none" else optimizer
