"""``tofu compare``: searches one graph in several ways and shows the plans in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional

import click

from tofu.cli.model import open_model
from tofu.cli.mxnet_model import SymbolInputs
from tofu.cli.options import (
    Script,
    batch_size_option,
    count_option,
    describe_option,
    device_option,
    format_option,
    level_option,
    machine_option,
    meshes_option,
    optimizer_option,
    shape_option,
)
from tofu.config import ESTIMATE, EXACT, MODES, OBJECTIVES, parse_mode
from tofu.planner.comparison import Alternative, advice, compare
from tofu.planner.prediction import step_predictor
from tofu.planner.sweep import Measure
from tofu.plans import Plan, SearchOptions
from tofu.plans.plan import format_bytes, format_seconds
from tofu.tables import csv_table, html_page, table

__all__ = ["compare_command", "render"]

_USUAL = (2, 4, 8)
FORMATS = ("text", "json", "csv", "html")
_FIELDS = (
    "workers", "mode", "replication", "bytes", "memory_bytes", "status", "lower_bound_bytes",
    "search_seconds", "step_seconds", "reason", "objective", "mesh",
)  # fmt: skip


@click.command(
    "compare", cls=Script, short_help="Compare search modes, replication and numbers of workers."
)
@meshes_option
@click.option(
    "--workers",
    metavar="K,K,...",
    help="Numbers of workers; a module is planned for every mesh of so many ranks.  "
    "[default: 2,4,8]",
)
@device_option
@level_option
@describe_option
@click.option(
    "--search",
    "modes",
    default=",".join(MODES),
    metavar="MODE,MODE,...",
    help="Search modes. Default: all.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds for each search.  [default: 60]",
)
@count_option(ESTIMATE)
@click.option(
    "--objective",
    "objectives",
    type=click.Choice((*OBJECTIVES, "both")),
    help="What each search minimises: the bytes that workers fetch, the predicted time of a step "
    "on --machine, or one after the other. Default: $TOFU_OBJECTIVE, else bytes.",
)
@machine_option
@shape_option
@optimizer_option
@batch_size_option
@format_option(
    FORMATS, "A table with advice, a JSON document, comma-separated values, or a web page."
)
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2|config.json")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def compare_command(
    meshes: tuple[str, ...],
    workers: Optional[str],
    modes: str,
    time_limit: Optional[float],
    count: str,
    objectives: Optional[str],
    shapes: tuple[str, ...],
    optimizer: Optional[str],
    batch_size: Optional[int],
    form: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Search the plan of a training graph in every mode, with and without replication.

    With --objective both also for bytes and for time.

    The graph of a SCRIPT is that of a run with the largest number of workers. MODULE:FUNCTION
    returns a module of PyTorch and its inputs, FILE.pt2 is a program that torch.export saved.
    """
    chosen = [parse_mode(text.strip(), "--search") for text in modes.split(",")]
    opened = open_model(
        target, args, workers=workers, meshes=meshes, usual=_USUAL, symbol=SymbolInputs(shapes),
        optimizer=optimizer, batch_size=batch_size,
        settings={"objective": "time" if objectives == "both" else objectives, **settings},
    )  # fmt: skip
    model, devices, config = opened.model, opened.devices, opened.config
    most = max(each.workers for each in devices)
    predict = step_predictor(config.machine, most, config.fetch) if config.machine else None
    alternatives = list(
        compare(
            model.problem,
            devices=devices,
            modes=chosen,
            objectives=("bytes", "time") if objectives == "both" else (config.objective,),
            options=SearchOptions(machine=config.machine, time_limit_s=time_limit),
            measure=Measure(count == EXACT, predict),
        )
    )
    click.echo(render(target, alternatives, form), nl=False)


# --- printing -----------------------------------------------------------------------------------


def render(target: str, alternatives: Sequence[Alternative], form: str) -> str:
    """The comparison in one of FORMATS."""
    records = [_record(each) for each in alternatives]
    notes = advice(alternatives)
    if form == "json":
        document = {"format": "tofu-comparison", "version": 1, "target": target}
        return json.dumps({**document, "plans": records, "advice": notes}, indent=1) + "\n"
    if form == "csv":
        return csv_table(_FIELDS, records)
    is_timed = any(each.step_seconds is not None for each in alternatives)
    has_objectives = any(each.objective != OBJECTIVES[0] for each in alternatives)
    header = ("workers", "search", "replication", "communicated", "a worker holds", "proven",
              "search time", *(["a step takes"] if is_timed else []),
              *(["plan for"] if has_objectives else []))  # fmt: skip
    rows = [
        (
            *_row(alternative),
            *([_step_text(alternative)] if is_timed else []),
            *([alternative.objective] if has_objectives else []),
        )
        for alternative in alternatives
    ]
    numbers = (0, 3, 4, 6, 7)[: 5 if is_timed else 4]
    if form == "html":
        return html_page(f"Plans of {target}", header, rows, right=numbers, lead=notes)
    lines = table(header, rows, right=numbers)
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _record(alternative: Alternative) -> dict[str, Any]:
    plan = alternative.plan
    return {
        "workers": alternative.workers,
        "mode": alternative.mode,
        "replication": alternative.replication,
        "bytes": plan.total_bytes if plan else None,
        "memory_bytes": alternative.memory_bytes if plan else None,
        "status": plan.status if plan else "none",
        "lower_bound_bytes": plan.lower_bound_bytes if plan else None,
        "search_seconds": plan.search_seconds if plan else None,
        "step_seconds": alternative.step_seconds,
        "reason": alternative.reason,
        "objective": alternative.objective,
        "mesh": list(alternative.mesh) or None,
    }


def _row(alternative: Alternative) -> tuple[str, ...]:
    replication = "allowed" if alternative.replication else "no"
    if alternative.plan is None:
        return (
            alternative.devices,
            alternative.mode,
            replication,
            "no plan",
            "",
            alternative.reason,
            "",
        )
    return (
        alternative.devices,
        alternative.mode,
        replication,
        format_bytes(alternative.plan.total_bytes),
        format_bytes(alternative.memory_bytes),
        _proven(alternative.plan),
        f"{alternative.plan.search_seconds:.3f} s",
    )


def _step_text(each: Alternative) -> str:
    return "" if each.step_seconds is None else format_seconds(each.step_seconds)


def _proven(plan: Plan) -> str:
    """The words "optimal", for a plan that is so in its mode, or the bound."""
    if plan.objective == "time" and plan.predicted is not None:
        bound_ns = plan.predicted["lower_bound_ns"]
        is_optimal = plan.predicted["step_ns"] <= bound_ns
        return "optimal" if is_optimal else f"at least {format_seconds(bound_ns / 1e9)}"
    if plan.total_bytes <= plan.lower_bound_bytes:
        return "optimal"
    return f"at least {format_bytes(plan.lower_bound_bytes)}"
