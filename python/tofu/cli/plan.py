"""``tofu plan``: turns command-line options into a plan, prints it and saves it."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import click
from click.core import ParameterSource

from tofu.cli.inputs import graphs_of_script
from tofu.cli.isolated import isolated
from tofu.cli.model import check_options, parse_mesh
from tofu.cli.options import (
    Script,
    allow_replication_option,
    batch_size_option,
    check_script,
    describe_option,
    device_option,
    everything_option,
    fetch_option,
    format_option,
    is_module,
    keep_fetched_option,
    layers_option,
    log_option,
    machine_option,
    objective_option,
    optimizer_option,
    pin_file_option,
    pin_option,
    recompute_option,
    search_option,
    set_variables,
    shape_option,
    switch_on,
    tell_misplaced,
    workers_option,
)
from tofu.cli.plan_torch import FORMATS, plan_module
from tofu.cli.print_plans import ESTIMATE, EXACT, Output, listed, plan_and_print
from tofu.cli.step_table import read_measured, step_section
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.mx.model.sources import (
    SymbolRequest,
    check_symbol_text,
    from_model,
    from_symbol,
    names_model,
)
from tofu.planner.wish import Wish
from tofu.plans import Problem
from tofu.plans import file as plan_file

__all__ = ["plan"]


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """The command line: each attribute is the option or argument of this name, or its default."""

    workers: Optional[str]
    device: Optional[str]
    log: Optional[str]
    search: Optional[str]
    pins: tuple[str, ...]
    pin_file: Optional[str]
    time_limit: Optional[float]
    allow_replication: bool
    objective: Optional[str]
    machine: Optional[str]
    recompute: Optional[str]
    keep_fetched: Optional[str]
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    inputs: tuple[str, ...]
    optimizer: str
    predict: bool
    batch_size: Optional[int]
    form: str
    everything: bool
    layers: bool
    peak: bool
    explain: tuple[str, ...]
    measured: Optional[str]
    save: Optional[str]
    memory: str
    graph: Optional[int]
    mesh: Optional[str]
    fetch: Optional[str]
    target: str
    args: tuple[str, ...]

    @property
    def is_model(self) -> bool:
        return names_model(self.target)

    @property
    def is_symbol(self) -> bool:
        return self.target.endswith(".json")

    @property
    def update(self) -> Optional[str]:
        """The optimizer whose update is planned."""
        return None if self.optimizer == "none" else self.optimizer


@click.command(cls=Script, short_help="Print how a training graph would be partitioned.")
@workers_option
@device_option
@log_option
@describe_option
@search_option
@pin_option
@pin_file_option
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop after this many seconds and take the best plan so far.  [default: 60]",
)
@allow_replication_option
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
    "Tables, the JSON document of docs/formats.md, a web page, or (with --mesh) the "
    "placements as Python.",
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
@click.option("--save", metavar="PLAN", help="Save the plan to a file, for tofu run --plan.")
@click.option(
    "--memory",
    default=EXACT,
    show_default=True,
    metavar="SIZE|exact|estimate",
    help="What a worker may hold, such as 12GiB: plan to fit. Or how to count its bytes: as MXNet "
    "will allocate them, or as a quick estimate. Default limit: $TOFU_MEMORY.",
)
@click.option(
    "--graph",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the N-th of a script's graphs. Default: all that its first training step trains.",
)
@click.option(
    "--mesh",
    metavar="N,N,...",
    help="The sizes of a mesh of devices, for a module of PyTorch.",
)
@fetch_option
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(**options: Any) -> None:
    """Print how every tensor and operator would be partitioned, and what it costs.

    SCRIPT is run to the end of its first training step, without computing it. SYMBOL.json
    is a symbol that MXNet saved; give the shapes of its inputs. MODEL is a name that
    tofu models lists, such as wresnet-152-10. With --mesh: MODULE:FUNCTION returns a
    module of PyTorch and its inputs, FILE.pt2 is a program that torch.export saved.
    """
    line = CommandLine(**options)
    if line.mesh is not None or is_module(line.target):
        _plan_module(line)
        return
    context = click.get_current_context()
    _check(line, context)
    config = _configure(line)
    find = _finder(line)
    wish = Wish.of(config, time_limit_s=line.time_limit, exact=line.memory != ESTIMATE)
    output = _output(line, wish, _command(context))

    def run() -> None:
        plan_and_print(_chosen(find(), line.graph, line.target), wish, output)

    if line.is_symbol:
        isolated(
            run,
            f"{line.target}: MXNet crashed on it ({{}}); the file may be damaged: export it again "
            "with block.export or symbol.save",
        )
    else:
        run()


def _plan_module(line: CommandLine) -> None:
    """Plan a module of PyTorch. Raises ConfigError for options that it has not."""
    set_variables(**_search_options(line), **_memory_options(line))
    check_options(click.get_current_context(), _NOT_OF_MODULES)
    if line.mesh is None:
        raise ConfigError(f"tofu plan {line.target}: give the devices, such as --mesh 2,4")
    if not is_module(line.target):
        raise ConfigError(
            f"tofu plan --mesh: {line.target}: expected package.module:function or FILE.pt2"
        )
    wish = Wish.of(Config.from_environment(), time_limit_s=line.time_limit)
    plan_module(
        line.target,
        parse_mesh(line.mesh),
        optimizer=line.update,
        wish=wish,
        output=_output(line, wish, _command(click.get_current_context())),
    )


_NOT_OF_MODULES = (
    "workers", "device", "shapes", "dtypes", "inputs", "predict", "batch_size", "save", "fetch",
    "keep_fetched", "measured",
)  # fmt: skip


def _check(line: CommandLine, context: click.Context) -> None:
    """Raise ConfigError for options that do not fit the target, or each other."""
    if line.form == "python":
        raise ConfigError("tofu plan: --format python is only for a module of PyTorch, with --mesh")
    _check_target(line)
    if context.get_parameter_source("optimizer") is ParameterSource.COMMANDLINE:
        _check_optimizer(line)
    tell_misplaced(context, line.target, line.args)
    if line.save is not None:
        plan_file.check_target(Path(line.save))


def _check_target(line: CommandLine) -> None:
    """Raise ConfigError for a missing file, and for options of another kind of target."""
    target = line.target
    if not line.is_model:
        check_script(target)
        if line.batch_size is not None:
            raise ConfigError(f"tofu plan {target}: --batch-size is only for a model's name")
    if line.args and (line.is_model or line.is_symbol):
        raise ConfigError(f"tofu plan: {line.args[0]!r} after {target}: expected options only")
    if (line.shapes or line.dtypes or line.inputs or line.predict) and not line.is_symbol:
        what = "model" if line.is_model else "script"
        raise ConfigError(
            f"tofu plan {target}: --shape, --dtype, --input and --predict are only for a symbol "
            f"file (SYMBOL.json); a {what} has its own shapes"
        )


def _check_optimizer(line: CommandLine) -> None:
    """Raise ConfigError if --optimizer would have no effect."""
    if not (line.is_model or line.is_symbol):
        raise ConfigError(
            f"tofu plan {line.target}: --optimizer is only for a symbol file or a model; a script "
            "has its own gluon.Trainer"
        )
    if line.predict:
        raise ConfigError("tofu plan: --predict plans no update; leave out --optimizer")


def _configure(line: CommandLine) -> Config:
    """Set the variables that configure tofu. Raises ConfigError for invalid values."""
    os.environ.pop("TOFU_PLAN", None)  # always search: ignore a saved plan
    return switch_on(
        **_search_options(line),
        **_memory_options(line),
        fetch=line.fetch,
        keep_fetched=line.keep_fetched,
        workers=line.workers,
        device=line.device,
        log=line.log,
    )


def _search_options(line: CommandLine) -> dict[str, Any]:
    names = ("search", "pins", "pin_file", "allow_replication", "objective", "machine")
    return {name: getattr(line, name) for name in names}


def _memory_options(line: CommandLine) -> dict[str, Any]:
    memory = None if line.memory in (EXACT, ESTIMATE) else line.memory
    return {"memory": memory, "recompute": line.recompute}


def _finder(line: CommandLine) -> Callable[[], Sequence[Problem]]:
    """Returns a function that builds the graphs of a model, a symbol file or a script."""
    if line.is_model:
        return lambda: [from_model(line.target, batch_size=line.batch_size, optimizer=line.update)]
    path = Path(line.target)
    if not line.is_symbol:
        return functools.partial(graphs_of_script, path, line.args)
    request = SymbolRequest.parse(
        path,
        shapes=line.shapes,
        dtypes=line.dtypes,
        inputs=line.inputs,
        optimizer=line.update,
        predict=line.predict,
    )
    check_symbol_text(path)
    check_mxnet("tofu plan", load=False)
    return lambda: [from_symbol(request)]


def _output(line: CommandLine, wish: Wish, command: tuple[str, str]) -> Output:
    """Returns the options for printing the plan. Raises ConfigError for --peak of an estimate."""
    step = None
    if line.measured is not None:
        if line.form != "html" or not wish.options.machine:
            raise ConfigError("--measured is for a page: give --format html and --machine, too")
        measured = read_measured(Path(line.measured))
        step = functools.partial(
            step_section, machine=wish.options.machine, fetch=wish.fetch, measured=measured
        )
    if line.peak and not wish.exact:
        raise ConfigError("--peak needs --memory exact: an estimate has no moments")
    return Output(
        line.form,
        line.everything,
        line.layers,
        line.peak,
        line.explain,
        Path(line.save) if line.save else None,
        command,
        step,
    )


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


_AGAIN = ("mesh", "shapes", "dtypes", "inputs", "optimizer", "predict", "batch_size", "search",
          "allow_replication", "objective", "machine", "fetch", "device",
          "recompute", "keep_fetched")  # fmt: skip


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
