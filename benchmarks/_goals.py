"""Prints measured values beside their goals, as the benchmarks do.

print(table([Goal("RNN-10-8K, 8 workers", "0.14 s", "0.1 s", met=False)]))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Goal:
    """A row of the table.

    Attributes:
        work: what was done.
        measured: what it took, in words.
        goal: what it may take, in words.
        met: whether it does.
    """

    work: str
    measured: str
    goal: str
    met: bool


def table(goals: Iterable[Goal]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| work | measured | goal | |", "| --- | --- | --- | --- |"]
    for row in goals:
        met = "met" if row.met else "missed"
        lines.append(f"| {row.work} | {row.measured} | {row.goal} | {met} |")
    return "\n".join(lines)
