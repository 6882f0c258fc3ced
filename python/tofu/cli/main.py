"""The command ``tofu``: run a Gluon script partitioned, or print the plan of one.

    tofu run --workers 4 train.py --epochs 3
    tofu plan --workers 4 train.py --epochs 3
    tofu plan --workers 4 --shape data=64,1,28,28 model-symbol.json
    tofu plan --workers 8 wresnet-152-10
    tofu plan --workers 8 --save mlp.plan --pin mlp_dense0_weight=0 mlp
    tofu run --plan train.plan train.py
    tofu ops
    tofu verify Convolution dot --seed 3

Bad input ends with one line on standard error and exit status 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import click

from tofu.cli import operators
from tofu.config import (
    DEVICES,
    FETCHES,
    MODES,
    Config,
    parse_mode,
    parse_pins,
    parse_workers,
    read_pins,
)
from tofu.errors import ConfigError, InternalError, TofuError

__all__ = ["main"]

DISTRIBUTION = "mxnet-tofu"
BAD_INPUT = 2


class Script(click.Command):
    """A command that hands everything after its script's name to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Stop looking for our own options at the script; anywhere else they may stand."""
        if any(arg.endswith(".py") for arg in args):
            ctx.allow_interspersed_args = False
        return super().parse_args(ctx, args)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name="tofu", message="%(prog)s %(version)s")
def cli() -> None:
    """Partition the training graphs of MXNet Gluon scripts over several workers."""


_workers = click.option(
    "--workers",
    metavar="K",
    help="Number of workers; one GPU or CPU context each. Default: $TOFU_WORKERS, "
    "else all GPUs, else 2.",
)
_device = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Where workers run. Default: $TOFU_DEVICE, else gpu where there is one.",
)
_fetch = click.option(
    "--fetch",
    type=click.Choice(FETCHES),
    help="How workers read each other's tiles. Default: $TOFU_FETCH, else multifetch on "
    "CPUs and plain on GPUs.",
)
_log = click.option(
    "--log", metavar="WORDS", help="quiet, info or debug, and dump:DIR; as $TOFU_LOG."
)


_search = click.option(
    "--search",
    metavar="MODE",
    help=f"How to search: {', '.join(MODES)}. Default: $TOFU_SEARCH, else {MODES[0]}.",
)
_pin = click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="TENSOR=DIM[,DIM...]",
    help="Cut a tensor along this dimension at every step, or at each; -1 leaves it "
    "whole. Default: $TOFU_PINS.",
)
_pin_file = click.option(
    "--pins", "pin_file", metavar="FILE", help="A file of pins, one a line, comments after #."
)


_allow_replication = click.option(
    "--allow-replication",
    is_flag=True,
    help="Leave tensors whole with every worker where that communicates less; as "
    "$TOFU_REPLICATION=1.",
)


@cli.command(cls=Script, context_settings={"allow_interspersed_args": False})
@_workers
@_device
@_fetch
@_log
@operators.describe
@_search
@_allow_replication
@_pin
@_pin_file
@click.option("--plan", metavar="PLAN", help="Use a plan that tofu plan --save kept; $TOFU_PLAN.")
@click.option("--strict", is_flag=True, help="Stop where a block would run serially; $TOFU_STRICT.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    workers: Optional[str],
    device: Optional[str],
    fetch: Optional[str],
    log: Optional[str],
    search: Optional[str],
    allow_replication: bool,
    pins: tuple[str, ...],
    pin_file: Optional[str],
    plan: Optional[str],
    strict: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGS as python would, its hybridized blocks partitioned.

    The same as MXNET_GRAPH_PASS=tofu python SCRIPT ARGS.
    """
    check_script(script)
    if plan is not None and search is not None:
        raise ConfigError(
            f"--search {search}: --plan {plan} is used instead of a search; leave one of them out"
        )
    set_search(search, pins, pin_file, allow_replication)
    if strict:
        os.environ["TOFU_STRICT"] = "1"
    if plan is not None:
        os.environ["TOFU_PLAN"] = plan
    if fetch is not None:
        os.environ["TOFU_FETCH"] = fetch
    switch_on(workers, device, log)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, script, *args])


@cli.command(cls=Script)
@_workers
@_device
@_log
@operators.describe
@_search
@_pin
@_pin_file
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds after which the best plan found so far is taken.  [default: 60]",
)
@_allow_replication
@click.option(
    "--bound",
    is_flag=True,
    help="Spend the rest of the time limit on a better lower bound, and so, maybe, on a "
    "better plan.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=D,D,...",
    help="Shape of an input of a symbol file; once for each.",
)
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
    help="A further input of a symbol file, whose shape follows from the others. "
    "Names that end in 'label' are inputs as it is; all others are parameters.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["none", "sgd", "sgd_mom", "adam"]),
    default="sgd",
    show_default=True,
    help="Update of the parameters of a symbol file or model to plan for.",
)
@click.option("--predict", is_flag=True, help="Plan a symbol file's forward pass only.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Examples in a batch of a model. Default: the model's own.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="Tables to read, the document that docs/formats.md describes, or a web page.",
)
@click.option("--all", "everything", is_flag=True, help="Text: every tensor and operator.")
@click.option(
    "--explain",
    multiple=True,
    metavar="TENSOR|OP",
    help="What each way to cut it costs, and why the plan's was taken; once for each.",
)
@click.option("--save", metavar="PLAN", help="Keep the plan in a file, for tofu run --plan.")
@click.option(
    "--memory",
    type=click.Choice(("exact", "estimate")),
    default="exact",
    show_default=True,
    help="A worker's bytes as MXNet will allocate them, or a quick estimate.",
)
@_fetch
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(
    workers: Optional[str],
    device: Optional[str],
    log: Optional[str],
    search: Optional[str],
    pins: tuple[str, ...],
    pin_file: Optional[str],
    time_limit: Optional[float],
    allow_replication: bool,
    bound: bool,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    inputs: tuple[str, ...],
    optimizer: str,
    predict: bool,
    batch_size: Optional[int],
    form: str,
    everything: bool,
    explain: tuple[str, ...],
    save: Optional[str],
    memory: str,
    fetch: Optional[str],
    target: str,
    args: tuple[str, ...],
) -> None:
    """Print how every tensor and operator would be partitioned, and what it costs.

    SCRIPT is run until its first partitioned training call. SYMBOL.json is a symbol
    that MXNet saved; give the shapes of its inputs. MODEL is a name that docs/models.md
    lists, such as wresnet-152-10.
    """
    from tofu.cli.inputs import SymbolRequest, from_model, from_script, from_symbol
    from tofu.cli.plan import Output, default_fetch, plan_and_print
    from tofu.plan import SearchOptions

    update = None if optimizer == "none" else optimizer
    is_model = names_model(target)
    is_symbol = target.endswith(".json")
    _check_target(target, args, is_model, batch_size, bool(shapes or dtypes or inputs or predict))
    set_search(search, pins, pin_file, allow_replication)
    os.environ.pop("TOFU_PLAN", None)  # what is planned here is planned anew
    if fetch is not None:
        os.environ["TOFU_FETCH"] = fetch
    config = switch_on(workers, device, log)
    if is_model:
        problem = from_model(target, batch_size=batch_size, optimizer=update)
    elif is_symbol:
        request = SymbolRequest.parse(
            Path(target), shapes=shapes, dtypes=dtypes, inputs=inputs, optimizer=update,
            predict=predict,
        )  # fmt: skip
        problem = from_symbol(request)
    else:
        problem = from_script(Path(target), args)
    options = SearchOptions(config.search, time_limit, config.pins, config.replication, bound)
    output = Output(
        form, everything, explain, Path(save) if save else None, memory,
        config.fetch or default_fetch(),
    )  # fmt: skip
    plan_and_print(problem, options, output)


def _check_target(
    target: str, args: tuple[str, ...], is_model: bool, batch_size: Optional[int], shaped: bool
) -> None:
    """Raise ConfigError for a file that is not there, and for options of another target."""
    is_symbol = target.endswith(".json")
    if not is_model:
        check_script(target)
        if batch_size is not None:
            raise ConfigError(f"tofu plan {target}: --batch-size belongs to a model's name")
    if args and (is_model or is_symbol):
        raise ConfigError(f"tofu plan: {args[0]!r} after {target}: expected options only")
    if shaped and not is_symbol:
        raise ConfigError(
            f"tofu plan {target}: --shape, --dtype, --input and --predict belong to a symbol "
            f"file (SYMBOL.json); a {'model' if is_model else 'script'} tells its shapes itself"
        )


cli.add_command(operators.ops)
cli.add_command(operators.verify)
cli.add_command(operators.suggest)


def names_model(target: str) -> bool:
    """Whether `target` is a model's name. Raises ConfigError for a name that no model has."""
    if os.path.exists(target) or os.path.basename(target) != target or "." in target:
        return False
    from tofu import models

    return bool(models.find(target))


def check_script(name: str) -> None:
    """Raise ConfigError unless `name` is a file."""
    if not os.path.isfile(name):
        what = "is a folder" if os.path.isdir(name) else "no such file"
        raise ConfigError(f"{name}: {what}; expected the path of a script or a symbol file")


def set_search(
    search: Optional[str], pins: tuple[str, ...], pin_file: Optional[str], allow_replication: bool
) -> None:
    """Set the variables that steer the search. Raises ConfigError for values of no use."""
    if search is not None:
        os.environ["TOFU_SEARCH"] = parse_mode(search, "--search")
    if allow_replication:
        os.environ["TOFU_REPLICATION"] = "1"
    if pins or pin_file:
        kept = read_pins(Path(pin_file), "--pins") if pin_file else ()
        given = [*map(_pin_text, kept), *pins]
        os.environ["TOFU_PINS"] = " ".join(map(_pin_text, parse_pins(given, "--pin")))


def _pin_text(pin: tuple[str, tuple[int, ...]]) -> str:
    return f"{pin[0]}={','.join(map(str, pin[1]))}"


def switch_on(workers: Optional[str], device: Optional[str], log: Optional[str]) -> Config:
    """Set the variables that switch tofu on, in this process and those it starts."""
    if workers is not None:
        os.environ["TOFU_WORKERS"] = str(parse_workers(workers, "--workers"))
    if device is not None:
        os.environ["TOFU_DEVICE"] = device
    if log is not None:
        os.environ["TOFU_LOG"] = log
    os.environ["MXNET_GRAPH_PASS"] = "tofu"
    return Config.from_environment()


def main(args: Optional[Sequence[str]] = None) -> None:
    """Run the command; errors that tofu raises on purpose become one line each.

    Args:
        args: what follows ``tofu`` on the command line; None for this process's own.
    """
    try:
        cli(args, prog_name="tofu")
    except InternalError:
        raise
    except TofuError as error:
        click.echo(f"tofu: {error}", err=True)
        raise SystemExit(BAD_INPUT) from None
