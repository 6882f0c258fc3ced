"""Plans the graphs that a command has found, one after the other, and prints them together."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

import click

from tofu.analysis.table import described_name
from tofu.cli.reports.explained import explained_in, explained_names
from tofu.config import ESTIMATE
from tofu.errors import ConfigError, MemoryLimitError, PlanError, TofuError
from tofu.planner.comparison import with_whole
from tofu.planner.decide import plan_problem
from tofu.planner.limits import held_bytes, serial_memory
from tofu.planner.model import Devices
from tofu.planner.wish import Wish
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.names import matching
from tofu.plans.options import check_pins
from tofu.plans.plan import format_bytes, undescribed_text
from tofu.plans.problem import Counting
from tofu.plans.progress import stage
from tofu.plans.render import explain as explaining
from tofu.plans.render.explain import Section
from tofu.plans.render.html import render_html
from tofu.plans.render.layers import render_layers
from tofu.plans.render.peak import render_peak
from tofu.plans.render.rules import render_rules
from tofu.plans.render.text import render_text

__all__ = ["Choice", "Output", "listed", "plan_and_print"]

Planned = tuple[Problem, Plan]
_FOR_PEOPLE = ("text", "html")  # forms that name a cheaper choice
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
        prices: whether the page has the prices of pins.
    """

    form: str
    everything: bool = False
    layers: bool = False
    peak: bool = False
    explain: Sequence[str] = ()
    save: Optional[Path] = None
    command: tuple[str, str] = ("", "")
    step: Optional[Callable[[Problem, Plan], Section]] = None
    prices: bool = False


# Devices to plan for, and the graphs that run on them.
Choice = tuple[Devices, Sequence[Problem]]


def plan_and_print(choices: Sequence[Choice], wish: Wish, output: Output) -> None:
    """Plan one or several graphs, save the plans if asked, and print them on standard output.

    Of several devices, those are taken whose plans cost least.

    Raises:
        ConfigError: the graphs lack a name to explain, or the file cannot be written.
        PlanError: an option does not fit the graphs.
    """
    problems = choices[0][1]
    if output.form == "html" and len(problems) > 1:
        raise ConfigError(
            f"a page shows one plan, and there are {len(problems)} graphs: "
            f"{listed(problems)}; --graph N chooses one"
        )
    explained = explained_names(problems, output.explain)
    devices, planned = _best(choices, wish)
    if len(planned) == 1 and output.form in _FOR_PEOPLE and wish.limit_bytes is None:
        with stage("searching plans with whole tensors"):
            planned = [(each, with_whole(each, plan, wish.options)) for each, plan in planned]
    texts = []
    for before, (problem, plan) in zip(explained, planned):
        names = explained_in(problem, output.explain, before)
        texts.append(_told(problem, plan, names, wish, output, devices))
    if len(problems) == 1:
        click.echo(texts[0], nl=False)
    elif output.form == "json":
        click.echo(f"[{', '.join(texts)}]")
    else:
        comment = "# " if output.form == "pins" else ""
        shown = [
            f"{comment}Graph {number} of {len(problems)}: {problem.name}\n{text}"
            for number, (problem, text) in enumerate(zip(problems, texts), 1)
            if text
        ]
        click.echo("\n".join(shown), nl=False)


def _best(choices: Sequence[Choice], wish: Wish) -> tuple[Devices, list[Planned]]:
    """The plans that cost least. Raises the first PlanError if no devices have any."""
    found: list[tuple[float, Devices, list[Planned]]] = []
    errors: list[TofuError] = []
    for devices, problems in choices:
        try:
            planned = _planned(problems, wish)
            found.append((sum(_cost(plan, wish) for _, plan in planned), devices, planned))
        except (MemoryLimitError, PlanError) as error:
            errors.append(error)
    if not found:
        raise errors[0]
    cost, devices, planned = min(found, key=lambda each: each[0])
    if len(choices) > 1:
        every = ", ".join(str(each) for each, _ in choices)
        is_timed = wish.options.objective == "time"
        least = "is predicted to be fastest" if is_timed else f"sends least, {format_bytes(cost)}"
        click.echo(f"tofu: of the meshes {every}, {devices} {least}", err=True)
    return devices, planned


def _cost(plan: Plan, wish: Wish) -> float:
    is_timed = wish.options.objective == "time" and plan.predicted is not None
    return float(plan.predicted["step_ns"]) if is_timed and plan.predicted else plan.total_bytes


def _planned(problems: Sequence[Problem], wish: Wish) -> list[Planned]:
    """The plans of graphs that run together: later ones take the tiles of earlier ones."""
    pins = _shared_out(problems, wish.options)
    found: list[Planned] = []
    plan_of: dict[str, Plan] = {}  # parameters that have tiles, with the plan that made them
    for number, problem in enumerate(problems):
        pinned = dataclasses.replace(wish.options, pins=pins[number])
        graph_wish = dataclasses.replace(wish, options=_following(problem, pinned, plan_of))
        taken_bytes = _taken_bytes(problem, [plan for _, plan in found])
        problem, plan = plan_problem(problem, graph_wish, taken_bytes=taken_bytes)
        found.append((problem, plan))
        plan_of.update({name: plan for name in _parameters(problem) if name not in plan_of})
    return found


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
    problem: Problem,
    plan: Plan,
    explained: Sequence[str],
    wish: Wish,
    output: Output,
    devices: Devices,
) -> str:
    """Save a plan and return the lines to print."""
    front_end = problem.front_end
    undescribed = front_end.warned(problem)
    if undescribed:
        cost = sum(op.bytes for op in plan.operators if op.op in undescribed)
        click.echo(f"tofu: {undescribed_text(problem.name, undescribed, cost)}", err=True)
    with stage("explaining"):
        explanations = [explaining.explain(problem, plan, name) for name in explained]
    if output.save is not None:
        front_end.save(output.save, problem, plan)
    if output.explain and not explanations and output.form == "text":
        return ""  # another graph has those names
    if wish.exact and plan.memory == ESTIMATE:
        counting = Counting(wish.fetch, wish.options.keep_fetched_bytes or 0)
        plan = front_end.begin_memory(problem, plan, counting)()
    step = output.step(problem, plan) if output.step is not None else None
    if output.form != "json":
        plan = _with_names(problem, plan)
    return _render(problem, plan, explanations, output, devices, step, wish.limit_bytes)


def _with_names(problem: Problem, plan: Plan) -> Plan:
    """Call operators written in Python by the names under which they are registered."""
    names = {
        node.name: described_name(node.op, node.attrs)[0]
        for node in problem.graph.nodes_of({"Custom"})
    }
    operators = (dataclasses.replace(o, op=names.get(o.node, o.op)) for o in plan.operators)
    return dataclasses.replace(plan, operators=tuple(operators)) if names else plan


def _render(
    problem: Problem,
    plan: Plan,
    explanations: Sequence[explaining.Explanation],
    output: Output,
    devices: Devices,
    step: Optional[Section],
    limit_bytes: Optional[int],
) -> str:
    if output.form == "html":
        sections = [section for each in explanations for section in each.sections]
        before, after = output.command
        command = f"{before} {devices.option}", after
        return render_html(
            plan, sections, graph=problem.graph, command=command, step=step,
            limit_bytes=limit_bytes, serial_bytes=serial_memory(problem),
            with_prices=output.prices,
        )  # fmt: skip
    if output.form == "json":
        documents = [explanation.document for explanation in explanations]
        more = {"explanations": documents} if documents else {}
        return json.dumps({**problem.front_end.document(problem, plan), **more})
    if output.form == "pins":
        return render_rules(plan)
    if output.form != "text":
        return problem.front_end.code(problem, plan, output.form)
    if explanations:
        return "\n".join(explanation.to_text() for explanation in explanations)
    if output.layers:
        return render_layers(plan)
    if output.peak:
        return render_peak(plan, everything=output.everything)
    notes = problem.front_end.notes(problem, plan, everything=output.everything)
    return "\n".join([render_text(plan, everything=output.everything), *filter(None, [notes])])
