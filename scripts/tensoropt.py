"""TensorOpt's Tables 1 and 3 and Figures 6 and 8: time against memory over two hosts of 8 V100s.

    python scripts/tensoropt.py --output docs/results     # tensoropt.json, tensoropt.svg
    python scripts/tensoropt.py --smoke                   # reduced models, in seconds
    python scripts/tensoropt.py --models rnn vgg-16       # some of them

TensorOpt (Cai et al.) names its models by their size only. Ours have about as many parameters:
RNN-10-18K, WResNet-101-6, a Transformer of 5 layers with 4,096 units, and VGG-16. Nothing runs: the
time of a step is the search's prediction on a machine file's assumptions (docs/search.md#time),
memory is its estimate, and only the search's own time is measured, on one core.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from _common import context, write
from _figures import draw_again, line_with_dots, parser_of, pyplot_of, save, write_and_draw
from _training import progress

from tofu.analysis.strategy_table import strategy_table
from tofu.models import Model, build, find, make_rnn, make_wresnet
from tofu.planner.frontier import Point, frontier, turning_point, unbeaten
from tofu.planner.limits import held_bytes
from tofu.planner.rivals import rivals_of
from tofu.planner.search import plan_graph
from tofu.planner.sweep import Measure
from tofu.plans import Plan, Problem, SearchOptions
from tofu.tables import table

MACHINE = "2x8v100"
FEWER = (4, 8, 16)  # Figure 8; the last for the frontier, too
DEVICE_BYTES = 16 * 2**30
LIMITS = 8  # memory limits of a frontier
SEARCH_S = 3.7  # for all of them
RIVALS = ("data-parallel", "tofu", "optcnn", "mesh-tensorflow")
# Parameters and memory in GB, and the time of FT-LDP's search in seconds on 48 cores.
PAPER: Mapping[str, tuple[float, float, Optional[float]]] = {
    "rnn": (108, 126, 0.28),
    "wresnet": (7.3, 83, 1292),
    "transformer": (9.7, 74, 201),
    "vgg-16": (0.52, 30, None),
}
BATCH = 256
SMOKE_BATCH, SMOKE_WORKERS = 64, (2, 4)
GOAL_SECONDS = 5.0
_FLAT = 0.05  # a part of the frontier whose time changes by less, relatively, is nearly flat
_COLOURS = {"data-parallel": "#d6a9c3", "tofu": "#b98f4a", "mesh-tensorflow": "#6a9a6a"}
Row = dict[str, Any]


def transformer(units: int) -> Model:
    """A Transformer of five layers with so many units."""
    small = find("transformer")
    sizes = {"units": units, "heads": units // 64, "hidden": 4 * units}
    options = {**small.full.options, "layers": 5, **sizes}
    return dataclasses.replace(small, full=dataclasses.replace(small.full, options=options))


MODELS: Mapping[str, Callable[[], Model]] = {
    "rnn": lambda: make_rnn(10, 18432, batch_size=BATCH),
    "wresnet": lambda: make_wresnet(101, 6, batch_size=BATCH),
    "transformer": lambda: transformer(4096),
    "vgg-16": lambda: find("vgg-16"),
}


def measure(names: Sequence[str], *, smoke: bool) -> Iterator[Row]:
    """Sizes, frontiers over all workers, and the least time over fewer."""
    for number in progress(len(names), "TensorOpt's models"):
        yield _measure(names[number], smoke=smoke)


def _measure(name: str, *, smoke: bool) -> Row:
    batch = SMOKE_BATCH if smoke else BATCH
    graph = build(MODELS[name](), batch, reduced=smoke)
    strategies, _ = strategy_table(graph.training_graph(optimizer="sgd"))

    def problem(workers: int) -> Problem:
        return Problem(name, strategies, workers)

    fewer = SMOKE_WORKERS if smoke else FEWER
    alone = plan_graph(problem(1))
    begin = time.process_time()
    points = frontier_of(problem(fewer[-1]), MACHINE)
    seconds = time.process_time() - begin
    front = unbeaten(points)
    turning = turning_point(front)
    return {
        "model": name,
        "batch": batch,
        "parameter_bytes": alone.bytes_per_worker["parameters"],
        "memory_bytes": held_bytes(alone),
        "search_seconds": seconds,
        "frontier": [record(point) for point in front],
        "turning": None if turning is None else record(turning),
        "rivals": [record(point) for point in _rivals(problem(fewer[-1]))],
        "workers": [
            _fewer(problem(count), points if count == fewer[-1] else None) for count in fewer
        ],
    }


def frontier_of(problem: Problem, machine: str) -> list[Point]:
    """The plans that trade time on a machine against memory, as the search counts both."""
    return list(
        frontier(
            problem,
            SearchOptions(objective="time", machine=machine, time_limit_s=SEARCH_S),
            limits=LIMITS,
            measure=Measure(step_seconds=lambda _, plan: predicted(plan)),
        )
    )


def _rivals(problem: Problem) -> Iterator[Point]:
    timed = SearchOptions(objective="time", machine=MACHINE)
    for name, options in rivals_of(RIVALS, timed).items():
        plan = plan_graph(problem, options)
        yield Point(name, plan, predicted(plan), is_rival=True)


def predicted(plan: Plan) -> float:
    """Seconds of a step, as the search adds them up."""
    return float((plan.predicted or {})["step_ns"]) / 1e9


def record(point: Point) -> Row:
    """A point as raw data."""
    return {
        "name": point.name,
        "held_bytes": point.held_bytes,
        "step_seconds": point.step_seconds,
        "communicated_bytes": point.plan.total_bytes,
        "search_seconds": point.plan.search_seconds,
    }


def _fewer(problem: Problem, points: Optional[Sequence[Point]]) -> Row:
    """The least time of a frontier that fits the memory, and the times of the rivals."""
    best = fastest_within(points or frontier_of(problem, MACHINE), DEVICE_BYTES)
    rivals = {point.name: point for point in _rivals(problem) if point.name != "optcnn"}
    row: Row = {"workers": problem.workers}
    for name, point in {"ours": best, **rivals}.items():
        fits = point is not None and point.held_bytes <= DEVICE_BYTES
        row[name] = None if point is None else {**record(point), "fits": fits}
    return row


def fastest_within(points: Sequence[Point], limit_bytes: int) -> Optional[Point]:
    """The fastest plan that holds no more memory than the limit; None if there is none."""
    fitting = [point for point in points if point.held_bytes <= limit_bytes]
    return min(fitting, key=lambda point: point.cost, default=None)


# --- TensorOpt's observations --------------------------------------------------------------------


def observations(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """(observation, "holds" or why not)."""
    checks: Sequence[tuple[str, Callable[[Row], str]]] = (
        ("beyond the turning point, time is nearly flat", _flat),
        ("Tofu's plan takes longer than the frontier's fastest", _tofu_is_slower),
        ("Tofu's plan takes longer over 16 workers than over 8", _tofu_across_hosts),
        ("8 workers fit, and 16 are less than twice as fast", _eight_are_enough),
    )
    for observation, check in checks:
        problems = [f"{row['model']}: {why}" for row in rows if (why := check(row))]
        yield observation, "; ".join(problems) if problems else "holds"


def _flat(row: Row) -> str:
    turning = row["turning"]
    if turning is None:
        return f"{len(row['frontier'])} points have none"
    first, last = (row["frontier"][end]["step_seconds"] for end in (0, -1))
    rest = (turning["step_seconds"] - last) / last
    return "" if rest <= max(_FLAT, (first - last) / last / 3) else f"{rest:.0%} are left"


def _tofu_is_slower(row: Row) -> str:
    tofu = next(point["step_seconds"] for point in row["rivals"] if point["name"] == "tofu")
    best = row["frontier"][-1]["step_seconds"]
    return "" if tofu > best else f"{tofu:.3f} s, the frontier {best:.3f} s"


def _times(row: Row, name: str) -> dict[int, float]:
    return {each["workers"]: each[name]["step_seconds"] for each in row["workers"] if each[name]}


def _tofu_across_hosts(row: Row) -> str:
    times = _times(row, "tofu")
    return "" if times[16] > times[8] else f"{times[8]:.3f} s over 8, {times[16]:.3f} s over 16"


def _eight_are_enough(row: Row) -> str:
    times = _times(row, "ours")
    if 8 not in times:
        return "8 workers do not fit"
    return "" if times[16] > times[8] / 2 else f"{times[8]:.3f} s over 8, {times[16]:.3f} s over 16"


# --- printing and drawing -------------------------------------------------------------------------


def to_text(document: Row) -> str:
    """The two tables, the frontiers, and the observations."""
    rows = document["rows"]
    lines = [f"TensorOpt's models, predicted on {document['machine']}; nothing was executed", ""]
    header = ("model", "parameters", "paper", "one worker", "paper", "search", "paper")
    lines += table(header, [_sizes(row) for row in rows], right=range(1, 7))
    lines.append("")
    points = [
        (row["model"], *_cells(point), "turning point" if point == row["turning"] else "")
        for row in rows
        for point in [*row["frontier"], *row["rivals"]]
    ]
    lines += table(("model", "a worker holds", "step", "communicated", "plan", ""), points)
    lines.append("")
    names = ("ours", "data-parallel", "tofu")
    cells = [
        (row["model"], str(entry["workers"]), *(_step(entry[name]) for name in names))
        for row in rows
        for entry in row["workers"]
    ]
    header = ("model", "workers", "ours within 16 GiB", "data parallel", "Tofu's plan")
    lines += table(header, cells)
    if not document["reduced"]:  # reduced models say nothing of the full ones
        lines += ["", *(f"{observation}: {verdict}" for observation, verdict in observations(rows))]
    return "\n".join(lines) + "\n"


def _sizes(row: Row) -> tuple[str, ...]:
    parameters, memory, search = PAPER[row["model"]]
    return (
        row["model"],
        f"{row['parameter_bytes'] / 1e9:.2f} GB",
        f"{parameters} GB",
        f"{row['memory_bytes'] / 1e9:.1f} GB",
        f"{memory} GB",
        f"{row['search_seconds']:.2f} s",
        "-" if search is None else f"{search:,} s",
    )


def _cells(point: Row) -> tuple[str, ...]:
    return (
        f"{point['held_bytes'] / 2**30:.2f} GiB",
        f"{point['step_seconds']:.3f} s",
        f"{point['communicated_bytes'] / 2**30:.2f} GiB",
        point["name"],
    )


def _step(point: Optional[Row]) -> str:
    if point is None:
        return "no plan"
    held = f"{point['held_bytes'] / 2**30:.1f} GiB"
    return f"{point['step_seconds']:.3f} s, {held}" + ("" if point["fits"] else ": does not fit")


def draw(document: Row, path: Path) -> None:
    """Figure 6 above: time over memory; Figure 8 below: time over workers."""
    pyplot = pyplot_of("tensoropt")

    rows = document["rows"]
    figure, all_axes = pyplot.subplots(
        2, len(rows), figsize=(3.6 * len(rows), 6.5), layout="constrained", squeeze=False
    )
    for column, row in enumerate(rows):
        _draw_frontier(all_axes[0][column], row)
        _draw_workers(all_axes[1][column], row)
    count = rows[0]["workers"][-1]["workers"]
    figure.suptitle(f"Predicted on {document['machine']}, {count} workers above", fontsize=9)
    save(figure, path)


def _draw_frontier(axes: Any, row: Row) -> None:
    def places(points: Sequence[Row]) -> tuple[list[float], list[float]]:
        return (
            [point["held_bytes"] / 2**30 for point in points],
            [point["step_seconds"] for point in points],
        )

    line_with_dots(axes, *places(row["frontier"]), color="#3b6ea5", label="frontier")
    for point in row["rivals"]:
        colour = _COLOURS.get(point["name"])  # OptCNN's is the end of the frontier
        if colour is not None:
            axes.plot(*places([point]), "s", color=colour, label=point["name"], markersize=5)
    axes.set_title(f"{row['model']}, batch {row['batch']}", fontsize=9)
    axes.set_xlabel("GiB a worker holds")
    axes.set_ylabel("seconds a step")
    axes.legend(fontsize=7)


def _draw_workers(axes: Any, row: Row) -> None:
    for name, colour in (("ours", "#3b6ea5"), ("data-parallel", "#d6a9c3"), ("tofu", "#b98f4a")):
        times = {
            entry["workers"]: entry[name]["step_seconds"]
            for entry in row["workers"]
            if entry[name] and entry[name]["fits"]
        }
        line_with_dots(axes, list(times), list(times.values()), color=colour, label=name)
    axes.set_xlabel("workers, where they fit")
    axes.set_ylabel("seconds a step")
    axes.legend(fontsize=7)


def main() -> None:
    """Plan, print, save and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    args = parser.parse_args()
    if draw_again(args, draw):
        return
    document = {
        "name": "tensoropt", "predicted": True, "machine": MACHINE, "context": context(),
        "reduced": args.smoke, "goal_seconds": GOAL_SECONDS, "rows": [],
    }  # fmt: skip
    for row in measure(args.models, smoke=args.smoke):
        document["rows"].append(row)
        if args.output is not None:  # after every model: an interrupted run keeps its results
            write(args.output, "tensoropt", document)
    print(to_text(document))
    write_and_draw(args.output, "tensoropt", document, draw)


if __name__ == "__main__":
    main()
