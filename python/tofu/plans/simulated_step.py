"""The record of a simulated step, of MXNet's engine or of a module of PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tofu import _core

__all__ = ["LONGEST", "Simulation", "Timed"]

LONGEST = 32  # operators of the critical path that are kept
Timed = tuple[str, str, int, float, float]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A simulated training step. docs/formats.md describes the records.

    Attributes:
        machine: the machine's name.
        measured: whether its figures were measured by ``tofu calibrate``.
        fetch: one of config.FETCHES.
        step_seconds: from the script's first operator to the end of the last.
        script_seconds: when the script's thread had handed over every operator.
        operations: operators, or segments of them, that MXNet's engine ran.
        memory_bytes: memory of the machine's smallest device.
        workers: time and memory of each worker, and the memory of its device.
        links: time and bytes of each group of links that was used.
        critical_path: the operations, each waiting for the one before, that took the whole step.
        timeline: name, operator, worker, begin and end of every operation; empty unless asked for.
    """

    machine: str
    measured: bool
    fetch: str
    step_seconds: float
    script_seconds: float
    operations: int
    memory_bytes: int
    workers: Sequence[Mapping[str, Any]]
    links: Sequence[Mapping[str, Any]]
    critical_path: Mapping[str, Any]
    timeline: Sequence[Timed] = ()

    @classmethod
    def of_record(cls, record: Mapping[str, Any], machine: _core.Machine, fetch: str) -> Simulation:
        """Make one from a record of _core.simulate and the memory of the machine's devices."""
        workers = [
            {**worker, "memory_bytes": machine.memory_of(number)}
            for number, worker in enumerate(record["workers"])
        ]
        return cls(
            **{
                **record,
                "workers": workers,
                "critical_path": _shortened(record["critical_path"]),
            },
            machine=machine.name,
            measured=machine.measured,
            fetch=fetch,
            memory_bytes=machine.memory_bytes,
        )

    @property
    def fits(self) -> bool:
        """Whether every worker's memory fits its device."""
        return all(each["allocated_bytes"] <= each["memory_bytes"] for each in self.workers)


def _shortened(path: Mapping[str, Any]) -> dict[str, Any]:
    """The critical path, cut down to the operators that took longest."""
    operators = [
        {"name": name, "op": op, "worker": worker, "begin": begin, "seconds": end - begin}
        for name, op, worker, begin, end in path["operations"]
    ]
    operators.sort(key=lambda operator: -operator["seconds"])
    return {
        "seconds": path["seconds"],
        "length": len(operators),
        "longest": operators[:LONGEST],
    }
