"""Figure 10 of the paper: the communication of each partition algorithm, and whether it fits.

    python scripts/figure10.py --output docs/results     # figure10.json, figure10.svg
    python scripts/figure10.py --smoke                   # reduced models, in seconds

The paper measures the time of a training step on 8 GPUs of 12 GB for RNN-4-8K (batch 512) and
WResNet-152-10 (batch 8). This script compares the bytes that the workers fetch per step under each
algorithm's plan. All algorithms are modes of one search (docs/search.md), so one metric applies to
all. A worker's memory also comes from the plan. The time of a step, and of a step whose copies take
no time, is simulated on the paper's machine. Nothing is executed: all numbers are modelled, none is
measured on a GPU. Hardware: any. Time: a minute, a third of it for "flat" on WResNet. Expected:
ours communicates least of the algorithms that keep tensors partitioned (only "flat", which takes
far longer, may be lower), AllRow-Greedy more, ICML18 more still. The plan for time is at least as
fast as every other plan that keeps tensors partitioned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from _common import context, problem
from _figures import draw_again, parser_of, pyplot_of, save, write_and_draw
from _steps import simulated_step

from tofu.errors import PlanError
from tofu.planner.search import plan_graph, search
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.machine_files import read_machine
from tofu.plans.plan import format_bytes
from tofu.tables import table

WORKERS = 8
MACHINE = "p2.8xlarge"
LIMIT_BYTES = read_machine(MACHINE).memory_bytes
FETCH = "plain"  # of _steps.WAYS: on these models the faster way, or nearly the faster
CASES = (("rnn-4-8k", 512), ("wresnet-152-10", 8))
FOR_TIME = "time"  # the default mode, with this objective
ALGORITHMS = {
    "data-parallel": "data parallel",
    "allrow-greedy": "AllRow-Greedy",
    "spartan": "Spartan",
    "equalchop": "EqualChop",
    "icml18": "ICML18",
    "recursion": "Tofu (paper)",
    "flat": "no recursion",
    "tofu": "tofu (ours)",
    FOR_TIME: "tofu, for time",
}
# Section 7.3 says this about Figure 10. The text does not give the heights of its bars.
PAPER = {
    ("rnn-4-8k", "allrow-greedy"): "slowest",
    ("wresnet-152-10", "allrow-greedy"): "out of memory",
    ("rnn-4-8k", "spartan"): "slower than Tofu",
    ("wresnet-152-10", "spartan"): "slower than Tofu",
    ("rnn-4-8k", "equalchop"): "slower than Tofu",
    ("wresnet-152-10", "equalchop"): "slower than Tofu",
    ("rnn-4-8k", "icml18"): "7% slower than Tofu",
    ("wresnet-152-10", "icml18"): "out of memory",
    ("rnn-4-8k", "recursion"): "fastest",
    ("wresnet-152-10", "recursion"): "fastest",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One algorithm on one model.

    Attributes:
        model, batch: the case.
        mode: the search mode, or FOR_TIME.
        total_bytes: fetched per training step by all workers; None if no plan was found.
        lower_bound_bytes: the bound on this algorithm's own plans.
        worker_bytes: memory of the fullest worker, by kind.
        search_seconds: time from graph to plan.
        status: the plan's status, or the reason why there is no plan.
        step_seconds: a simulated step; None without a plan.
        compute_seconds: the same if copies between workers took no time.
        allocated_bytes: memory that MXNet allocates for the fullest worker; None where no step was
            simulated.
    """

    model: str
    batch: int
    mode: str
    total_bytes: Optional[int]
    lower_bound_bytes: Optional[int]
    worker_bytes: dict[str, int]
    search_seconds: Optional[float]
    status: str
    step_seconds: Optional[float] = None
    compute_seconds: Optional[float] = None
    allocated_bytes: Optional[int] = None

    @property
    def held_bytes(self) -> int:
        """The memory of the fullest worker, allocated or from the plan; 0 without a plan."""
        return self.allocated_bytes or sum(self.worker_bytes.values())

    @property
    def fits(self) -> Optional[bool]:
        """Whether one of the paper's GPUs can hold a worker's share; None without a plan."""
        return self.held_bytes <= LIMIT_BYTES if self.held_bytes else None


def measure(
    case: Problem, batch: int, mode: str, time_limit_s: float, *, simulates: bool = True
) -> Row:
    """Plan one case with one algorithm."""
    try:
        plan = _planned(case, mode, time_limit_s)
    except PlanError as error:
        return Row(case.name, batch, mode, None, None, {}, None, str(error))
    step = simulated_step(case, plan, MACHINE, fetch=FETCH) if simulates else None
    return Row(
        model=case.name,
        batch=batch,
        mode=mode,
        total_bytes=plan.total_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        worker_bytes=dict(plan.bytes_per_worker),
        search_seconds=plan.search_seconds,
        status=plan.status,
        step_seconds=step.seconds if step else None,
        compute_seconds=step.compute_seconds if step else None,
        allocated_bytes=step.memory_bytes if step else None,
    )


def _planned(case: Problem, mode: str, time_limit_s: float) -> Plan:
    if mode != FOR_TIME:
        return plan_graph(case, SearchOptions(mode=mode, time_limit_s=time_limit_s))
    options = SearchOptions(objective="time", machine=MACHINE, time_limit_s=time_limit_s)
    return search(dataclasses.replace(case, refine=None), options, fetch=FETCH).read()


def to_json(rows: Sequence[Row], *, reduced: bool) -> dict[str, Any]:
    """The rows for a program."""
    return {
        "figure": 10,
        "modelled": "bytes counted from plans; nothing was executed",
        "context": context(),
        "workers": WORKERS,
        "machine": MACHINE,
        "fetch": FETCH,
        "limit_bytes": LIMIT_BYTES,
        "reduced": reduced,
        "rows": [
            {
                **dataclasses.asdict(row),
                "fits": row.fits,
                "paper": PAPER.get((row.model, row.mode)),
            }
            for row in rows
        ],
    }


def to_text(rows: Sequence[Row]) -> str:
    """A table for each model."""
    lines: list[str] = []
    for model in dict.fromkeys(row.model for row in rows):
        model_rows = [row for row in rows if row.model == model]
        tofu_bytes = next(row.total_bytes for row in model_rows if row.mode == "tofu")
        lines += [
            f"{model}, batch {model_rows[0].batch}, {WORKERS} workers (modelled)",
            "",
        ]
        lines += table(
            (
                "algorithm",
                "bytes fetched",
                "to ours",
                "a step",
                "of it communication",
                "a worker holds",
                "one GPU",
                "paper",
            ),
            (_cells(row, tofu_bytes or 1) for row in model_rows),
        )
        lines.append("")
    return "\n".join(lines)


def _cells(row: Row, tofu_bytes: int) -> tuple[str, ...]:
    held = row.held_bytes
    return (
        ALGORITHMS[row.mode],
        "-" if row.total_bytes is None else format_bytes(row.total_bytes),
        "-" if row.total_bytes is None else f"{row.total_bytes / tofu_bytes:.2f}",
        "-" if row.step_seconds is None else f"{row.step_seconds:.2f} s",
        _share(row),
        format_bytes(held) if held else "-",
        {True: "fits", False: "does not fit", None: "-"}[row.fits],
        PAPER.get((row.model, row.mode), "-"),
    )


def _share(row: Row) -> str:
    if not row.step_seconds or row.compute_seconds is None:
        return "-"
    return f"{max(0.0, 1 - row.compute_seconds / row.step_seconds):.0%}"


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw bars of the rows, hatched if a worker's share does not fit one GPU."""
    pyplot = pyplot_of("figure10")

    models = list(dict.fromkeys(row["model"] for row in document["rows"]))
    figure, panels = pyplot.subplots(
        2, len(models), figsize=(11, 7), layout="constrained", squeeze=False
    )
    for column, model in enumerate(models):
        rows = [r for r in document["rows"] if r["model"] == model and r["total_bytes"]]
        _draw_bytes(panels[0][column], rows, document["workers"])
        if all(row.get("step_seconds") for row in rows):
            _draw_times(panels[1][column], rows)
        else:
            panels[1][column].set_axis_off()
    limit = f"{document['limit_bytes'] / 2**30:.1f} GiB"
    title = f"On {document['machine']}. Hatched: a worker would hold more than a GPU's {limit}"
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def _draw_bytes(axes: Any, rows: Sequence[dict[str, Any]], workers: int) -> None:
    for at, row in enumerate(rows):
        size = row["total_bytes"] / 2**30
        axes.barh(
            at,
            size,
            color="#3b6ea5" if row["mode"] == "tofu" else "#a9bfd6",
            edgecolor="#333",
            hatch="///" if row["fits"] is False else "",
        )
        remark = f"  paper: {row['paper']}" if row["paper"] else ""
        axes.text(size, at, f" {size:,.{1 if size < 100 else 0}f}{remark}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [ALGORITHMS[row["mode"]] for row in rows])
    axes.set_xscale("log")
    sizes = [row["total_bytes"] / 2**30 for row in rows]
    axes.set_xlim(min(sizes) / 4, max(sizes) * 30)
    axes.set_xlabel("GiB fetched per training step, modelled (log scale)")
    axes.set_title(f"{rows[0]['model']}, batch {rows[0]['batch']}, {workers} workers")


def _draw_times(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Draw the time without communication, and on it in white the time of communication."""
    for at, row in enumerate(rows):
        alone = min(row["compute_seconds"], row["step_seconds"])
        colour = "#3b6ea5" if row["mode"] == "tofu" else "#a9bfd6"
        axes.barh(at, alone, color=colour, edgecolor="#333")
        added = row["step_seconds"] - alone
        axes.barh(at, added, left=alone, color="white", edgecolor="#333")
        axes.text(row["step_seconds"], at, f" {row['step_seconds']:.2f}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [ALGORITHMS[row["mode"]] for row in rows])
    axes.set_xlim(right=axes.get_xlim()[1] * 1.15)
    axes.set_xlabel("seconds a step, simulated; white: communication")


def main() -> None:
    """Plan all cases with all algorithms; print, save and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", choices=dict(CASES), default=list(dict(CASES)))
    parser.add_argument("--time-limit", type=float, default=120, metavar="S", help="a plan's")
    args = parser.parse_args()
    if draw_again(args, draw):
        return
    rows = []
    for model, batch in CASES:
        if model not in args.models:
            continue
        batch = 8 if args.smoke else batch
        case = problem(model, batch_size=batch, workers=WORKERS, reduced=args.smoke)
        simulates = not args.smoke or model == CASES[0][0]  # the other takes minutes
        rows += [
            measure(case, batch, mode, args.time_limit, simulates=simulates)
            for mode in ALGORITHMS
            if simulates or mode != FOR_TIME
        ]
    print(to_text(rows))
    write_and_draw(args.output, "figure10", to_json(rows, reduced=args.smoke), draw)


if __name__ == "__main__":
    main()
