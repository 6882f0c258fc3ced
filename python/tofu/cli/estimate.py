"""``tofu estimate``: how much memory a training step needs over several numbers of workers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import click

from tofu import _core
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
    meshes_option,
    shape_option,
)
from tofu.cli.reports.estimate_report import Report, advice, batch_text
from tofu.config import ESTIMATE, EXACT, parse_bytes
from tofu.errors import ConfigError
from tofu.planner.estimate import (
    KINDS,
    OPTIMIZERS,
    Estimate,
    extrapolated_batch,
    largest_batches,
)
from tofu.planner.model import Devices, Model
from tofu.planner.recomputation import recomputing
from tofu.plans import Problem, progress
from tofu.plans.machine_files import read_machine
from tofu.plans.plan import format_bytes
from tofu.plans.price_file import read_price
from tofu.tables import csv_table, line

__all__ = ["estimate_command"]

_USUAL = range(1, 17)
_COUNTED = "sgd_mom"  # whose graph has a tensor of state for each parameter


@click.command(
    "estimate", cls=Script, short_help="Estimate memory over several numbers of workers."
)
@click.option(
    "--workers",
    metavar="K,K,...",
    help="Numbers of workers; a module is planned for every mesh of so many ranks.  [default: all "
    f"from 1 to {_USUAL[-1]}, of a module the powers of two]",
)
@meshes_option
@click.option(
    "--memory",
    "--gpu-memory",
    "memory",
    metavar="SIZE",
    help="What a worker can hold, such as 12GiB: print which numbers of workers fit, and the "
    "largest batch for each.",
)
@click.option(
    "--devices", metavar="FILE|NAME,...",
    help="Plan for the devices of a machine, such as 8xh100, or of each of several: their memory "
    "is the limit, and the time of a step is predicted. A machine file, or a name of "
    "docs/simulation.md.",
)  # fmt: skip
@click.option("--machine", metavar="FILE|NAME", help="The same for one machine.")
@click.option(
    "--price", metavar="FILE", help="What an hour of the devices costs (docs/formats.md): print "
    "the money of a step.",
)  # fmt: skip
@count_option(EXACT)
@click.option(
    "--optimizer",
    "fitting",
    type=click.Choice(tuple(OPTIMIZERS)),
    help="The one that has to fit. Default: that of a script's Trainer, adam for a module, else "
    "sgd.",
)
@click.option(
    "--recompute", type=click.Choice(("none", "all")), default="none", show_default=True,
    help="Whether the backward pass computes activations again instead of keeping them.",
)  # fmt: skip
@click.option(
    "--lora",
    metavar="RANK|FILE",
    help="Of a config.json: only adapters of this rank train, beside all linear layers, or those "
    "that peft's adapter_config.json names.",
)
@click.option(
    "--masters",
    is_flag=True,
    help="The optimizer keeps a float32 copy of 16-bit parameters, and its state in float32.",
)
@device_option
@level_option
@describe_option
@shape_option
@batch_size_option
@format_option(("text", "json", "csv"), "Text, the JSON document, or comma-separated values.")
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2|config.json")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def estimate_command(
    workers: Optional[str],
    meshes: tuple[str, ...],
    memory: Optional[str],
    devices: Optional[str],
    machine: Optional[str],
    price: Optional[str],
    count: str,
    fitting: Optional[str],
    recompute: str,
    lora: Optional[str],
    masters: bool,
    shapes: tuple[str, ...],
    batch_size: Optional[int],
    form: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Print the bytes that a training step needs, serially and on each worker.

    The exit status is 1 if nothing fits in --memory. Nothing is allocated: a SCRIPT ends at
    its first training call.
    """
    limit = None if memory is None else parse_bytes(memory, "--memory")
    machines = _machines(devices, machine)
    if price is not None and not machines:
        raise ConfigError("--price: the time of a step is not known; give --devices, too")
    counts = [described.devices for described in machines.values()]
    opened = open_model(
        target, args, workers=workers, meshes=["1", *meshes] if meshes else [],
        usual=range(1, max(counts) + 1) if counts else _USUAL,
        settings=settings, symbol=SymbolInputs(shapes), optimizer=_COUNTED, batch_size=batch_size,
        lora=lora,
    )  # fmt: skip
    model = opened.model
    optimizer = fitting or _holding(model)
    report = Report(
        target, [], optimizer, count == EXACT, limit, recomputes=recompute == "all",
        masters=masters,
    )  # fmt: skip
    if not machines:
        reports = [_Printer(form, opened.devices).print(report, model)]
    else:
        reports = []
        for name, described in machines.items():
            rows = [each for each in opened.devices if each.workers <= described.devices]
            of_machine = dataclasses.replace(
                report, limit=described.memory_bytes if limit is None else limit, machine=name,
                price=None if price is None else read_price(Path(price), name, "--price"),
            )  # fmt: skip
            if form == "text" and len(machines) > 1:
                click.echo(f"{chr(10) * bool(reports)}{name}:")
            reports.append(_Printer(form, rows or opened.devices).print(of_machine, model))
    _print_data(reports, form)
    if reports[0].limit is not None and not any(each.best() for each in reports):
        raise SystemExit(1)


def _machines(devices: Optional[str], machine: Optional[str]) -> dict[str, _core.Machine]:
    """The machines by their names, as given. Raises ConfigError."""
    if devices is not None and machine is not None:
        raise ConfigError("--devices and --machine: give one")
    if machine is not None:
        return {machine: read_machine(machine)}
    names = [] if devices is None else [each.strip() for each in devices.split(",")]
    return {name: read_machine(name, "--devices") for name in names}


def _print_data(reports: Sequence[Report], form: str) -> None:
    """Print the reports as JSON, several in a list, or as one table of CSV."""
    documents = [_document(each) for each in reports]
    if form == "json":
        click.echo(json.dumps(documents if len(documents) > 1 else documents[0], indent=1))
    if form == "csv":
        records = [
            {**({"machine": report.machine} if len(reports) > 1 else {}), **_flat(each)}
            for report, document in zip(reports, documents)
            for each in document["estimates"]
        ]
        click.echo(csv_table(list(records[0]), records), nl=False)


def _holding(model: Model) -> str:
    """The first optimizer that keeps as many tensors for a parameter as the target's own does."""
    states = model.states()
    if states is None:
        return model.usual_optimizer
    enough = [name for name, count in OPTIMIZERS.items() if count >= states]
    return enough[0] if enough else list(OPTIMIZERS)[-1]


def _batches(model: Model, report: Report) -> Iterator[tuple[Devices, int]]:
    """Yield the largest batch that fits, for each number of workers that is of use."""
    limit = report.limit or 0
    batch = model.batch_size(model.problem(report.found[0].devices))
    useful = [each for each in report.found if batch and each.plan is not None and not each.reason]
    if not model.scales:
        for each in useful:
            yield each.devices, extrapolated_batch(each, batch, report.optimizer, limit)
        return

    def problem_for(workers: int, size: int) -> Problem:
        problem = model.problem(Devices(workers), size)
        return recomputing(problem) if report.recomputes else problem

    largest = largest_batches(
        problem_for, useful, batch, optimizer=report.optimizer, limit_bytes=limit,
        exact=report.exact,
    )  # fmt: skip
    yield from ((Devices(workers), fit.batch) for workers, fit in largest)


# --- printing -----------------------------------------------------------------------------------


class _Printer:
    """Prints a report: as text, each line when it is known; as JSON, at the end."""

    def __init__(self, form: str, devices: Sequence[Devices]) -> None:
        self._form = form
        self._is_text = form == "text"
        self._devices = devices
        names = {"workers": max(len(str(each)) for each in devices), **_COLUMNS}
        # Meshes of the same number of workers differ in the bytes that they send.
        names.update({"communicated": _BYTES_WIDTH} if any(each.mesh for each in devices) else {})
        self._header = list(names)
        self._widths = [max(len(name), width) for name, width in names.items()]

    def print(self, report: Report, model: Model) -> Report:
        """Print the estimates, then the largest batches if there is a limit.

        Raises ConfigError if there is no plan for any number of workers.
        """
        printed: list[Estimate] = []
        self._tell(line(self._header, self._widths, right=range(len(self._widths))))
        for each in report.estimated(model, self._devices):
            printed.append(each)
            self._tell(self._row(each, report.limit))
        if not any(each.plan for each in printed):
            raise ConfigError(f"tofu estimate {report.target}: no plan ({printed[0].reason})")
        report = dataclasses.replace(report, found=printed)
        if report.limit is not None:
            report = self._print_batches(report, model)
            report = _tried_again(report, model)
        self._tell("", *advice(report))
        return report

    def _print_batches(self, report: Report, model: Model) -> Report:
        batches: dict[Devices, int] = {}
        for devices, batch in _batches(model, report):
            if not batches:
                self._tell("", "  ".join(_BATCH_COLUMNS))
            batches[devices] = batch
            widths = [max(self._widths[0], len(_BATCH_COLUMNS[0])), len(_BATCH_COLUMNS[1])]
            cells = [str(devices), batch_text(batch, about=not model.scales)]
            self._tell(line(cells, widths, right=(0, 1)))
        return dataclasses.replace(
            report, batches=batches, about=bool(batches) and not model.scales
        )

    def _row(self, each: Estimate, limit: Optional[int]) -> str:
        cells = [str(each.devices)]
        remark = f"no use: {each.reason}" if each.reason else ""
        if each.plan is None:
            remark = f"no plan: {each.reason}"
        else:
            cells += map(format_bytes, each.kinds.values())
            totals = map(each.held_bytes, OPTIMIZERS)
            cells += [format_bytes(held) + _fits(held, limit) for held in totals]
            cells += [format_bytes(each.plan.total_bytes)]
        columns = len(self._widths)
        cells = [*cells, *[""] * columns][:columns]
        return line([*cells, remark], [*self._widths, 0], right=range(columns))

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
        "memory": EXACT if report.exact else ESTIMATE,
        "optimizer": report.optimizer,
        "limit_bytes": report.limit,
        **({"masters": True} if report.masters else {}),
        **({"machine": report.machine} if report.machine else {}),
        **({"currency": report.price.currency} if report.price else {}),
        "batches_extrapolated": report.about,
        "estimates": [_record(each, report) for each in report.found],
    }


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row for CSV: bytes by kind and by optimizer are columns."""
    kinds = record["bytes_per_worker"] or {}
    totals = record["total_bytes"] or {}
    return {
        "workers": record["workers"],
        "mesh": " x ".join(map(str, record["mesh"] or ())),
        **{f"{kind}_bytes": kinds.get(kind) for kind in KINDS},
        **{f"total_bytes_{name}": totals.get(name) for name in OPTIMIZERS},
        "communicated_bytes": record["communicated_bytes"],
        **{key: record[key] for key in ("step_seconds", "step_price") if key in record},
        "largest_batch": record["largest_batch"],
        "of_no_use": record["of_no_use"],
    }


def _record(each: Estimate, report: Report) -> dict[str, Any]:
    return {
        "workers": each.workers,
        "mesh": list(each.mesh) or None,
        "bytes_per_worker": dict(each.kinds),
        "total_bytes": {name: each.held_bytes(name) for name in OPTIMIZERS} if each.plan else None,
        "communicated_bytes": each.plan.total_bytes if each.plan else None,
        **({"step_seconds": each.step_seconds} if report.machine else {}),
        **({"step_price": report.money(each)} if report.price else {}),
        "largest_batch": report.batches.get(each.devices),
        "of_no_use": each.reason,
    }


# Wide enough for every number of bytes: a row is printed before those after it are known.
_BYTES_WIDTH = len("1023.9 MiB")
_COLUMNS = {
    **{kind.replace("_", " "): _BYTES_WIDTH for kind in KINDS},
    **{f"with {optimizer}": _BYTES_WIDTH + len(" +") for optimizer in OPTIMIZERS},
}
_BATCH_COLUMNS = ("workers", "largest batch")


def _tried_again(report: Report, model: Model) -> Report:
    """The report; if nothing fits, with the least that recomputation makes of it."""
    if report.recomputes or report.best() is not None:
        return report
    recomputing_report = dataclasses.replace(report, recomputes=True)
    (again,) = recomputing_report.estimated(model, [report.least().devices])
    return dataclasses.replace(report, again=again if again.plan else None)


def _fits(size: int, limit: Optional[int]) -> str:
    if limit is None:
        return ""
    return " +" if size <= limit else " -"
