"""``tofu simulate``: predicts the training step of a model on a machine that is described."""

from __future__ import annotations

import os
from typing import Any, Optional

import click

from tofu.cli.options import (
    allow_replication_option,
    batch_size_option,
    check_devices,
    check_no_module,
    fetch_option,
    format_option,
    log_option,
    objective_option,
    optimizer_option,
    search_option,
    switch_on,
    workers_option,
)
from tofu.installation import check_mxnet
from tofu.planner.search import default_fetch
from tofu.planner.search import search as search_problem
from tofu.planner.sources import from_model
from tofu.plans import SearchOptions

__all__ = ["simulate"]


@click.command()
@workers_option
@click.option(
    "--machine",
    required=True,
    metavar="FILE|NAME",
    help="A machine file (tofu calibrate writes one), or a machine that tofu ships: see "
    "docs/simulation.md.",
)
@fetch_option
@search_option
@allow_replication_option
@objective_option
@log_option
@optimizer_option
@batch_size_option
@format_option(("text", "json"), "Tables, or the JSON document of docs/formats.md.")
@click.argument("model", metavar="MODEL")
def simulate(
    workers: Optional[str],
    machine: str,
    optimizer: str,
    batch_size: Optional[int],
    form: str,
    model: str,
    **given: Any,
) -> None:
    """Simulate a training step on a machine.

    MODEL is one that tofu models lists. The partitioned graph is the one that would run, with
    MXNet's scheduling. Prints the step's time, what workers and links did, the critical path, and
    the memory. Nothing runs.
    """
    check_no_module(model)
    check_mxnet("tofu simulate", load=True)
    from tofu import models
    from tofu.plans.machine_files import read_machine
    from tofu.simulate.render import render_json, render_text

    described = read_machine(machine)
    network = models.find(model)
    os.environ.pop("TOFU_PLAN", None)
    # Nothing runs, so there may be fewer GPUs here than workers.
    if workers is None and described.is_gpu:
        workers = os.environ.get("TOFU_WORKERS") or str(described.devices)
    config = switch_on(machine=machine, workers=workers, device="cpu", **given)
    problem = from_model(network.name, batch_size=batch_size, optimizer=_update(optimizer))
    check_devices(problem.workers, described)
    from tofu.simulate.simulation import simulate_plan

    fetch = config.fetch or default_fetch(described)
    options = SearchOptions(
        config.search,
        allow_replication=config.replication,
        objective=config.objective,
        machine=config.machine,
    )
    searched = search_problem(problem, options, fetch=fetch)
    simulation = simulate_plan(searched.plan, described, fetch=fetch)
    render = render_json if form == "json" else render_text
    text = render(simulation, model=network.name, batch_size=batch_size or network.batch_size)
    click.echo(text, nl=False)


def _update(optimizer: str) -> Optional[str]:
    return None if optimizer == "none" else optimizer
