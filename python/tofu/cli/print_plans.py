"""Plans the graphs that a command has found, one after the other, and prints them together."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

import click

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.analysis.table import described_name
from tofu.cli.explained import explained_in, explained_names
from tofu.errors import ConfigError
from tofu.mx.model.memory import with_memory
from tofu.mx.model.saving import save_plan
from tofu.planner.decide import plan_problem
from tofu.planner.limits import held_bytes
from tofu.planner.wish import Wish
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.names import matching
from tofu.plans.options import check_pins
from tofu.plans.plan import undescribed_text
from tofu.plans.progress import stage
from tofu.plans.render import explain as explaining
from tofu.plans.render.explain import Section
from tofu.plans.render.html import render_html
from tofu.plans.render.layers import render_layers
from tofu.plans.render.peak import render_peak
from tofu.plans.render.text import render_text

__all__ = ["ESTIMATE", "EXACT", "Output", "listed", "plan_and_print"]

# Ways in which --memory counts the bytes that MXNet will allocate.
EXACT, ESTIMATE = "exact", "estimate"
_OF_PARAMETERS = ("parameters", "optimizer_state")


@dataclasses.dataclass(frozen=True)
class Output:
    """Options for printing and saving a plan.

    Attributes:
        form: one of FORMATS.
        everything: whether text has a line for every tensor and operator.
        layers: whether text is a table of layers instead of tensors and operators.
        peak: whether it is a worker's memory at the worst moment.
        explain: names or patterns of tensors and operators to explain.
        save: file to save the plan to, or None.
        command: the command line that plans it again, before and after pins.
        step: makes the page's table of a predicted and a measured step, or None.
    """

    form: str
    everything: bool = False
    layers: bool = False
    peak: bool = False
    explain: Sequence[str] = ()
    save: Optional[Path] = None
    command: tuple[str, str] = ("", "")
    step: Optional[Callable[[Problem, Plan], Section]] = None


def plan_and_print(problems: Sequence[Problem], wish: Wish, output: Output) -> None:
    """Plan one or several graphs, save the plans if asked, and print them on standard output.

    Raises:
        ConfigError: the graphs lack a name to explain, or the file cannot be written.
        PlanError: an option does not fit the graphs.
    """
    if output.form == "html" and len(problems) > 1:
        raise ConfigError(
            f"a page shows one plan, and there are {len(problems)} graphs: "
            f"{listed(problems)}; --graph N chooses one"
        )
    explained = explained_names(problems, output.explain)
    pins = _shared_out(problems, wish.options)
    texts: list[str] = []
    plans: list[Plan] = []
    plan_of: dict[str, Plan] = {}  # parameters that have tiles, with the plan that made them
    for number, problem in enumerate(problems):
        pinned = dataclasses.replace(wish.options, pins=pins[number])
        graph_wish = dataclasses.replace(wish, options=_following(problem, pinned, plan_of))
        taken_bytes = _taken_bytes(problem, plans)
        problem, plan = plan_problem(problem, graph_wish, taken_bytes=taken_bytes)
        plans.append(plan)
        plan_of.update({name: plan for name in _parameters(problem) if name not in plan_of})
        names = explained_in(problem, output.explain, explained[number])
        texts.append(_told(problem, plan, names, wish, output))
    if len(problems) == 1:
        click.echo(texts[0], nl=False)
    elif output.form == "json":
        click.echo(f"[{', '.join(texts)}]")
    else:
        shown = [
            f"Graph {number} of {len(problems)}: {problem.name}\n{text}"
            for number, (problem, text) in enumerate(zip(problems, texts), 1)
            if text
        ]
        click.echo("\n".join(shown), nl=False)


def _taken_bytes(problem: Problem, others: Sequence[Plan]) -> int:
    """Bytes that earlier graphs hold in a run, except for shared parameters."""
    parameters = set(_parameters(problem))
    total = 0
    for plan in others:
        size = held_bytes(plan)
        if parameters & {tensor.name for tensor in plan.tensors}:
            size -= sum(plan.bytes_per_worker.get(kind, 0) for kind in _OF_PARAMETERS)
        total += size
    return total


def listed(problems: Sequence[Problem]) -> str:
    """The numbers and names of graphs, in one line."""
    return "; ".join(f"{number}: {each.name}" for number, each in enumerate(problems, 1))


def _shared_out(
    problems: Sequence[Problem], options: SearchOptions
) -> list[tuple[tuple[str, tuple[int, ...]], ...]]:
    """Assigns pins to the graphs that have their tensors. Raises PlanError for a pin of none."""
    names = [dict.fromkeys(problem.graph.tensor_names) for problem in problems]
    every = {name for own in names for name in own}
    check_pins(options.pins, every)
    return [tuple(pin for pin in options.pins if matching(pin[0], own)) for own in names]


def _following(
    problem: Problem, options: SearchOptions, plan_of: Mapping[str, Plan]
) -> SearchOptions:
    """The options for a graph whose parameters may have tiles already, as in a run."""
    tiled = [name for name in _parameters(problem) if name in plan_of]
    if not tiled:
        return options
    tiles = tuple((name, plan_of[name].tensor(name).cuts) for name in tiled)
    others = tuple(pin for pin in options.pins if pin[0] not in tiled)
    return dataclasses.replace(options, pins=(*others, *tiles), parts=plan_of[tiled[0]].parts)


def _parameters(problem: Problem) -> list[str]:
    return [
        node.name
        for node in problem.graph.nodes
        if not node.op and node.attrs.get("__tofu_role__") == "parameter"
    ]


def _told(
    problem: Problem, plan: Plan, explained: Sequence[str], wish: Wish, output: Output
) -> str:
    """Save a plan and return the lines to print."""
    if problem.table.undescribed:
        unknown = strategy_table(problem.graph)[1]  # which says why, too
        cost = sum(op.bytes for op in plan.operators if op.op in problem.table.undescribed)
        click.echo(f"tofu: {undescribed_text(problem.name, unknown, cost)}", err=True)
    with stage("explaining"):
        explanations = [explaining.explain(problem, plan, name) for name in explained]
    if output.save is not None:
        save_plan(output.save, problem, plan)
    if output.explain and not explanations and output.form == "text":
        return ""  # another graph has those names
    if wish.exact and plan.memory != EXACT:
        kept_bytes = wish.options.keep_fetched_bytes or 0
        plan = with_memory(problem, plan, wish.fetch, keep_fetched_bytes=kept_bytes)
    step = output.step(problem, plan) if output.step is not None else None
    if output.form != "json":
        plan = _with_names(problem, plan)
    return _render(plan, explanations, output, problem.graph, step)


def _with_names(problem: Problem, plan: Plan) -> Plan:
    """Call operators written in Python by the names under which they are registered."""
    names = {
        node.name: described_name(node.op, node.attrs)[0]
        for node in problem.graph.nodes_of({"Custom"})
    }
    operators = (dataclasses.replace(o, op=names.get(o.node, o.op)) for o in plan.operators)
    return dataclasses.replace(plan, operators=tuple(operators)) if names else plan


def _render(
    plan: Plan,
    explanations: Sequence[explaining.Explanation],
    output: Output,
    graph: _core.Graph,
    step: Optional[Section],
) -> str:
    if output.form == "html":
        sections = [section for each in explanations for section in each.sections]
        before, after = output.command
        command = f"{before} --workers {plan.workers}", after
        return render_html(plan, sections, graph=graph, command=command, step=step)
    if output.form == "json":
        if not explanations:
            return plan.to_json()
        documents = [explanation.document for explanation in explanations]
        return json.dumps({**plan.document(), "explanations": documents})
    if explanations:
        return "\n".join(explanation.to_text() for explanation in explanations)
    if output.layers:
        return render_layers(plan)
    if output.peak:
        return render_peak(plan, everything=output.everything)
    return render_text(plan, everything=output.everything)
