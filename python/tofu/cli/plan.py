"""``tofu plan``: turns command-line options into a plan, prints it and saves it."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import click

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.cli.inputs import SymbolRequest, from_model, from_script, from_symbol, names_model
from tofu.cli.options import (
    Script,
    allow_replication_option,
    check_script,
    describe_option,
    device_option,
    fetch_option,
    log_option,
    pin_file_option,
    pin_option,
    search_option,
    set_fetch,
    set_search,
    switch_on,
    workers_option,
)
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.plan import Plan, Problem, SearchOptions, plan_graph, render_html, render_text
from tofu.plan import file as plan_file
from tofu.plan.plan import undescribed_text
from tofu.plan.render import explain as explaining

__all__ = ["plan"]

FORMATS = ("text", "json", "html")


@click.command(cls=Script)
@workers_option
@device_option
@log_option
@describe_option
@search_option
@pin_option
@pin_file_option
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop after this many seconds and take the best plan so far.  [default: 60]",
)
@allow_replication_option
@click.option(
    "--bound",
    is_flag=True,
    help="Spend the rest of the time limit on a better lower bound, and maybe find a better plan.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=D,D,...",
    help="Shape of an input of a symbol file; may be repeated.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="[NAME=]DTYPE",
    help="Data type of the inputs of a symbol file, or of one of them. Default: float32.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME",
    help="Another input of a symbol file, with an inferred shape. "
    "Names that end in 'label' are inputs anyway; all others are parameters.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["none", "sgd", "sgd_mom", "adam"]),
    default="sgd",
    show_default=True,
    help="Update of the parameters of a symbol file or model to plan for.",
)
@click.option("--predict", is_flag=True, help="Plan a symbol file's forward pass only.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Batch size of a model. Default: the model's own.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Tables, the JSON document of docs/formats.md, or a web page.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Text format: show every tensor and operator."
)
@click.option(
    "--explain",
    multiple=True,
    metavar="TENSOR|OP",
    help="Print what each way to cut it costs, and why the plan chose its own; may be repeated.",
)
@click.option("--save", metavar="PLAN", help="Save the plan to a file, for tofu run --plan.")
@click.option(
    "--memory",
    type=click.Choice(("exact", "estimate")),
    default="exact",
    show_default=True,
    help="A worker's bytes as MXNet will allocate them, or a quick estimate.",
)
@fetch_option
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(
    workers: Optional[str],
    device: Optional[str],
    log: Optional[str],
    search: Optional[str],
    pins: tuple[str, ...],
    pin_file: Optional[str],
    time_limit: Optional[float],
    allow_replication: bool,
    bound: bool,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    inputs: tuple[str, ...],
    optimizer: str,
    predict: bool,
    batch_size: Optional[int],
    form: str,
    everything: bool,
    explain: tuple[str, ...],
    save: Optional[str],
    memory: str,
    fetch: Optional[str],
    target: str,
    args: tuple[str, ...],
) -> None:
    """Print how every tensor and operator would be partitioned, and what it costs.

    SCRIPT is run until its first partitioned training call. SYMBOL.json is a symbol
    that MXNet saved; give the shapes of its inputs. MODEL is a name that docs/models.md
    lists, such as wresnet-152-10.
    """
    update = None if optimizer == "none" else optimizer
    is_model = names_model(target)
    is_symbol = target.endswith(".json")
    _check_target(target, args, is_model, batch_size, bool(shapes or dtypes or inputs or predict))
    set_search(search, pins, pin_file, allow_replication)
    os.environ.pop("TOFU_PLAN", None)  # always search: ignore a saved plan
    set_fetch(fetch)
    config = switch_on(workers, device, log)
    if is_model:
        problem = from_model(target, batch_size=batch_size, optimizer=update)
    elif is_symbol:
        request = SymbolRequest.parse(
            Path(target), shapes=shapes, dtypes=dtypes, inputs=inputs, optimizer=update,
            predict=predict,
        )  # fmt: skip
        problem = from_symbol(request)
    else:
        problem = from_script(Path(target), args)
    options = SearchOptions(config.search, time_limit, config.pins, config.replication, bound)
    output = Output(
        form, everything, explain, Path(save) if save else None, memory,
        config.fetch or default_fetch(),
    )  # fmt: skip
    plan_and_print(problem, options, output)


def _check_target(
    target: str, args: tuple[str, ...], is_model: bool, batch_size: Optional[int], shaped: bool
) -> None:
    """Raise ConfigError for a missing file, and for options of another kind of target."""
    is_symbol = target.endswith(".json")
    if not is_model:
        check_script(target)
        if batch_size is not None:
            raise ConfigError(f"tofu plan {target}: --batch-size is only for a model's name")
    if args and (is_model or is_symbol):
        raise ConfigError(f"tofu plan: {args[0]!r} after {target}: expected options only")
    if shaped and not is_symbol:
        raise ConfigError(
            f"tofu plan {target}: --shape, --dtype, --input and --predict are only for a symbol "
            f"file (SYMBOL.json); a {'model' if is_model else 'script'} has its own shapes"
        )


# --- printing -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Output:
    """How to print and save a plan.

    Attributes:
        form: one of FORMATS.
        everything: whether text has a line for every tensor and operator.
        explain: names of tensors and operators to explain.
        save: file to save the plan to, or None.
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
    """Plan `problem`, save the plan if asked, and print it on standard output.

    Raises:
        ConfigError: the graph lacks a name to explain, or the file cannot be written.
        PlanError: an option does not fit the graph.
    """
    _check_names(problem, output.explain)
    plan = plan_graph(problem, options, dump_dir=Config.from_environment().dump_dir)
    if problem.table.undescribed:
        unknown = strategy_table(problem.graph)[1]  # which says why, too
        cost = sum(op.bytes for op in plan.operators if op.op in problem.table.undescribed)
        click.echo(f"tofu: {undescribed_text(problem.name, unknown, cost)}", err=True)
    explanations = [explaining.explain(problem, plan, name) for name in output.explain]
    if output.save is not None:
        plan_file.save(output.save, plan)
    if output.memory == "exact":
        plan = _with_memory(problem, plan, output.fetch)
    click.echo(_render(plan, explanations, output), nl=False)


def default_fetch() -> str:
    """The default kind of fetch: MultiFetch on CPUs, MXNet's copies on GPUs."""
    import mxnet as mx

    return "plain" if mx.context.num_gpus() else "multifetch"


def _with_memory(problem: Problem, plan: Plan, fetch: str) -> Plan:
    """Add the memory that MXNet will allocate and the bytes that workers really fetch."""
    import mxnet as mx

    from tofu.mx.memory.step import step_memory
    from tofu.mx.run import extension

    document = plan.to_json()
    partitioned = _core.partition(_core.Plan(document, problem.table), fetch=fetch)
    step = _core.schedule(partitioned, joint=extension.runs_parts())
    kind = mx.gpu if mx.context.num_gpus() else mx.cpu
    found = step_memory(step, [kind(worker) for worker in range(plan.workers)])
    exact = {
        **json.loads(document),
        "bytes_per_worker": {**found.kinds, "total": sum(found.kinds.values())},
        "memory": "exact",
        "fetch": fetch,
        "fetched_bytes": partitioned.fetched_bytes,
        "shared_bytes": partitioned.shared_bytes,
    }
    return Plan.from_json(json.dumps(exact))


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
    known = {node.name for node in problem.graph.nodes}
    for name in names:
        if re.sub(r"\[\d+\]$", "", name) not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            raise ConfigError(
                f"--explain {name}: {problem.name} has no tensor or operator of that name"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
