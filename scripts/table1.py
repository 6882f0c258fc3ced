"""Table 1 of the paper: the time to find a plan for 8 workers, compared with ours.

    python scripts/table1.py --output docs/results       # table1.json
    python scripts/table1.py --smoke                     # reduced models, in seconds

The paper's rows, and the corresponding modes here (docs/search.md):

- Original DP: n/a in the paper, whose dynamic program needs a linear graph and so cannot run
  before coarsening. Ours eliminates variables of any graph: all steps at once, nothing merged.
- DP with coarsening: all steps at once ("flat").
- Using recursion: one step at a time ("recursion").
- ours: the default, recursion and joint improvement of the steps ("tofu").

Times are the CPU time of one thread from the training graph (JSON in memory) to the plan (JSON),
which leaves out other work on the machine. Each is the median of --repeat runs; a search of more
than ten seconds runs once. A search that does not end within --time-limit has no plan, and the
table says so, as the paper does with "more than a day". Plans that are proven optimal are marked.
The paper measured a prototype on a server of 2018: compare ratios between rows, not columns.
Hardware: any. Time: two minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from _common import context, problem, write

from tofu import _core
from tofu.errors import PlanError
from tofu.plans import Problem, SearchOptions
from tofu.plans.plan import format_bytes
from tofu.tables import table

WORKERS = 8
LONG_SECONDS = 10
MODELS = ("wresnet-152-10", "rnn-10-8k")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row of the table: its name, its search mode, and the paper's times."""

    name: str
    mode: str
    coarsen: bool
    paper: tuple[str, str]


VARIANTS = (
    Variant("all steps at once, no coarsening", "flat", False, ("n/a", "n/a")),
    Variant("with coarsening", "flat", True, ("8 hours", ">24 hours")),
    Variant("with recursion", "recursion", True, ("8.3 s", "66.6 s")),
    Variant("ours", "tofu", True, ("-", "-")),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One variant on one model.

    Attributes:
        model, variant: its place in the table.
        seconds: CPU time of each run; empty if no plan was found.
        total_bytes: of the plan, or None.
        optimal: whether the plan is a proven optimum over all its steps.
        spent_seconds: time spent if no plan was found.
        reason: the reason why there is no plan.
        paper: the paper's time.
    """

    model: str
    variant: str
    seconds: tuple[float, ...]
    total_bytes: Optional[int]
    optimal: bool
    spent_seconds: Optional[float]
    reason: str
    paper: str

    def to_text(self) -> str:
        """The cell's text."""
        if not self.seconds:
            return f"none within {self.spent_seconds:.0f} s"
        median = statistics.median(self.seconds)
        return f"{median:.3f} s" if median < 10 else f"{median:.1f} s"


def measure(case: Problem, variant: Variant, time_limit_s: float, repeat: int) -> Cell:
    """Search one case in one way."""
    options = SearchOptions(mode=variant.mode, time_limit_s=time_limit_s, coarsen=variant.coarsen)
    paper = dict(zip(MODELS, variant.paper)).get(case.name, "-")
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < repeat and (not seconds or seconds[-1] < LONG_SECONDS):
        before = time.process_time()
        try:
            plan = _core.plan(case.table, workers=case.workers, **options.arguments())
        except PlanError as error:
            spent = time.perf_counter() - start
            return Cell(case.name, variant.name, (), None, False, spent, str(error), paper)
        seconds.append(time.process_time() - before)
    optimal = plan.total_bytes <= plan.lower_bound_bytes
    return Cell(case.name, variant.name, tuple(seconds), plan.total_bytes, optimal, None, "", paper)


def to_text(cells: Sequence[Cell]) -> str:
    """The table for a terminal."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    header = ["search"]
    for model in models:
        header += [model, "plan", "paper"]
    rows = []
    for variant in VARIANTS:
        row = [variant.name]
        for model in models:
            cell = next(c for c in cells if (c.model, c.variant) == (model, variant.name))
            size = "-" if cell.total_bytes is None else format_bytes(cell.total_bytes)
            row += [cell.to_text(), size + (" (optimal)" if cell.optimal else ""), cell.paper]
        rows.append(row)
    return "\n".join(table(header, rows))


def to_json(cells: Sequence[Cell], *, time_limit_s: float, reduced: bool) -> dict[str, Any]:
    """The table for a program."""
    return {
        "table": 1,
        "context": context(),
        "workers": WORKERS,
        "time_limit_seconds": time_limit_s,
        "reduced": reduced,
        "cells": [dataclasses.asdict(cell) for cell in cells],
    }


def main() -> None:
    """Search, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="reduced models, one run each")
    parser.add_argument("--time-limit", type=float, default=600, metavar="S", help="a search's")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each search")
    parser.add_argument("--output", type=Path, help="folder for table1.json")
    args = parser.parse_args()
    repeat = 1 if args.smoke else args.repeat
    cells = []
    for model in MODELS:
        case = problem(
            model, batch_size=8 if args.smoke else None, workers=WORKERS, reduced=args.smoke
        )
        cells += [measure(case, variant, args.time_limit, repeat) for variant in VARIANTS]
    print(to_text(cells))
    if args.output is not None:
        document = to_json(cells, time_limit_s=args.time_limit, reduced=args.smoke)
        print(f"\nwritten: {write(args.output, 'table1', document)}")


if __name__ == "__main__":
    main()
