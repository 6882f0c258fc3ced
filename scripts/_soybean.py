"""SoyBean's figures: data, model and mixed parallelism, simulated on its machine.

Shared by soybean8.py, soybean9.py and soybean10.py. Data parallelism and SoyBean's tilings are
modes of the search; model parallelism pins weights and activations. Nothing runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from _common import context
from _figures import draw_again, parser_of, pyplot_of, save, write_and_draw
from _steps import simulated_step
from _training import progress

from tofu.mx.model.sources import SymbolRequest, of_symbol
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions
from tofu.tables import table

__all__ = ["Case", "Figure", "convolutions", "main", "products"]

MACHINE = "p2.8xlarge"
SYSTEMS = {
    "data": SearchOptions(mode="data-parallel"),
    # A worker holds some rows of a weight, of which it multiplies the same columns of the data.
    "model": SearchOptions(mode="soybean", pins=(("*_weight", (1,)), ("layer?", (1,)))),
    "soybean": SearchOptions(mode="soybean"),
}
LABELS = {"data": "DP", "model": "MP", "soybean": "SoyBean"}
COLOURS = {"data": "#a9bfd6", "model": "#d6c3a9", "soybean": "#3b6ea5"}
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One group of bars.

    Attributes:
        panel: the picture that it belongs to.
        label: below the bars.
        batch: number of examples.
        workers: number of GPUs.
        problem: makes the plans' problem for a number of workers, which may be less than `workers`.
    """

    panel: str
    label: str
    batch: int
    workers: int
    problem: Callable[[int], Problem]


@dataclasses.dataclass(frozen=True)
class Figure:
    """The contents of a figure.

    Attributes:
        name: of its files.
        title: for the picture.
        systems: those of SYSTEMS.
        cases: given whether to take reduced models.
        is_speedup: whether bars compare with the fastest single GPU of the panel, not seconds.
    """

    name: str
    title: str
    systems: Sequence[str]
    cases: Callable[[bool], Sequence[Case]]
    is_speedup: bool = False


def products(batch: int, units: int, layers: int) -> Callable[[int], Problem]:
    """The training graph of fully connected layers of one width."""

    def problem(workers: int) -> Problem:
        import mxnet as mx

        symbol = mx.sym.var("data")
        for layer in range(layers):
            symbol = mx.sym.FullyConnected(
                symbol, num_hidden=units, no_bias=True, name=f"layer{layer}"
            )
        return _problem(symbol, (batch, units), workers)

    return problem


def convolutions(batch: int, filters: int, pixels: int, layers: int) -> Callable[[int], Problem]:
    """The training graph of convolutions of 3x3 that keep channels and image."""

    def problem(workers: int) -> Problem:
        import mxnet as mx

        symbol = mx.sym.var("data")
        for layer in range(layers):
            symbol = mx.sym.Convolution(
                symbol, num_filter=filters, kernel=(3, 3), pad=(1, 1), no_bias=True,
                name=f"layer{layer}",
            )  # fmt: skip
        return _problem(symbol, (batch, filters, pixels, pixels), workers)

    return problem


def _problem(symbol: Any, shape: tuple[int, ...], workers: int) -> Problem:
    request = SymbolRequest(
        Path("soybean"), {"data": shape}, {"": "float32"}, frozenset(), "sgd", False
    )
    return of_symbol(symbol, request, workers=workers)


def measure(figure: Figure, *, smoke: bool) -> Iterator[Row]:
    """Simulate a step of every system in every case, and of a single GPU for speedups."""
    cases = figure.cases(smoke)
    for number in progress(len(cases), f"simulating {figure.name}"):
        case = cases[number]
        if figure.is_speedup:
            yield _row(case, "single", SearchOptions(), workers=1)
        for system in figure.systems:
            yield _row(case, system, SYSTEMS[system])


def _row(case: Case, system: str, options: SearchOptions, workers: Optional[int] = None) -> Row:
    count = case.workers if workers is None else workers
    problem = case.problem(count)
    plan = plan_graph(problem, options)
    step = simulated_step(problem, plan, MACHINE)
    return {
        "panel": case.panel,
        "label": case.label,
        "batch": case.batch,
        "workers": count,
        "system": system,
        "fetched_bytes": plan.total_bytes,
        "step_seconds": step.seconds,
        "compute_seconds": min(step.seconds, step.compute_seconds),
        "samples_per_second": case.batch / step.seconds,
    }


def speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows of several GPUs, with their speedup over the panel's fastest single GPU."""
    best: dict[str, float] = {}
    for row in rows:
        if row["system"] == "single":
            best[row["panel"]] = max(best.get(row["panel"], 0.0), row["samples_per_second"])
    return [
        {**row, "speedup": row["samples_per_second"] / best[row["panel"]]}
        for row in rows
        if row["system"] != "single"
    ]


def to_text(document: dict[str, Any]) -> str:
    """A table; everything in it is simulated."""
    lines = [f"{document['title']}, simulated on {document['machine']}", ""]
    header = ("network", "case", "system", "fetched", "step", "overhead")
    rows = []
    for row in document["rows"]:
        overhead = row["step_seconds"] / row["compute_seconds"] - 1
        speedup = [f"{row['speedup']:.2f}"] if "speedup" in row else []
        rows.append(
            (
                row["panel"],
                row["label"],
                LABELS[row["system"]],
                f"{row['fetched_bytes'] / 2**30:.2f} GiB",
                f"{row['step_seconds']:.3f} s",
                f"{overhead:.0%}",
                *speedup,
            )
        )
    if document["is_speedup"]:
        header = (*header, "speedup")
    lines += table(header, rows, right=range(3, len(header)))
    return "\n".join(lines) + "\n"


def draw(document: dict[str, Any], path: Path) -> None:
    """A panel for each network: seconds, their communication white, or speedups."""
    pyplot = pyplot_of(document["name"])

    panels = list(dict.fromkeys(row["panel"] for row in document["rows"]))
    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 4), layout="constrained", squeeze=False
    )
    for axes, panel in zip(all_axes[0], panels):
        rows = [row for row in document["rows"] if row["panel"] == panel]
        _draw_panel(axes, rows, is_speedup=document["is_speedup"])
        axes.set_title(panel, fontsize=9)
    about = "speedup over one GPU" if document["is_speedup"] else "white: communication"
    figure.suptitle(
        f"{document['title']}, simulated on {document['machine']} ({about})", fontsize=9
    )
    save(figure, path)


def _draw_panel(axes: Any, rows: Sequence[Row], *, is_speedup: bool) -> None:
    labels = list(dict.fromkeys(row["label"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    width = 0.8 / len(systems)
    for at, system in enumerate(systems):
        system_rows = [row for row in rows if row["system"] == system]
        places = [labels.index(row["label"]) + at * width for row in system_rows]
        heights = [row["speedup" if is_speedup else "step_seconds"] for row in system_rows]
        edge = {"edgecolor": "#333", "linewidth": 0.4}
        filled = heights if is_speedup else [row["compute_seconds"] for row in system_rows]
        axes.bar(places, filled, width, color=COLOURS[system], label=LABELS[system], **edge)
        added = [height - below for height, below in zip(heights, filled)]
        axes.bar(places, added, width, bottom=filled, color="white", **edge)
        for place, height in zip(places, heights):
            axes.text(
                place, height, f" {height:.2g}", rotation=90, ha="center", va="bottom", fontsize=6
            )
    axes.set_xticks([at + 0.4 - width / 2 for at in range(len(labels))], labels, fontsize=8)
    axes.set_ylabel("speedup" if is_speedup else "seconds a step")
    axes.set_ylim(top=axes.get_ylim()[1] * 1.2)
    axes.legend(fontsize=8, ncol=len(systems), loc="upper center")


def main(figure: Figure, description: str) -> None:
    """Simulate, print, save and draw."""
    args = parser_of(description, smoke="reduced networks").parse_args()
    if draw_again(args, draw):
        return
    rows = list(measure(figure, smoke=args.smoke))
    document = {
        "name": figure.name,
        "title": figure.title,
        "simulated": True,
        "machine": MACHINE,
        "context": context(),
        "reduced": args.smoke,
        "is_speedup": figure.is_speedup,
        "rows": speedups(rows) if figure.is_speedup else rows,
    }
    print(to_text(document))
    write_and_draw(args.output, figure.name, document, draw)
