"""``tofu plan MODEL --mesh 2,4``: plans a module of PyTorch."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any, Optional

import click
from click.core import ParameterSource

from tofu.cli.explained import explained_names
from tofu.cli.print_plans import Output
from tofu.errors import ConfigError
from tofu.planner.wish import Wish
from tofu.plans.render import explain as explaining
from tofu.plans.render.html import render_html
from tofu.plans.render.layers import render_layers
from tofu.plans.render.peak import render_peak

__all__ = ["FORMATS", "check_options", "is_module", "parse_mesh", "plan_module", "torch_module"]

FORMATS = ("text", "json", "html", "python")


def is_module(target: str) -> bool:
    """Whether a target is a module of PyTorch."""
    return target.endswith(".pt2") or (":" in target and not target.endswith((".py", ".json")))


def check_options(context: click.Context, others: Sequence[str]) -> None:
    """Raise ConfigError if one of these options is given, which PyTorch's modules do not have."""
    for name in others:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise ConfigError(f"tofu {context.info_name} --mesh: --{option} is not for PyTorch")


def parse_mesh(text: str) -> tuple[int, ...]:
    """The sizes of a mesh, "2,4". Raises ConfigError."""
    try:
        sizes = tuple(int(each) for each in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"--mesh {text}: expected the sizes of its dimensions, such as 2,4")
    return sizes


def torch_module(name: str, who: str) -> Any:
    """A module of ``tofu.torch``. Raises ConfigError if torch is not installed."""
    try:
        return importlib.import_module(f"tofu.torch.{name}")
    except ImportError as error:
        raise ConfigError(
            f"{who} needs torch 2.9, but it cannot be imported ({error}); install tofu with the "
            "extra [torch], in an environment without MXNet"
        ) from error


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
