"""``tofu estimate``: how much memory a training step needs over several numbers of workers."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import click

from tofu.cli.estimate_torch import estimate_module
from tofu.cli.options import (
    Script,
    batch_size_option,
    describe_option,
    device_option,
    log_option,
    shape_option,
    switch_on,
    tell_misplaced,
)
from tofu.cli.plan_torch import check_options, is_module
from tofu.cli.targets import Target, check_target
from tofu.config import parse_bytes, parse_workers
from tofu.errors import ConfigError
from tofu.planner.estimate import (
    OPTIMIZERS,
    Estimate,
    batch_of,
    estimate,
    extrapolated_batch,
    fewest,
    largest_batch,
)
from tofu.plans.plan import format_bytes
from tofu.plans.render.peak import held_groups, peak_text
from tofu.tables import table

__all__ = ["estimate_command", "render"]

_MOST_WORKERS = 16
_HELD_SHOWN = 3
_NOT_OF_MODULES = ("workers", "memory", "recompute", "device", "shapes", "batch_size", "args")


@click.command(
    "estimate", cls=Script, short_help="Estimate memory over several numbers of workers."
)
@click.option(
    "--workers",
    metavar="K,K,...",
    help=f"Numbers of workers.  [default: all from 1 to {_MOST_WORKERS}]",
)
@click.option(
    "--mesh",
    "meshes",
    multiple=True,
    metavar="N,N,...",
    help="The sizes of a mesh of devices, for a module of PyTorch; may be repeated.",
)
@click.option(
    "--gpu-memory",
    metavar="SIZE",
    help="What a worker can hold, such as 12GiB: print which numbers of workers fit, and the "
    "largest batch for each.",
)
@click.option(
    "--memory",
    type=click.Choice(("exact", "estimate")),
    default="exact",
    show_default=True,
    help="A worker's bytes as MXNet will allocate them, or a quick estimate.",
)
@click.option(
    "--optimizer",
    type=click.Choice(tuple(OPTIMIZERS)),
    default="sgd",
    show_default=True,
    help="The one that has to fit.",
)
@click.option(
    "--recompute", type=click.Choice(("none", "all")), default="none", show_default=True,
    help="Whether the backward pass computes activations again instead of keeping them.",
)  # fmt: skip
@device_option
@log_option
@describe_option
@shape_option
@batch_size_option
@click.option(
    "--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True
)
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def estimate_command(
    workers: Optional[str],
    meshes: tuple[str, ...],
    gpu_memory: Optional[str],
    memory: str,
    optimizer: str,
    recompute: str,
    device: Optional[str],
    log: Optional[str],
    shapes: tuple[str, ...],
    batch_size: Optional[int],
    form: str,
    target: str,
    args: tuple[str, ...],
) -> None:
    """Print the bytes that a training step needs, serially and on each worker.

    The exit status is 1 if nothing fits in --gpu-memory. Nothing is allocated: a SCRIPT ends at
    its first training call.
    """
    counts = list(range(1, _MOST_WORKERS + 1))
    if workers is not None:
        counts = [parse_workers(text, "--workers") for text in workers.split(",")]
    limit = None if gpu_memory is None else parse_bytes(gpu_memory, "--gpu-memory")
    if meshes or is_module(target):
        check_options(click.get_current_context(), _NOT_OF_MODULES)
        if not estimate_module(target, meshes, optimizer=optimizer, limit=limit, form=form):
            raise SystemExit(1)
        return
    check_target("tofu estimate", target, batch_size, shapes)
    tell_misplaced(click.get_current_context(), target, args)
    os.environ.pop("TOFU_PLAN", None)
    switch_on(str(max(counts)), device, log)
    opened = Target.open(target, args, shapes=shapes, batch_size=batch_size)
    opened = opened.recomputing() if recompute == "all" else opened
    exact = memory == "exact"
    found = list(estimate(lambda k: opened.problem(k, None), workers=counts, exact=exact))
    if not any(each.plan for each in found):
        raise ConfigError(f"tofu estimate {target}: no plan ({found[0].reason})")
    batch = batch_of(opened.problem(counts[0], None))
    report = Report(target, found, optimizer, exact, limit)
    if limit is not None and batch:
        report = dataclasses.replace(
            report, batches=_batches(opened, report, batch), about=not opened.scales
        )
    click.echo(render(report, form), nl=False)
    if limit is not None and fewest(found, optimizer, limit) is None:
        raise SystemExit(1)


@dataclasses.dataclass(frozen=True)
class Report:
    """What to print.

    Attributes:
        target: what was estimated.
        found: an estimate for each number of workers.
        optimizer: the one that has to fit.
        exact: whether bytes are what MXNet will allocate.
        limit: what a worker can hold, in bytes; None if there is no limit.
        batches: the largest batch that fits, by number of workers; 0: none.
        about: whether batches are extrapolated.
    """

    target: str
    found: Sequence[Estimate]
    optimizer: str
    exact: bool
    limit: Optional[int] = None
    batches: Mapping[int, int] = dataclasses.field(default_factory=dict)
    about: bool = False


def _batches(opened: Target, report: Report, batch: int) -> dict[int, int]:
    """The largest batch that fits, for each number of workers that is of use."""
    limit = report.limit or 0
    found = {}
    for each in (each for each in report.found if each.plan and not each.reason):
        if opened.scales:
            fit = largest_batch(
                functools.partial(opened.problem, each.workers),
                each,
                batch,
                optimizer=report.optimizer,
                limit_bytes=limit,
                exact=report.exact,
            )
            found[each.workers] = fit.batch
        else:
            found[each.workers] = extrapolated_batch(each, batch, report.optimizer, limit)
    return found


# --- printing -----------------------------------------------------------------------------------


def render(report: Report, form: str) -> str:
    """The report as text, or as JSON (docs/formats.md)."""
    if form == "json":
        document = {
            "format": "tofu-estimate",
            "version": 1,
            "target": report.target,
            "memory": "exact" if report.exact else "estimate",
            "optimizer": report.optimizer,
            "limit_bytes": report.limit,
            "batches_extrapolated": report.about,
            "estimates": [_record(each, report) for each in report.found],
        }
        return json.dumps(document, indent=1) + "\n"
    kinds = list(next(each for each in report.found if each.plan).kinds)
    header = ["workers", *(kind.replace("_", " ") for kind in kinds)]
    header += [f"with {optimizer}" for optimizer in OPTIMIZERS]
    header += ["largest batch"] if report.batches else []
    rows = [_row(each, kinds, report) for each in report.found]
    right = range(len(header))
    lines = table([*header, ""], rows, right=right)
    lines += ["", *_advice(report)]
    return "\n".join(lines) + "\n"


def _record(each: Estimate, report: Report) -> dict[str, Any]:
    return {
        "workers": each.workers,
        "bytes_per_worker": dict(each.kinds),
        "total_bytes": {name: each.held_bytes(name) for name in OPTIMIZERS} if each.plan else None,
        "communicated_bytes": each.plan.total_bytes if each.plan else None,
        "largest_batch": report.batches.get(each.workers),
        "of_no_use": each.reason,
    }


def _row(each: Estimate, kinds: Sequence[str], report: Report) -> list[str]:
    if each.plan is None:
        empty = [""] * (len(kinds) + len(OPTIMIZERS) + bool(report.batches))
        return [str(each.workers), *empty, f"no plan: {each.reason}"]
    cells = [str(each.workers), *(format_bytes(each.kinds.get(kind, 0)) for kind in kinds)]
    for optimizer in OPTIMIZERS:
        held = each.held_bytes(optimizer)
        cells.append(format_bytes(held) + _fits(held, report.limit))
    if report.batches:
        batch = report.batches.get(each.workers)
        about = "about " if report.about and batch else ""
        cells.append("" if batch is None else f"{about}{batch}" if batch else "none")
    return [*cells, f"no use: {each.reason}" if each.reason else ""]


def _fits(held: int, limit: Optional[int]) -> str:
    if limit is None:
        return ""
    return " +" if held <= limit else " -"


def _advice(report: Report) -> list[str]:
    """What the table means, in words."""
    lines = ["Memory of the fullest worker" + ("." if report.exact else ", an estimate.")]
    lines[0] += " State of sgd_mom: as of NAG and RMSProp; of adam: as of LAMB."
    if report.limit is None:
        return lines
    size = format_bytes(report.limit)
    lines.append(f"+ fits in {size}, - does not.")
    best = fewest(report.found, report.optimizer, report.limit)
    if best is None:
        return lines + _nothing_fits(report, size)
    if best.workers == 1:
        return [*lines, f"It fits in {size} with {report.optimizer} without tofu."]
    return [*lines, f"{best.workers} workers is the fewest that fit with {report.optimizer}."]


def _nothing_fits(report: Report, size: str) -> list[str]:
    """The least memory that would do, what takes it, and what could be changed."""
    planned = [each for each in report.found if each.plan]
    least = min(planned, key=lambda each: each.held_bytes(report.optimizer))
    held = format_bytes(least.held_bytes(report.optimizer))
    over = f"{least.workers} worker{'s' * (least.workers > 1)}"
    lines = [f"Nothing fits in {size} with {report.optimizer}: the least is {held}, over {over}."]
    plan = least.plan
    if plan is not None and plan.peak is not None:
        lines += peak_text(plan)
        groups = held_groups(plan)[:_HELD_SHOWN]
        named = [
            f"{g.name}{f' (x {len(g)})' * (len(g) > 1)}: {format_bytes(g.bytes)}" for g in groups
        ]
        lines += [f"largest then: {'; '.join(named)}"] if named else []
    return [*lines, f"What would help: {'; '.join(_changes(report, least))}."]


def _changes(report: Report, least: Estimate) -> list[str]:
    """What could be changed for the graph to fit."""
    fitting = {count: batch for count, batch in report.batches.items() if batch}
    lines = []
    if fitting:
        count, batch = max(fitting.items(), key=lambda item: item[1])
        about = "about " if report.about else ""
        lines.append(f"a batch of {about}{batch} over {count} worker{'s' * (count > 1)}")
    others = [name for name, states in OPTIMIZERS.items() if states < OPTIMIZERS[report.optimizer]]
    lighter = [name for name in others if least.held_bytes(name) <= (report.limit or 0)]
    lines += [f"{lighter[-1]} instead of {report.optimizer}"] if lighter else []
    return [*lines, f"more than {max(each.workers for each in report.found)} workers"]
