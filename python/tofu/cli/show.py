"""``tofu show`` and ``tofu diff``: print saved plans, and the differences of two."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Optional

import click

from tofu.cli.options import everything_option, format_option, layers_option
from tofu.errors import ConfigError
from tofu.plans import Plan
from tofu.plans import file as plan_file
from tofu.plans.names import matching
from tofu.plans.render.difference import differ, difference_document, render_difference
from tofu.plans.render.html import render_html, render_html_difference
from tofu.plans.render.layers import render_layers
from tofu.plans.render.text import render_text

__all__ = ["diff", "show"]

DIFFERENT = 1  # exit status


@click.command(short_help="Print what a saved plan holds.")
@format_option(("text", "json", "html"), "Tables, the JSON documents in a list, or a web page.")
@layers_option
@everything_option
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="K", help="Only plans for K workers."
)
@click.argument("plan", metavar="PLAN")
@click.argument("patterns", nargs=-1, metavar="[NAME]...")
def show(
    form: str,
    layers: bool,
    everything: bool,
    workers: Optional[int],
    plan: str,
    patterns: tuple[str, ...],
) -> None:
    """Print what the file PLAN holds, which tofu plan --save or --mesh --format json wrote.

    With NAMEs, only tensors and operators of these names; NAME may be a pattern such as
    'conv1*'.
    """
    plans = _plans(plan, workers)
    if patterns:
        plans = [_only(each, patterns, plan) for each in plans]
    if form == "json":
        click.echo(json.dumps([each.document() for each in plans]))
        return
    if form == "html":
        if len(plans) > 1:
            held = ", ".join(f"{each.workers} workers ({each.graph_hash})" for each in plans)
            raise ConfigError(f"{plan}: a page shows one plan, and it has those for {held}")
        click.echo(render_html(plans[0]), nl=False)
        return
    texts = []
    for each in plans:
        body = render_layers(each) if layers else render_text(each, everything=everything)
        texts.append(f"{plan}: plan of graph {each.graph_hash}, search mode {each.mode}\n{body}")
    click.echo("\n".join(texts), nl=False)


@click.command(short_help="Print how two saved plans differ.")
@click.option("--all", "everything", is_flag=True, help="Show all differences, not the largest.")
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="K", help="Only plans for K workers."
)
@format_option(("text", "json", "html"), "Tables, the JSON document, or a web page of both plans.")
@click.argument("first", metavar="PLAN")
@click.argument("second", metavar="PLAN")
def diff(everything: bool, workers: Optional[int], form: str, first: str, second: str) -> None:
    """Print how the plans of two files differ: bytes, memory, layers and cuts.

    Exits with status 1 if they do.
    """
    before, after = _one_each(first, second, workers)
    names = (first, second) if first != second else ("first", "second")
    if form == "html":
        click.echo(render_html_difference(before, after, _short(names)), nl=False)
    elif form == "json":
        click.echo(json.dumps(difference_document(before, after, names), indent=1))
    else:
        click.echo(render_difference(before, after, names, everything=everything), nl=False)
    if differ(before, after):
        raise SystemExit(DIFFERENT)


def _short(paths: tuple[str, str]) -> tuple[str, str]:
    """The names of two files without their folders, if these tell them apart: titles of columns."""
    first, second = (Path(path).name for path in paths)
    return (first, second) if first != second else paths


def _plans(path: str, workers: Optional[int]) -> list[Plan]:
    plans = plan_file.read_saved(Path(path))
    fitting = [plan for plan in plans if workers in (None, plan.workers)]
    if not fitting:
        numbers = ", ".join(sorted({str(plan.workers) for plan in plans}))
        raise ConfigError(f"{path}: no plan for {workers} workers, only for {numbers}")
    return fitting


def _one_each(first: str, second: str, workers: Optional[int]) -> tuple[Plan, Plan]:
    """The plans to compare: the only ones, or the only ones of the same graph and workers."""
    before, after = _plans(first, workers), _plans(second, workers)
    if len(before) == len(after) == 1:
        return before[0], after[0]
    keys = {(plan.graph_hash, plan.workers): plan for plan in before}
    common = [(keys[key], plan) for plan in after for key in [(plan.graph_hash, plan.workers)]
              if key in keys]  # fmt: skip
    if len(common) != 1:
        raise ConfigError(
            f"{first} has {len(before)} plans and {second} {len(after)}, {len(common)} of them for "
            "the same graph and number of workers; expected one to compare (--workers K chooses)"
        )
    return common[0]


def _only(plan: Plan, patterns: tuple[str, ...], path: str) -> Plan:
    """A plan with only the tensors and operators whose names fit. Raises ConfigError for none."""
    names = dict.fromkeys([*(t.name for t in plan.tensors), *(o.node for o in plan.operators)])
    fitting = {name for pattern in patterns for name in matching(pattern, names)}

    def fits(name: str) -> bool:
        return name in fitting

    tensors = tuple(tensor for tensor in plan.tensors if fits(tensor.name))
    operators = tuple(operator for operator in plan.operators if fits(operator.node))
    if not tensors and not operators:
        raise ConfigError(
            f"{path}: no tensor or operator is named {' or '.join(patterns)}; "
            f"tofu show --all {path} lists them"
        )
    document = plan.document()
    for kind, name_of in (("tensors", _tensor_name), ("operators", lambda o: o["node"])):
        document[kind] = [each for each in document[kind] if fits(name_of(each))]
    return dataclasses.replace(
        plan, model="", tensors=tensors, operators=operators, written=document
    )


def _tensor_name(tensor: dict[str, object]) -> str:
    return f"{tensor['node']}[{tensor['output']}]" if tensor["output"] else str(tensor["node"])
