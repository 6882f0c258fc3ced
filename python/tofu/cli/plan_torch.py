"""``tofu plan MODEL --mesh 2,4``: plans a module of PyTorch."""

from __future__ import annotations

import json
from typing import Optional

import click

from tofu.cli.explained import explained_names
from tofu.cli.model import torch_module
from tofu.cli.print_plans import Output
from tofu.planner.wish import Wish
from tofu.plans.render import explain as explaining
from tofu.plans.render.html import render_html
from tofu.plans.render.layers import render_layers
from tofu.plans.render.peak import render_peak

__all__ = ["FORMATS", "plan_module"]

FORMATS = ("text", "json", "html", "python")


def plan_module(
    target: str,
    mesh: tuple[int, ...],
    *,
    optimizer: Optional[str],
    wish: Wish,
    output: Output,
) -> None:
    """Plan a module of PyTorch and print the plan, or the part of it that `output` asks for.

    Raises:
        ConfigError: torch is not installed, the target is no module, or has no such name.
        GraphError: the module cannot be traced.
        MemoryLimitError: no plan was found that fits in the limit.
        PlanError: a pin does not fit.
    """
    loading = torch_module("loading", "tofu plan --mesh")
    planning = torch_module("planning", "tofu plan --mesh")
    model, args, kwargs = loading.load(target)
    plan = planning.plan(
        model, args, kwargs, mesh=mesh, optimizer=optimizer, options=wish.options,
        memory=wish.limit_bytes, recompute=wish.recompute, name=target,
    )  # fmt: skip
    names = explained_names([plan.problem], output.explain)[0] if output.explain else []
    explanations = [explaining.explain(plan.problem, plan.details, name) for name in names]
    if output.form == "json":
        document = json.loads(plan.to_json())
        more = {"explanations": [each.document for each in explanations]} if explanations else {}
        click.echo(json.dumps({**document, **more}))
    elif output.form == "python":
        click.echo(plan.to_python(), nl=False)
    elif output.form == "html":
        sections = [section for each in explanations for section in each.sections]
        page = render_html(plan.details, sections, graph=plan.graph, command=output.command)
        click.echo(page)
    elif explanations:
        click.echo("\n".join(each.to_text() for each in explanations), nl=False)
    elif output.layers:
        click.echo(render_layers(plan.details), nl=False)
    elif output.peak:
        click.echo(render_peak(plan.details, everything=output.everything), nl=False)
    else:
        click.echo(plan.to_text(everything=output.everything), nl=False)
