"""``tofu plan``: from the options of the command line to what is printed and saved."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import click

from tofu.config import Config
from tofu.errors import ConfigError
from tofu.plan import Plan, Problem, SearchOptions, plan_graph, render_html, render_text, repeats
from tofu.plan import file as plan_file
from tofu.plan.plan import undescribed_text
from tofu.plan.render import explain as explaining

__all__ = ["FORMATS", "Output", "default_fetch", "plan_and_print"]

FORMATS = ("text", "json", "html")


@dataclasses.dataclass(frozen=True)
class Output:
    """What to print and keep of a plan.

    Attributes:
        form: one of FORMATS.
        everything: whether text has a line for every tensor and operator.
        explain: names of tensors and operators to explain.
        save: file to keep the plan in, or None.
        memory: "exact" (what MXNet will allocate) or "estimate" (quick).
        fetch: one of config.FETCHES.
    """

    form: str
    everything: bool = False
    explain: Sequence[str] = ()
    save: Optional[Path] = None
    memory: str = "estimate"
    fetch: str = "multifetch"


def plan_and_print(problem: Problem, options: SearchOptions, output: Output) -> None:
    """Plan `problem`, save the plan where asked to, and print it on standard output.

    Raises:
        ConfigError: a name to explain is none of the graph's, or the file cannot be written.
        PlanError: an option does not fit the graph.
    """
    _check_names(problem, output.explain)
    plan = plan_graph(problem, options, dump_dir=Config.from_environment().dump_dir)
    unknown = problem.undescribed()
    if unknown:
        click.echo(f"tofu: {undescribed_text(problem.name, unknown, plan)}", err=True)
    explanations = [explaining.explain(problem, plan, name) for name in output.explain]
    if output.save is not None:
        plan_file.save(output.save, plan)
    if output.memory == "exact":
        plan = _with_memory(problem, plan, output.fetch)
    click.echo(_render(plan, explanations, output), nl=False)


def default_fetch() -> str:
    """How a run fetches where nobody asks: MultiFetch on CPUs, MXNet's copies on GPUs."""
    import mxnet as mx

    return "plain" if mx.context.num_gpus() else "multifetch"


def _with_memory(problem: Problem, plan: Plan, fetch: str) -> Plan:
    """The plan with what MXNet will allocate for it, and what workers really fetch."""
    import mxnet as mx

    from tofu import _core
    from tofu.mx.memory.step import step_memory
    from tofu.mx.run import extension

    plan_json = plan.to_json()
    joint = extension.runs_parts() and repeats(json.loads(problem.graph), problem.table)
    text, graphs = _core.step_graphs(
        problem.graph, problem.table, plan_json, fetch=fetch, joint=joint
    )
    divided = json.loads(text)
    kind = mx.gpu if mx.context.num_gpus() else mx.cpu
    found = step_memory(divided, graphs, [kind(worker) for worker in range(plan.workers)])
    document = {
        **json.loads(plan_json),
        "bytes_per_worker": {**found.kinds, "total": sum(found.kinds.values())},
        "memory": "exact",
        "fetch": fetch,
        "fetched_bytes": divided["fetched_bytes"],
        "shared_bytes": divided["shared_bytes"],
    }
    return Plan.from_json(json.dumps(document))


def _render(plan: Plan, found: Sequence[explaining.Explanation], output: Output) -> str:
    if output.form == "html":
        return render_html(plan, [section for each in found for section in each.sections])
    if output.form == "json":
        if not found:
            return plan.to_json()
        told = [explanation.document for explanation in found]
        return json.dumps({**json.loads(plan.to_json()), "explanations": told})
    if found:
        return "\n".join(explanation.to_text() for explanation in found)
    return render_text(plan, everything=output.everything)


def _check_names(problem: Problem, names: Sequence[str]) -> None:
    """Raise ConfigError for a name that no node of the graph has."""
    if not names:
        return
    known = {node["name"] for node in json.loads(problem.graph)["nodes"]}
    for name in names:
        if re.sub(r"\[\d+\]$", "", name) not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            raise ConfigError(
                f"--explain {name}: {problem.name} has no tensor or operator of that name"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
