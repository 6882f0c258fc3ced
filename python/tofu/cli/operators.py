"""The commands about operators: ``tofu ops``, ``tofu verify`` and ``tofu suggest``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

import click

from tofu.cli.isolated import isolated
from tofu.cli.model import refuse, torch_module
from tofu.cli.options import check_script, describe_option, format_option, switch_on
from tofu.errors import ConfigError
from tofu.installation import IMPORT_ERRORS, check_mxnet, silence_numpy, unusable
from tofu.mx.model.sources import DTYPES

__all__ = ["FALSE_STRATEGY", "ops", "suggest", "verify"]

FALSE_STRATEGY = 1  # exit status


@click.command(short_help="List the operators and how each can be split.")
@format_option(
    ("text", "json", "markdown"), "A table, the JSON document, or the page docs/operators.md."
)
@click.option(
    "--of", "script", metavar="SCRIPT", help="Only the operators of a script's first training step."
)
@describe_option
@click.argument("operator", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def ops(form: str, script: Optional[str], operator: Optional[str], args: tuple[str, ...]) -> None:
    """List every operator of the installed MXNet and how it can be split.

    With an OPERATOR, print its description, index variables and strategies. With --of SCRIPT,
    list the operators of the script; the arguments are the script's.
    """
    if (script or operator) and form != "text":
        raise ConfigError(f"tofu ops --format {form}: only for the list of all operators")
    if args and script is None:
        raise ConfigError(
            f"tofu ops {operator}: {args[0]!r} is one too many; expected one operator"
        )
    if script is not None:
        check_script(script)
    os.environ.pop("MXNET_GRAPH_PASS", None)
    check_mxnet("tofu ops", load=script is None and operator is not None)
    silence_numpy()
    from tofu.cli.reports.operator_list import ops_text
    from tofu.verify.inventory.cache import cached_inventory

    try:
        inventory = cached_inventory()
    except IMPORT_ERRORS as error:
        raise unusable("tofu ops", error) from error
    if script is not None:
        text = _used(script, [*filter(None, [operator]), *args], inventory)
    elif operator is not None:
        from tofu.cli.reports.operator_page import operator_text

        text = operator_text(operator, inventory)
    else:
        text = ops_text(inventory, form)
    click.echo(text, nl=False)


@click.command(short_help="Check strategies by running operators in parts.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of shapes and values.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of parallel processes. Default: one per processor.",
)
@click.option(
    "--quick", is_flag=True, help="Run a sample of the calls, without a search for missing splits."
)
@click.option("--record", is_flag=True, help="Store the results in the package, for tofu ops.")
@format_option(("text", "json"), "Text, or the JSON document.")
@click.option(
    "--framework",
    type=click.Choice(["mxnet", "torch"]),
    default="mxnet",
    show_default=True,
    help="torch: every call of small modules, or of MODULE:FUNCTION instead of OPERATOR.",
)
@describe_option
@click.argument("operators", nargs=-1, metavar="[OPERATOR]...")
def verify(
    seed: int,
    processes: Optional[int],
    quick: bool,
    record: bool,
    form: str,
    framework: str,
    operators: tuple[str, ...],
) -> None:
    """Check the strategies of OPERATORs (default: all): run the real ones whole and in parts.

    Exits with status 1 if a strategy is false, or nothing of a named OPERATOR could be checked.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    if framework == "torch":
        _verify_modules(operators, seed)
        return
    _load_mxnet("tofu verify")
    from tofu.cli.reports import operator_report

    names, unchecked = operator_report.known_operators(operators)
    count = processes or os.cpu_count() or 1
    verdicts = operator_report.run_verify(
        names, seed=seed, processes=count, record=record, quick=quick
    )
    show = operator_report.verdicts_document if form == "json" else operator_report.verdicts_text
    click.echo(show(verdicts), nl=False)
    if any(v.false for v in verdicts):
        raise SystemExit(FALSE_STRATEGY)
    skipped = [v for v in verdicts if operators and v.skipped and not v.checked]
    unchecked |= {v.op: v.skipped[0].detail for v in skipped}
    for name, reason in unchecked.items():
        click.echo(f"tofu: nothing of {name} was checked: {reason}", err=True)
    if unchecked:
        raise SystemExit(FALSE_STRATEGY)


def _verify_modules(targets: Sequence[str], seed: int) -> None:
    """Run every split of the operators that modules of PyTorch call; print what was found."""
    where = "--framework torch"
    modules = torch_module("verify", f"tofu verify {where}")
    refuse(click.get_current_context(), where, modules.REFUSALS)
    is_false = False
    for name, report in modules.verify_targets(targets, seed):
        click.echo(
            f"{name}: {report.calls} calls, {report.described} described, {report.strategies} "
            f"splits of {len(report.operators)} operators run, {len(report.false)} false"
        )
        undescribed = [f"{each} has no description" for each in sorted(report.undescribed)]
        for line in [*undescribed, *report.false]:
            click.echo(f"  {line}")
        is_false |= bool(report.false)
    if is_false:
        raise SystemExit(FALSE_STRATEGY)


@click.command(short_help="Find how an operator can be split.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    required=True,
    metavar="D,D,...[:KIND]",
    help="Shape of an input; repeat in order. KIND: real, positive, int10 (below 10).",
)
@click.option(
    "--attr", "attrs", multiple=True, metavar="NAME=VALUE", help="An attribute; may be repeated."
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Type of the inputs.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the values.")
@describe_option
@click.argument("operator")
def suggest(
    shapes: tuple[str, ...], attrs: tuple[str, ...], dtype: str, seed: int, operator: str
) -> None:
    """Run OPERATOR in parts to find how it can be split, and print a description to paste.

    For an operator written in Python, use Custom:NAME and --describe the file that registers it.
    Give different dimensions different sizes.
    """
    pairs = [text.partition("=") for text in attrs]
    if not all(sign for _, sign, _ in pairs):
        raise ConfigError(f"--attr {', '.join(attrs)}: expected NAME=VALUE")
    attributes = {name: value for name, _, value in pairs}
    check_mxnet("tofu suggest", load=False)

    def run() -> None:
        _load_mxnet("tofu suggest")
        from tofu.verify.find.suggest import parse_input, suggestion

        inputs = [parse_input(text) for text in shapes]
        click.echo(suggestion(operator, inputs, attributes, dtype=dtype, seed=seed), nl=False)

    isolated(
        run,
        f"tofu suggest {operator}: it crashed MXNet ({{}}) on inputs of {' and '.join(shapes)}; "
        "give other --shape, --attr or --dtype",
    )


def _load_mxnet(who: str) -> None:
    """Import MXNet with tofu off, here and in the processes that the command starts."""
    os.environ.pop("MXNET_GRAPH_PASS", None)
    check_mxnet(who, load=True)


def _used(script: str, args: Sequence[str], operators: Sequence[Mapping[str, object]]) -> str:
    """The operators of a script's training graphs."""
    from tofu.cli.inputs import graphs_of_script

    os.environ.pop("TOFU_PLAN", None)
    switch_on()
    problems = graphs_of_script(Path(script), args).problems
    from tofu.cli.reports.operator_page import used_text

    return used_text(problems, operators)
