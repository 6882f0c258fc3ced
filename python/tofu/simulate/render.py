"""Prints a simulated step, as tables and as the JSON document of docs/formats.md."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from tofu.plans.plan import format_bytes, format_seconds
from tofu.plans.simulated_step import Simulation
from tofu.tables import table

__all__ = ["render_json", "render_text"]

_VERSION = 1
_ROWS = 8  # of the critical path's operators


def render_json(simulation: Simulation, *, model: str, batch_size: int) -> str:
    """The document "tofu-simulation"."""
    document = {
        "format": "tofu-simulation",
        "version": _VERSION,
        "simulated": True,
        "model": model,
        "batch_size": batch_size,
        "fits": simulation.fits,
        **dataclasses.asdict(simulation),
    }
    return json.dumps(document) + "\n"


def render_text(simulation: Simulation, *, model: str, batch_size: int) -> str:
    """The step as tables; the first line says that it is simulated."""
    workers = len(simulation.workers)
    kind = "measured" if simulation.measured else "from data sheets, not measured"
    lines = [
        f"simulated: {model}, batch {batch_size:,}, {workers} worker{'s' * (workers != 1)} on "
        f"{simulation.machine} ({kind}), fetch {simulation.fetch}",
        f"a step takes {format_seconds(simulation.step_seconds)}: "
        f"{batch_size / simulation.step_seconds:,.2f} samples per second; "
        f"the script hands over {simulation.operations:,} operators in "
        f"{format_seconds(simulation.script_seconds)}",
        _memory_line(simulation),
        "",
        *_worker_table(simulation),
        "",
        *_link_table(simulation),
        "",
        *_path(simulation),
    ]
    return "\n".join(lines) + "\n"


def _memory_line(simulation: Simulation) -> str:
    fullest = max(
        simulation.workers, key=lambda each: each["allocated_bytes"] / each["memory_bytes"]
    )
    verdict = "which fits" if simulation.fits else "which DOES NOT FIT"
    return (
        f"the fullest worker allocates {format_bytes(fullest['allocated_bytes'])} of "
        f"{format_bytes(fullest['memory_bytes'])}, {verdict}"
    )


def _worker_table(simulation: Simulation) -> list[str]:
    rows = []
    for number, worker in enumerate(simulation.workers):
        seconds = worker["seconds"]
        times = (
            seconds["compute"],
            seconds["links"],
            seconds["host"],
            worker["busy_seconds"],
            worker["waiting_seconds"],
        )
        peak = worker["static_bytes"] + max(worker["live_bytes"], default=0)
        memory = (format_bytes(worker["allocated_bytes"]), format_bytes(peak))
        rows.append((str(number), *map(format_seconds, times), *memory))
    header = ("worker", "compute", "links", "host", "busy", "waiting", "allocated", "in use")
    return table(header, rows, right=range(1, 8))


def _link_table(simulation: Simulation) -> list[str]:
    if not simulation.links:
        return ["no links are used"]
    rows = [
        (
            link["name"],
            f"{link['devices'][0]}-{link['devices'][1]}",
            format_bytes(int(link["bytes"])),
            format_seconds(link["busy_seconds"]),
            _rate(link["bytes"], link["busy_seconds"]),
        )
        for link in simulation.links
    ]
    return table(("link", "workers", "bytes", "busy", "while busy"), rows, right=range(2, 5))


def _rate(size: float, seconds: float) -> str:
    return f"{size / seconds / 1e9:.2f} GB/s" if seconds else ""


def _path(simulation: Simulation) -> list[str]:
    path = simulation.critical_path
    parts = ", ".join(f"{name} {format_seconds(spent)}" for name, spent in path["seconds"].items())
    lines = [f"critical path of {path['length']:,} operators: {parts}"]
    return lines + table(
        ("operator", "of type", "worker", "seconds"),
        [_path_row(each) for each in path["longest"][:_ROWS]],
        right=(2, 3),
    )


def _path_row(operator: Mapping[str, object]) -> tuple[str, str, str, str]:
    seconds = operator["seconds"]
    assert isinstance(seconds, float)
    return (
        str(operator["name"]),
        str(operator["op"]),
        str(operator["worker"]),
        format_seconds(seconds),
    )
