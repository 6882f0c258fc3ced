"""``tofu plan``: from the options of the command line to what is printed and saved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional

import click

from tofu.config import Config
from tofu.plan import Plan, Problem, SearchOptions, plan_graph, render_html, render_text
from tofu.plan import file as plan_file
from tofu.plan.plan import undescribed_text

__all__ = ["FORMATS", "Output", "plan_and_print"]

FORMATS = ("text", "json", "html")


@dataclasses.dataclass(frozen=True)
class Output:
    """What to print and keep of a plan.

    Attributes:
        form: one of FORMATS.
        everything: whether text has a line for every tensor and operator.
        save: file to keep the plan in, or None.
    """

    form: str
    everything: bool = False
    save: Optional[Path] = None


def plan_and_print(problem: Problem, options: SearchOptions, output: Output) -> None:
    """Plan `problem`, save the plan where asked to, and print it on standard output.

    Raises:
        ConfigError: the file cannot be written.
        PlanError: an option does not fit the graph.
    """
    plan = plan_graph(problem, options, dump_dir=Config.from_environment().dump_dir)
    unknown = problem.undescribed()
    if unknown:
        click.echo(f"tofu: {undescribed_text(problem.name, unknown, plan)}", err=True)
    if output.save is not None:
        plan_file.save(output.save, plan)
    click.echo(_render(plan, output), nl=False)


def _render(plan: Plan, output: Output) -> str:
    if output.form == "html":
        return render_html(plan)
    if output.form == "json":
        return plan.to_json()
    return render_text(plan, everything=output.everything)
