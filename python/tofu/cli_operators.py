"""The commands about operators: ``tofu ops`` and ``tofu verify``."""

from __future__ import annotations

import os
from typing import Optional

import click

__all__ = ["FALSE_STRATEGY", "ops", "verify"]

FALSE_STRATEGY = 1  # exit status


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="A table to read, the document, or the page docs/operators.md.",
)
def ops(form: str) -> None:
    """List every operator of the installed MXNet and how it can be split."""
    os.environ.pop("MXNET_GRAPH_PASS", None)
    from tofu import cli_ops
    from tofu.verify.inventory import inventory

    click.echo(cli_ops.ops_text(inventory(), form), nl=False)


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Of shapes and values.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many run beside each other. Default: one for each processor.",
)
@click.option(
    "--record", is_flag=True, help="Keep the results in the package, where tofu ops reads them."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text to read, or a document.",
)
@click.argument("operators", nargs=-1, metavar="[OPERATOR]...")
def verify(
    seed: int, processes: Optional[int], record: bool, form: str, operators: tuple[str, ...]
) -> None:
    """Run the strategies of OPERATORs (default: all) on the real ones, whole and by parts.

    Exit status 1 where a strategy is false.
    """
    os.environ.pop("MXNET_GRAPH_PASS", None)
    os.environ["OMP_NUM_THREADS"] = "1"
    from tofu import cli_ops

    names = cli_ops.known_operators(operators, ())
    count = processes or os.cpu_count() or 1
    verdicts = cli_ops.run_verify(names, seed=seed, processes=count, record=record)
    show = cli_ops.verdicts_document if form == "json" else cli_ops.verdicts_text
    click.echo(show(verdicts), nl=False)
    if any(v.false for v in verdicts):
        raise SystemExit(FALSE_STRATEGY)
