"""``tofu estimate``: how much memory a training step needs over several numbers of workers."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

import click

from tofu.cli.estimate_torch import estimate_module
from tofu.cli.model import check_options
from tofu.cli.mxnet_model import MXNetModel, check_target
from tofu.cli.options import (
    Script,
    batch_size_option,
    describe_option,
    device_option,
    format_option,
    is_module,
    log_option,
    shape_option,
    switch_on,
    tell_misplaced,
)
from tofu.config import parse_bytes, parse_workers
from tofu.errors import ConfigError
from tofu.planner.estimate import (
    KINDS,
    OPTIMIZERS,
    Estimate,
    batch_of,
    estimate,
    extrapolated_batch,
    fewest,
    largest_batches,
)
from tofu.planner.model import Devices
from tofu.plans import progress
from tofu.plans.plan import format_bytes
from tofu.plans.render.peak import held_groups, peak_text
from tofu.plans.render.text import unequal_sizes
from tofu.tables import csv_table, line

__all__ = ["estimate_command"]

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
    show_default="that of a script's Trainer, else sgd",
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
@format_option(("text", "json", "csv"), "Text, the JSON document, or comma-separated values.")
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def estimate_command(
    workers: Optional[str],
    meshes: tuple[str, ...],
    gpu_memory: Optional[str],
    memory: str,
    optimizer: Optional[str],
    recompute: str,
    shapes: tuple[str, ...],
    batch_size: Optional[int],
    form: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
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
        if form == "csv":
            raise ConfigError("tofu estimate --format csv: not for PyTorch; expected text or json")
        chosen = optimizer or "sgd"
        if not estimate_module(target, meshes, optimizer=chosen, limit=limit, form=form):
            raise SystemExit(1)
        return
    check_target("tofu estimate", target, batch_size, shapes)
    tell_misplaced(click.get_current_context(), target, args)
    os.environ.pop("TOFU_PLAN", None)
    switch_on(workers=str(max(counts)), **settings)
    opened = MXNetModel(
        target, args, shapes=shapes, batch_size=batch_size, recomputes=recompute == "all"
    )
    exact = memory == "exact"
    estimates = estimate(lambda k: opened.problem(Devices(k)), workers=counts, exact=exact)
    chosen = optimizer or _holding(opened.states())
    report = _Printer(form).print(Report(target, [], chosen, exact, limit), estimates, opened)
    if limit is not None and fewest(report.found, chosen, limit) is None:
        raise SystemExit(1)


def _holding(states: Optional[int]) -> str:
    """The optimizer that keeps at least as many tensors for a parameter, if one does."""
    enough = [name for name, count in OPTIMIZERS.items() if count >= (states or 0)]
    return enough[0] if enough else list(OPTIMIZERS)[-1]


@dataclasses.dataclass(frozen=True)
class Report:
    """Options for printing an estimate.

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


def _batches(opened: MXNetModel, report: Report) -> Iterator[tuple[int, int]]:
    """Yield the largest batch that fits, for each number of workers that is of use."""
    limit = report.limit or 0
    batch = batch_of(opened.problem(Devices(report.found[0].workers)))
    useful = [each for each in report.found if batch and each.plan is not None and not each.reason]
    if not opened.scales:
        for each in useful:
            yield each.workers, extrapolated_batch(each, batch, report.optimizer, limit)
        return
    largest = largest_batches(
        lambda workers, size: opened.problem(Devices(workers), size),
        useful,
        batch,
        optimizer=report.optimizer,
        limit_bytes=limit,
        exact=report.exact,
    )
    yield from ((workers, fit.batch) for workers, fit in largest)


# --- printing -----------------------------------------------------------------------------------


class _Printer:
    """Prints a report: as text, each line when it is known; as JSON, at the end."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._is_text = form == "text"

    def print(self, report: Report, estimates: Iterable[Estimate], opened: MXNetModel) -> Report:
        """Print the estimates, then the largest batches if there is a limit.

        Raises ConfigError if there is no plan for any number of workers.
        """
        printed: list[Estimate] = []
        self._tell(_HEADER)
        for each in estimates:
            printed.append(each)
            self._tell(_row(each, report.limit))
        if not any(each.plan for each in printed):
            raise ConfigError(f"tofu estimate {report.target}: no plan ({printed[0].reason})")
        report = dataclasses.replace(report, found=printed)
        if report.limit is not None:
            report = self._print_batches(report, opened)
        self._tell("", *_advice(report))
        if self._form == "json":
            click.echo(json.dumps(_document(report), indent=1))
        if self._form == "csv":
            records = [_flat(each) for each in _document(report)["estimates"]]
            click.echo(csv_table(list(records[0]), records), nl=False)
        return report

    def _print_batches(self, report: Report, opened: MXNetModel) -> Report:
        batches: dict[int, int] = {}
        about = "about " * (not opened.scales)
        for workers, batch in _batches(opened, report):
            if not batches:
                self._tell("", _BATCH_HEADER)
            batches[workers] = batch
            self._tell(_batch_row(workers, f"{about}{batch}" if batch else "none"))
        return dataclasses.replace(report, batches=batches, about=bool(about))

    def _tell(self, *lines: str) -> None:
        for text in lines if self._is_text else ():
            progress.clear()
            click.echo(text)


def _document(report: Report) -> dict[str, Any]:
    """The report as JSON (docs/formats.md)."""
    return {
        "format": "tofu-estimate",
        "version": 1,
        "target": report.target,
        "memory": "exact" if report.exact else "estimate",
        "optimizer": report.optimizer,
        "limit_bytes": report.limit,
        "batches_extrapolated": report.about,
        "estimates": [_record(each, report) for each in report.found],
    }


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row for CSV: bytes by kind and by optimizer are columns."""
    kinds = record["bytes_per_worker"] or {}
    totals = record["total_bytes"] or {}
    return {
        "workers": record["workers"],
        **{f"{kind}_bytes": kinds.get(kind) for kind in KINDS},
        **{f"total_bytes_{name}": totals.get(name) for name in OPTIMIZERS},
        "communicated_bytes": record["communicated_bytes"],
        "largest_batch": record["largest_batch"],
        "of_no_use": record["of_no_use"],
    }


def _record(each: Estimate, report: Report) -> dict[str, Any]:
    return {
        "workers": each.workers,
        "bytes_per_worker": dict(each.kinds),
        "total_bytes": {name: each.held_bytes(name) for name in OPTIMIZERS} if each.plan else None,
        "communicated_bytes": each.plan.total_bytes if each.plan else None,
        "largest_batch": report.batches.get(each.workers),
        "of_no_use": each.reason,
    }


# Wide enough for every number of bytes: a row is printed before those after it are known.
_BYTES_WIDTH = len("1023.9 MiB")
_COLUMNS = {
    "workers": 0,
    **{kind.replace("_", " "): _BYTES_WIDTH for kind in KINDS},
    **{f"with {optimizer}": _BYTES_WIDTH + len(" +") for optimizer in OPTIMIZERS},
}
_WIDTHS = [max(len(name), width) for name, width in _COLUMNS.items()]
_RIGHT = range(len(_WIDTHS))
_HEADER = line(list(_COLUMNS), _WIDTHS, right=_RIGHT)
_BATCH_COLUMNS = ("workers", "largest batch")
_BATCH_HEADER = "  ".join(_BATCH_COLUMNS)


def _row(each: Estimate, limit: Optional[int]) -> str:
    if each.plan is None:
        cells, remark = [str(each.workers), *[""] * (len(_COLUMNS) - 1)], f"no plan: {each.reason}"
    else:
        cells = [str(each.workers), *map(format_bytes, each.kinds.values())]
        totals = map(each.held_bytes, OPTIMIZERS)
        cells += [format_bytes(held) + _fits(held, limit) for held in totals]
        remark = f"no use: {each.reason}" if each.reason else ""
    return line([*cells, remark], [*_WIDTHS, 0], right=_RIGHT)


def _batch_row(workers: int, batch: str) -> str:
    return line([str(workers), batch], list(map(len, _BATCH_COLUMNS)), right=(0, 1))


def _fits(size: int, limit: Optional[int]) -> str:
    if limit is None:
        return ""
    return " +" if size <= limit else " -"


def _advice(report: Report) -> list[str]:
    """Explains the table in words."""
    lines = ["Memory of the fullest worker" + ("." if report.exact else ", an estimate.")]
    lines[0] += " State of sgd_mom: as of NAG and RMSProp; of adam: as of LAMB."
    lines += _unequal(report.found)
    if report.limit is None:
        return lines
    size = format_bytes(report.limit)
    lines.append(f"+ fits in {size}, - does not.")
    best = fewest(report.found, report.optimizer, report.limit)
    if best is None:
        return lines + _nothing_fits(report, size)
    if best.workers == 1:
        return [*lines, f"It fits in {size} with {report.optimizer} without tofu."]
    held = format_bytes(best.held_bytes(report.optimizer))
    price = format_bytes(best.plan.total_bytes if best.plan else 0)
    return [
        *lines,
        f"{best.workers} workers are the fewest that fit with {report.optimizer}: {held} on each, "
        f"{price} communicated in a step.",
    ]


def _unequal(estimates: Sequence[Estimate]) -> list[str]:
    """A line with an example of tiles that are not equal, if some are not."""
    for each in estimates:
        plan = each.plan
        if plan is None:
            continue
        for tensor in sorted(plan.tensors, key=lambda tensor: -tensor.bytes):
            sizes = unequal_sizes(tensor, plan.parts)
            if sizes:
                return [
                    f"Not all tiles are equal: over {each.workers} workers those of {tensor.label} "
                    f"have {sizes}."
                ]
    return []


def _nothing_fits(report: Report, size: str) -> list[str]:
    """Lines on the least memory that would do, the tensors that take it, and possible changes."""
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
    """Suggests changes that would make the graph fit."""
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
