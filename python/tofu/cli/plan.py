"""``tofu plan``: turns command-line options into a plan, prints it and saves it."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import click
from click.core import ParameterSource

from tofu.cli.model import open_model
from tofu.cli.mxnet_model import SymbolInputs
from tofu.cli.options import (
    Script,
    allow_replication_option,
    allow_replication_within_option,
    batch_size_option,
    count_option,
    describe_option,
    device_option,
    everything_option,
    fetch_option,
    format_option,
    keep_fetched_option,
    layers_option,
    log_option,
    machine_option,
    memory_option,
    mesh_option,
    objective_option,
    optimizer_option,
    pin_file_option,
    pin_option,
    recompute_option,
    search_option,
    shape_option,
    workers_option,
)
from tofu.cli.reports.print_plans import Output, listed, plan_and_print
from tofu.cli.reports.step_table import read_measured, step_section
from tofu.config import EXACT
from tofu.errors import ConfigError
from tofu.planner.model import Devices
from tofu.planner.search import search_plan
from tofu.planner.wish import Wish
from tofu.plans import Plan, Problem
from tofu.plans import file as plan_file
from tofu.plans.cuts_file import read_cuts_file
from tofu.plans.render.explain import Section

__all__ = ["plan"]

FORMATS = ("text", "json", "html", "pins", "python", "jax")


@click.command(cls=Script, short_help="Print how a training graph would be partitioned.")
@workers_option
@device_option
@log_option
@describe_option
@search_option
@pin_option
@pin_file_option
@click.option(
    "--cuts",
    metavar="FILE",
    help="Price a plan from elsewhere: the JSON document of docs/formats.md with the cuts of each "
    "tensor, or what tofu plan --format json printed. Tofu cuts the tensors that it leaves out.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop after this many seconds and take the best plan so far.  [default: 60]",
)
@allow_replication_option
@allow_replication_within_option
@objective_option
@machine_option
@recompute_option
@keep_fetched_option
@shape_option
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="[NAME=]DTYPE",
    help="Data type of the inputs of a symbol file, or of one of them. Default: float32.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME",
    help="Another input of a symbol file, with an inferred shape. "
    "Names that end in 'label' are inputs anyway; all others are parameters.",
)
@optimizer_option
@click.option("--predict", is_flag=True, help="Plan a symbol file's forward pass only.")
@batch_size_option
@format_option(
    FORMATS,
    "Tables, the JSON document of docs/formats.md, a web page, the fewest pins of parameters that "
    "make the plan, or a module's placements as Python: of DTensors, or JAX's PartitionSpecs.",
)
@everything_option
@layers_option
@click.option(
    "--peak",
    is_flag=True,
    help="Text format: what a worker holds at the worst moment of a step.",
)
@click.option(
    "--explain",
    multiple=True,
    metavar="TENSOR|OP",
    help="Print what each way to cut it costs, and why the plan chose its own; may be a pattern "
    "('conv1*') and be repeated.",
)
@click.option(
    "--measured",
    metavar="FILE",
    help="Page: what tofu trace --format json wrote, beside the step that --machine predicts.",
)
@click.option(
    "--prices",
    is_flag=True,
    help="Page: what other cuts of the largest variables cost, which may take minutes.",
)
@click.option("--save", metavar="PLAN", help="Save the plan to a file, for tofu run --plan.")
@memory_option
@count_option(EXACT)
@click.option(
    "--graph",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the N-th of a script's graphs. Default: all that its first training step trains.",
)
@mesh_option
@fetch_option
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2|config.json")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(
    workers: Optional[str],
    mesh: Optional[str],
    count: str,
    cuts: Optional[str],
    time_limit: Optional[float],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    inputs: tuple[str, ...],
    predict: bool,
    optimizer: Optional[str],
    batch_size: Optional[int],
    form: str,
    everything: bool,
    layers: bool,
    peak: bool,
    explain: tuple[str, ...],
    measured: Optional[str],
    prices: bool,
    save: Optional[str],
    graph: Optional[int],
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Print how every tensor and operator would be partitioned, and what it costs.

    SCRIPT is run to the end of its first training step, without computing it. SYMBOL.json
    is a symbol that MXNet saved; give the shapes of its inputs. MODEL is a name that
    tofu models lists, such as wresnet-152-10. MODULE:FUNCTION returns a module of PyTorch and its
    inputs, FILE.pt2 is a program that torch.export saved; the best mesh of K ranks is taken.
    """
    context = click.get_current_context()
    if predict and context.get_parameter_source("optimizer") is ParameterSource.COMMANDLINE:
        raise ConfigError("tofu plan: --predict plans no update; leave out --optimizer")
    if save is not None:
        plan_file.check_target(Path(save))
    given = None if cuts is None else read_cuts_file(Path(cuts), "--cuts")
    if given is not None:
        if settings["pins"] or settings["pin_file"]:
            raise ConfigError(f"--cuts {cuts}: it cuts tensors already; leave out the pins")
        if workers is None and mesh is None:
            workers = str(math.prod(given.parts))
    opened = open_model(
        target, args, workers=workers, meshes=[mesh] if mesh else [], settings=settings,
        symbol=SymbolInputs(shapes, dtypes, inputs, predict), batch_size=batch_size,
        optimizer=optimizer, all_graphs=True,
    )  # fmt: skip
    model = opened.model
    if form not in (*FORMATS[:4], *model.formats):
        raise ConfigError(f"tofu plan {target}: --format {form} is only for a module of PyTorch")
    wish = Wish.of(opened.config, time_limit_s=time_limit, exact=count == EXACT)
    devices = opened.devices
    if given is not None:
        devices = [each for each in devices if _has_parts(each, given.parts)]
        if not devices:
            asked = opened.devices[0].option
            parts = " x ".join(map(str, given.parts))
            raise ConfigError(f"--cuts {cuts}: its steps have {parts} parts, not those of {asked}")
        options = dataclasses.replace(
            wish.options, pins=given.pins, parts=given.parts, coarsen=False
        )
        wish = dataclasses.replace(wish, options=options)
    if peak and not wish.exact:
        raise ConfigError(f"--peak needs --count {EXACT}: an estimate has no moments")
    step = None if measured is None else _step(measured, form, wish)
    saved = None if save is None else Path(save)
    if prices and form != "html":
        raise ConfigError("--prices is for a page: give --format html, too")
    output = Output(form, everything, layers, peak, explain, saved, _command(context), step, prices)

    def run() -> None:
        choices = [(each, _chosen(model.problems(each), graph, target)) for each in devices]
        if given is not None:
            choices = [(each, [_as_cut(p, wish) for p in problems]) for each, problems in choices]
        plan_and_print(choices, wish, output)

    model.guarded(run)


def _as_cut(problem: Problem, wish: Wish) -> Problem:
    """The problem with the graph that has the tensors of the pins.

    A plan may be of the graph that a run takes after a look at the plan of the first one.
    """
    options = wish.options
    names = set(problem.graph.tensor_names)
    known = tuple(pin for pin in options.pins if pin[0] in names)
    if problem.refine is None or len(known) == len(options.pins):
        return problem
    plan = search_plan(
        problem.table, problem.workers, problem.fixed, dataclasses.replace(options, pins=known)
    )
    table = problem.refine(plan)
    return problem if table is None else problem.replaced(table)


def _has_parts(devices: Devices, parts: tuple[int, ...]) -> bool:
    """Whether a plan with these parts is for the devices."""
    mesh = tuple(size for size in devices.mesh if size > 1)
    return devices.workers == math.prod(parts) and mesh in ((), parts)


def _step(measured: str, form: str, wish: Wish) -> Callable[[Problem, Plan], Section]:
    """Makes the page's table of a predicted and a measured step."""
    if form != "html" or not wish.options.machine:
        raise ConfigError("--measured is for a page: give --format html and --machine, too")
    return functools.partial(
        step_section, machine=wish.options.machine, fetch=wish.fetch,
        measured=read_measured(Path(measured)),
    )  # fmt: skip


def _chosen(problems: Sequence[Problem], number: Optional[int], target: str) -> Sequence[Problem]:
    """Returns all graphs, or the one with this number. Raises ConfigError if there is none."""
    if number is None:
        return problems
    if number > len(problems):
        raise ConfigError(
            f"--graph {number}: {target} has {len(problems)} graph{'s' * (len(problems) > 1)}: "
            f"{listed(problems)}"
        )
    return problems[number - 1 : number]


_AGAIN = ("shapes", "dtypes", "inputs", "optimizer", "predict", "batch_size", "search",
          "allow_replication", "allow_replication_within", "objective", "machine", "fetch",
          "device", "memory", "recompute", "keep_fetched")  # fmt: skip


def _command(context: click.Context) -> tuple[str, str]:
    """The command line, without pins and output, in two parts: options, and the target."""
    words = ["tofu", "plan"]
    for option in context.command.params:
        name = option.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not is_given or name not in _AGAIN:
            continue
        value = context.params[name]
        for each in value if isinstance(value, tuple) else (value,):
            words += [option.opts[0]] if each is True else [option.opts[0], str(each)]
    target = [context.params["target"], *context.params["args"]]
    return shlex.join(words), shlex.join(target)
