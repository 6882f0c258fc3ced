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
        work: the work that was measured.
        measured: its cost, in words.
        goal: the cost that it may have, in words.
        met: whether the cost meets the goal.
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
