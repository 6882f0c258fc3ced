"""TensorOpt's Figure 7, and Tofu's models within memory limits, both as predicted frontiers.

    python scripts/tensoropt7.py --output docs/results     # tensoropt7.json, tensoropt7.svg
    python scripts/tensoropt7.py --smoke                   # reduced models, in seconds

Figure 7 varies the size of the Transformer, the links between hosts, and those within one. The
second part asks how fast WResNet-152-10 and RNN-10-8K are on the paper's machine within 12 to 32
GiB a worker. Nothing runs: times are the search's predictions on a machine file's assumptions.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from _common import context, problem, write
from _figures import draw_again, line_with_dots, parser_of, pyplot_of, save, write_and_draw
from _training import progress
from tensoropt import MACHINE, Row, frontier_of, predicted, record, transformer

from tofu.analysis.strategy_table import strategy_table
from tofu.models import build
from tofu.planner.frontier import Point, turning_point, unbeaten
from tofu.planner.limits import held_bytes
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions
from tofu.plans.machine_files import machine_text
from tofu.tables import table

BATCH = 256
LARGEST = 4096
UNITS = (2048, 3072, LARGEST)
WORKERS, ONE_HOST = 16, 8
# The rates of a level's links, as multiples of those in the machine file.
ACROSS: Mapping[str, float] = {"no RDMA": 0.5, "RDMA": 1, "4 x RDMA": 4}
WITHIN: Mapping[str, float] = {"PCIe": 1 / 20, "NVLink": 1}
LIMITS_GIB = (12, 16, 24, 32)
LIMITED = (("wresnet-152-10", 8), ("rnn-10-8k", 128))
LIMITED_MACHINE = "p2.8xlarge"


def machine_file(folder: Path, level: int, factor: float) -> str:
    """The machine with the links of one level faster or slower."""
    described = json.loads(machine_text(MACHINE))
    link = described["links"][level]
    link["bytes_per_s"] = [[size, rate * factor] for size, rate in link["bytes_per_s"]]
    link["port_bytes_per_s"] *= factor
    path = folder / f"links{level}-{factor:g}.json"
    path.write_text(json.dumps(described), encoding="utf-8")
    return str(path)


def _transformer(units: int, workers: int, smoke: bool) -> Problem:
    graph = build(transformer(units), 64 if smoke else BATCH, reduced=smoke)
    strategies, _ = strategy_table(graph.training_graph(optimizer="sgd"))
    return Problem(f"transformer, {units} units", strategies, workers)


def figure7(folder: Path, smoke: bool) -> Iterator[Row]:
    """A frontier for each line of the figure."""
    workers, one_host = (4, 2) if smoke else (WORKERS, ONE_HOST)
    cases = [("size", f"{units:,} units", units, workers, MACHINE) for units in UNITS]
    cases += [
        ("across hosts", name, LARGEST, workers, machine_file(folder, 1, factor))
        for name, factor in ACROSS.items()
    ]
    cases += [
        ("within a host", name, LARGEST, one_host, machine_file(folder, 0, factor))
        for name, factor in WITHIN.items()
    ]
    for number in progress(len(cases), "Figure 7"):
        part, name, units, count, machine = cases[number]
        yield {"part": part, "name": name, **_frontier(_transformer(units, count, smoke), machine)}


def _frontier(case: Problem, machine: str) -> Row:
    front = unbeaten(frontier_of(case, machine))
    turning = turning_point(front)
    return {
        "workers": case.workers,
        "frontier": [record(point) for point in front],
        "turning": None if turning is None else record(turning),
    }


def within_limits(smoke: bool) -> Iterator[Row]:
    """The fastest plan within each limit, and the plan of fewest bytes."""
    for number in progress(len(LIMITED), "memory limits"):
        model, batch = LIMITED[number]
        case = problem(model, batch_size=batch, reduced=smoke)
        points = frontier_of(case, LIMITED_MACHINE)
        fewest = plan_graph(case, SearchOptions(machine=LIMITED_MACHINE))
        rows = {f"{limit} GiB": _within(points, limit * 2**30) for limit in LIMITS_GIB}
        yield {
            "model": model,
            "batch": batch,
            "workers": case.workers,
            "limits": rows,
            "fewest bytes": record(Point("fewest bytes", fewest, predicted(fewest))),
            "least_bytes": min(held_bytes(point.plan) for point in points),
        }


def _within(points: Sequence[Point], limit_bytes: int) -> Optional[Row]:
    fitting = [point for point in points if point.held_bytes <= limit_bytes]
    return record(min(fitting, key=lambda point: point.cost)) if fitting else None


# --- printing and drawing -------------------------------------------------------------------------


def observations(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """TensorOpt's observations on Figure 7, each with "holds" or the reason why not."""
    turnings = {(row["part"], row["name"]): _turning(row) for row in rows}
    sizes = [turnings["size", f"{units:,} units"]["held_bytes"] for units in UNITS]
    yield (
        "larger models turn at more memory",
        "holds" if sizes == sorted(set(sizes)) else ", ".join(map(_gib, sizes)),
    )
    across = [turnings["across hosts", name] for name in ACROSS]
    held = [point["held_bytes"] for point in across]
    yield (
        "links between hosts hardly move the turning point's memory",
        "holds" if max(held) <= 1.1 * min(held) else ", ".join(map(_gib, held)),
    )
    slow, fast = across[0]["step_seconds"], across[-1]["step_seconds"]
    times = f"{slow:.3f} s without RDMA, {fast:.3f} s with four times its rate"
    yield "4 x RDMA takes about half the time of no RDMA", "holds" if fast < 0.65 * slow else times
    pcie, nvlink = (turnings["within a host", name]["step_seconds"] for name in WITHIN)
    times = f"{pcie:.3f} s with PCIe, {nvlink:.3f} s with NVLink"
    yield "NVLink is much faster than PCIe", "holds" if nvlink < 0.5 * pcie else times


def _turning(row: Row) -> Row:
    point: Row = row["turning"] or row["frontier"][-1]
    return point


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def to_text(document: Row) -> str:
    """Both parts as tables, and the observations."""
    lines = ["Frontiers of the Transformer, predicted; nothing was executed", ""]
    cells = [
        (row["part"], row["name"], str(row["workers"]), *_ends(row)) for row in document["rows"]
    ]
    header = ("", "", "workers", "least memory", "turning point", "fastest")
    lines += [*table(header, cells), ""]
    if not document["reduced"]:
        lines += [
            f"{observation}: {verdict}" for observation, verdict in observations(document["rows"])
        ]
        lines.append("")
    limits = [f"{limit} GiB" for limit in LIMITS_GIB]
    columns = [*limits, "fewest bytes"]
    cells = [
        (row["model"], *(_point(row["limits"].get(each, row.get(each))) for each in columns))
        for row in document["limited"]
    ]
    lines += [f"Within limits, on {LIMITED_MACHINE}", ""]
    lines += table(("model", *(f"within {each}" for each in limits), "fewest bytes"), cells)
    return "\n".join(lines) + "\n"


def _ends(row: Row) -> Sequence[str]:
    return [_point(point) for point in (row["frontier"][0], row["turning"], row["frontier"][-1])]


def _point(point: Optional[Row]) -> str:
    if point is None:
        return "none"
    return f"{point['step_seconds']:.3f} s, {_gib(point['held_bytes'])}"


def draw(document: Row, path: Path) -> None:
    """Draw time over memory, a picture for each part of the figure."""
    pyplot = pyplot_of("tensoropt7")

    parts = list(dict.fromkeys(row["part"] for row in document["rows"]))
    figure, all_axes = pyplot.subplots(
        1, len(parts), figsize=(3.6 * len(parts), 3.4), layout="constrained", squeeze=False
    )
    for part, axes in zip(parts, all_axes[0]):
        for row in document["rows"]:
            if row["part"] == part:
                _draw_line(axes, row)
        axes.set_title(part, fontsize=9)
        axes.set_xlabel("GiB a worker holds")
        axes.set_ylabel("seconds a step")
        axes.legend(fontsize=7)
    save(figure, path)


def _draw_line(axes: Any, row: Row) -> None:
    held = [point["held_bytes"] / 2**30 for point in row["frontier"]]
    seconds = [point["step_seconds"] for point in row["frontier"]]
    line_with_dots(axes, held, seconds, label=row["name"])


def main() -> None:
    """Plan, print, save and draw."""
    args = parser_of(__doc__).parse_args()
    if draw_again(args, draw):
        return
    with tempfile.TemporaryDirectory() as folder:
        document = {
            "name": "tensoropt7", "predicted": True, "machine": MACHINE, "context": context(),
            "reduced": args.smoke, "rows": [], "limited": [],
        }  # fmt: skip
        for row in figure7(Path(folder), args.smoke):
            document["rows"].append(row)
            if args.output is not None:  # after every part: an interrupted run keeps its results
                write(args.output, "tensoropt7", document)
        document["limited"] = list(within_limits(args.smoke))
    print(to_text(document))
    write_and_draw(args.output, "tensoropt7", document, draw)


if __name__ == "__main__":
    main()
