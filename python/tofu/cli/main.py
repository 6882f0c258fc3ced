"""The command ``tofu``: plan PyTorch modules and Gluon scripts, and run the scripts partitioned.

    tofu plan --workers 8 package.module:function
    tofu run --workers 4 train.py --epochs 3
    tofu plan --workers 4 train.py --epochs 3
    tofu plan --workers 4 --shape data=64,1,28,28 model-symbol.json
    tofu plan --workers 8 wresnet-152-10
    tofu plan --workers 8 --save mlp.plan --pin mlp_dense0_weight=0 mlp
    tofu run --plan train.plan train.py
    tofu run -m package.train --epochs 3
    tofu compare --workers 2,4,8 mlp
    tofu estimate --gpu-memory 12GiB wresnet-152-10
    tofu frontier --workers 8 --machine p2.8xlarge wresnet-50-4
    tofu check --workers 4 train.py --epochs 3
    tofu trace --workers 4 train.py --epochs 3
    tofu show --layers train.plan
    tofu diff train.plan other.plan
    tofu calibrate --output here.json
    tofu simulate --workers 8 --machine p2.8xlarge wresnet-152-10
    tofu export --workers 8 --output problem wresnet-152-10
    tofu models
    tofu ops Convolution
    tofu verify Convolution dot --seed 3

Bad input ends with one line on standard error and exit status 2, Ctrl-C with status 130.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, Optional

import click

from tofu import file_cache
from tofu.cli import operators
from tofu.cli.calibrate import calibrate
from tofu.cli.check import check
from tofu.cli.compare import compare_command
from tofu.cli.estimate import estimate_command
from tofu.cli.export import export
from tofu.cli.frontier import frontier_command
from tofu.cli.model_list import models_command
from tofu.cli.plan import plan
from tofu.cli.run import run
from tofu.cli.show import diff, show
from tofu.cli.simulate import simulate
from tofu.cli.trace import trace
from tofu.config import Config
from tofu.errors import ConfigError, InternalError, TofuError
from tofu.installation import DISTRIBUTION
from tofu.plans import progress
from tofu.uncaught import BAD_INPUT, INTERRUPTED

__all__ = ["main"]


class _Misused(click.ClickException):
    """A misused option in one line, as all errors are, with the command that explains it."""

    exit_code = BAD_INPUT

    def __init__(self, error: click.UsageError) -> None:
        command = "tofu" if error.ctx is None else error.ctx.command_path
        super().__init__(f"{error.format_message().rstrip('.')}; see {command} --help")

    def show(self, file: Optional[IO[Any]] = None) -> None:
        """Print it as TofuErrors are."""
        click.echo(f"tofu: {ConfigError(self.message)}", file=file, err=True)


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2 and later
            raise
        raise _Misused(error) from None


class _Commands(click.Group):
    """A group that Ctrl-C ends quietly, as a shell expects, whatever its command was doing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _one_line(), file_cache.record_finds() as kinds:
                result = super().invoke(ctx)
            if "plan" in kinds:
                _tell_kept(ctx.invoked_subcommand)
            return result
        except KeyboardInterrupt:
            progress.clear()
            raise SystemExit(INTERRUPTED) from None


def _tell_kept(command: Optional[str]) -> None:
    """Say that a plan is an earlier run's; `tofu run` says so where it says what it partitions."""
    is_quiet = Config.from_environment().log_level == "quiet"
    if command != "run" and not is_quiet:
        text = "tofu: an earlier run searched this plan (TOFU_CACHE=0 searches again)"
        click.echo(text, err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name="tofu", message="%(prog)s %(version)s")
def cli() -> None:
    """Split the training of PyTorch modules and MXNet Gluon scripts across several workers."""


COMMANDS = (
    run, plan, compare_command, estimate_command, frontier_command, check, trace, show, diff,
    export, simulate, calibrate, models_command, operators.ops, operators.verify, operators.suggest,
)  # fmt: skip
for command in COMMANDS:
    cli.add_command(command)


def main(args: Optional[Sequence[str]] = None) -> None:
    """Run the command; errors that tofu raises on purpose become one line each.

    Args:
        args: the arguments after ``tofu``; None for this process's own.
    """
    try:
        cli(args, prog_name="tofu")
    except InternalError:
        raise
    except TofuError as error:
        click.echo(f"tofu: {error}", err=True)
        raise SystemExit(BAD_INPUT) from None
