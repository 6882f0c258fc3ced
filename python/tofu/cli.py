"""The command ``tofu``: run a Gluon script partitioned, or print the plan of one.

    tofu run --workers 4 train.py --epochs 3
    tofu plan --workers 4 train.py --epochs 3
    tofu plan --workers 4 --shape data=64,1,28,28 model-symbol.json
    tofu plan --workers 8 wresnet-152-10

Bad input ends with one line on standard error and exit status 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import click

from tofu.config import DEVICES, Config, parse_workers
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
_log = click.option(
    "--log", metavar="WORDS", help="quiet, info or debug, and dump:DIR; as $TOFU_LOG."
)


@cli.command(cls=Script, context_settings={"allow_interspersed_args": False})
@_workers
@_device
@_log
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    workers: Optional[str],
    device: Optional[str],
    log: Optional[str],
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGS as python would, its hybridized blocks partitioned.

    The same as MXNET_GRAPH_PASS=tofu python SCRIPT ARGS.
    """
    check_script(script)
    switch_on(workers, device, log)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, script, *args])


@cli.command(cls=Script)
@_workers
@_device
@_log
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
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Tables to read, or the document that docs/formats.md describes.",
)
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(
    workers: Optional[str],
    device: Optional[str],
    log: Optional[str],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    inputs: tuple[str, ...],
    optimizer: str,
    predict: bool,
    batch_size: Optional[int],
    form: str,
    target: str,
    args: tuple[str, ...],
) -> None:
    """Print how every tensor and operator would be partitioned, and what it costs.

    SCRIPT is run until its first partitioned training call. SYMBOL.json is a symbol
    that MXNet saved; give the shapes of its inputs. MODEL is a name that docs/models.md
    lists, such as wresnet-152-10.
    """
    from tofu import cli_plan

    is_model = names_model(target)
    if not is_model:
        check_script(target)
        if batch_size is not None:
            raise ConfigError(f"tofu plan {target}: --batch-size belongs to a model's name")
    switch_on(workers, device, log)
    if args and (is_model or target.endswith(".json")):
        raise ConfigError(f"tofu plan: {args[0]!r} after {target}: expected options only")
    if target.endswith(".json"):
        request = cli_plan.SymbolRequest.parse(
            Path(target), shapes=shapes, dtypes=dtypes, inputs=inputs,
            optimizer=None if optimizer == "none" else optimizer, predict=predict,
        )  # fmt: skip
        found = cli_plan.plan_symbol(request)
    else:
        if shapes or dtypes or inputs or predict:
            raise ConfigError(
                f"tofu plan {target}: --shape, --dtype, --input and --predict belong to a symbol "
                f"file (SYMBOL.json); a {'model' if is_model else 'script'} tells its shapes itself"
            )
        if is_model:
            update = None if optimizer == "none" else optimizer
            found = cli_plan.plan_model(target, batch_size=batch_size, optimizer=update)
        else:
            found = cli_plan.plan_script(Path(target), args)
    click.echo(found.to_json() if form == "json" else found.to_text(), nl=False)


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


def switch_on(workers: Optional[str], device: Optional[str], log: Optional[str]) -> None:
    """Set the variables that switch tofu on, in this process and those it starts."""
    if workers is not None:
        os.environ["TOFU_WORKERS"] = str(parse_workers(workers, "--workers"))
    if device is not None:
        os.environ["TOFU_DEVICE"] = device
    if log is not None:
        os.environ["TOFU_LOG"] = log
    os.environ["MXNET_GRAPH_PASS"] = "tofu"
    Config.from_environment()


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
