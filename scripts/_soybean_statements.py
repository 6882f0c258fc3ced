"""Checks the statements of SoyBean's evaluation against the simulation.

Each check reads the rows of soybean8.py, soybean9.py or soybean10.py and lists the results that
contradict its statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

__all__ = ["CHECKS"]

Row = Mapping[str, Any]
Check = Callable[[Sequence[Row]], list[str]]
_EQUAL = 1.02  # within so much, steps take equally long


def _steps(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """(panel, label) -> system -> row."""
    steps: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        steps.setdefault((row["panel"], row["label"]), {})[row["system"]] = row
    return steps


def _overhead(row: Row) -> float:
    return float(row["step_seconds"] / row["compute_seconds"] - 1)


def _soybean_is_fastest(rows: Sequence[Row]) -> list[str]:
    problems = []
    for (panel, label), systems in _steps(rows).items():
        soybean_seconds = systems["soybean"]["step_seconds"]
        for name, row in systems.items():
            if row["step_seconds"] * _EQUAL < soybean_seconds:
                more = soybean_seconds / row["step_seconds"] - 1
                problems.append(f"{panel}, {label}: {more:.0%} slower than {name} parallelism")
    return problems


def _data_is_slowest(rows: Sequence[Row]) -> list[str]:
    return [
        f"{panel}, {label}: as fast as {name}"
        for (panel, label), systems in _steps(rows).items()
        for name, row in systems.items()
        if name != "data" and row["step_seconds"] >= systems["data"]["step_seconds"]
    ]


def _overhead_grows(rows: Sequence[Row]) -> list[str]:
    problems = []
    for panel in dict.fromkeys(row["panel"] for row in rows):
        overheads = [_overhead(r) for r in rows if r["panel"] == panel and r["system"] == "data"]
        if overheads != sorted(overheads):
            problems.append(f"{panel}: {', '.join(f'{each:.0%}' for each in overheads)}")
    return problems


def _overhead_is(batch: int, expected: float) -> Check:
    """Check the overhead on 8 GPUs with the smallest weights, within half of the paper's value."""

    def problems(rows: Sequence[Row]) -> list[str]:
        key = (batch, 8, "data")
        rows_found = [r for r in rows if (r["batch"], r["workers"], r["system"]) == key]
        if not rows_found:
            return [f"no step with batch {batch} on 8 GPUs"]
        overhead = _overhead(rows_found[0])
        return [] if 0.5 <= overhead / expected <= 1.5 else [f"{overhead:.1f} times"]

    return problems


def _data_against_model(small_images: bool) -> Check:
    def problems(rows: Sequence[Row]) -> list[str]:
        panels = list(dict.fromkeys(row["panel"] for row in rows))
        contradictions = []
        for (panel, label), systems in _steps(rows).items():
            if panel != panels[0 if small_images else -1]:
                continue
            data, model = (systems[name]["step_seconds"] for name in ("data", "model"))
            if (model < data) != small_images:
                contradictions.append(f"{label}: data {data:.2f} s, model {model:.2f} s")
        return contradictions

    return problems


def _speedup(rows: Sequence[Row], panel: str, system: str, batch: int) -> Optional[float]:
    """The speedup of a system; None if there is no such step, as with reduced models."""
    key = (panel, system, batch)
    speedups = (
        float(row["speedup"]) for row in rows if (row["panel"], row["system"], row["batch"]) == key
    )
    return next(speedups, None)


def _seven_at_256(rows: Sequence[Row]) -> list[str]:
    speedup = _speedup(rows, "alexnet", "soybean", 256)
    if speedup is None:
        return ["no step with batch 256"]
    return [] if speedup > 7 else [f"{speedup:.1f} times"]


def _data_needs_1k(rows: Sequence[Row]) -> list[str]:
    goal = _speedup(rows, "alexnet", "soybean", 256)
    if goal is None:
        return ["no step with batch 256"]
    enough = [
        row["batch"]
        for row in rows
        if (row["panel"], row["system"]) == ("alexnet", "data") and row["speedup"] >= goal
    ]
    return [f"batch {min(enough)} is enough"] if enough and min(enough) < 1024 else []


def _range_of_gains(rows: Sequence[Row]) -> list[str]:
    gains = {
        key: systems["soybean"]["speedup"] / systems["data"]["speedup"]
        for key, systems in _steps(rows).items()
    }
    return [
        f"{panel}, batch {label}: {gain:.2f}"
        for (panel, label), gain in gains.items()
        if not 1.5 <= gain <= 4
    ]


CHECKS: Mapping[str, Sequence[tuple[str, Check]]] = {
    "soybean8": [
        ("SoyBean, MLP: data parallelism is slower than the others", _data_is_slowest),
        ("SoyBean, MLP: its tilings are never slower", _soybean_is_fastest),
        ("SoyBean, MLP: data parallelism's overhead grows with the GPUs", _overhead_grows),
        ("SoyBean, MLP: on 8 GPUs, 5 times the computation, batch 512", _overhead_is(512, 5)),
        ("SoyBean, MLP: on 8 GPUs, 2.5 times it, batch 2048", _overhead_is(2048, 2.5)),
    ],
    "soybean9": [
        ("SoyBean, CNN: its tilings are never slower", _soybean_is_fastest),
        ("SoyBean, CNN: small images favour model parallelism", _data_against_model(True)),
        ("SoyBean, CNN: large images favour data parallelism", _data_against_model(False)),
    ],
    "soybean10": [
        ("SoyBean, AlexNet: more than 7 times one GPU with batch 256", _seven_at_256),
        ("SoyBean, AlexNet: data parallelism needs more than 1K for that", _data_needs_1k),
        ("SoyBean, AlexNet and VGG: 1.5 to 4 times data parallelism", _range_of_gains),
    ],
}
