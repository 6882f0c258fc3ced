"""Compares systems on models, simulated: shared by figure8.py, figure9.py and table3.py."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _common import context, write
from _figures import draw_again, parser_of, pyplot_of, save, write_and_draw
from _simulated_systems import Plans, simulate_system
from _steps import WAYS
from _training import progress

from tofu.models import find
from tofu.tables import table

MACHINE = "p2.8xlarge"
SMOKE_BATCH = 8
DEFAULT_WAY = "multifetch"
OURS = ("tofu", "time")
Row = dict[str, Any]
LABELS = {
    "ideal": "Ideal",
    "smallbatch": "SmallBatch",
    "swap": "Swapping",
    "placement": "Op placement",
    "dataparallel": "data parallel",
    "tofu": "tofu",
    "time": "tofu, for time",
}
COLOURS = {
    "ideal": "#c9c9c9",
    "smallbatch": "#a9bfd6",
    "swap": "#d6c3a9",
    "placement": "#b9d6a9",
    "dataparallel": "#d6a9c3",
    "tofu": "#3b6ea5",
    "time": "#1d3f66",
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The systems and models that a script compares.

    Attributes:
        name: of its files, such as "figure8".
        title: for the picture.
        models: names of models.
        systems: names of systems; "ideal" first, if the others are to be compared with it.
        largest_batch: the batch size that "ideal" has and the others try first.
    """

    name: str
    title: str
    models: Sequence[str]
    systems: Sequence[str]
    largest_batch: int


_PLAIN = "plain: workers copy, as a default run does, where that is faster than multifetch."


def measure(
    comparison: Comparison, *, smoke: bool, known: Sequence[Row] = (), only: Sequence[str] = ()
) -> Iterator[Row]:
    """Simulate every system on every model.

    Args:
        comparison: the systems and the models.
        smoke: whether to take reduced models.
        known: rows of other raw data, which are not simulated again.
        only: models, systems or both to simulate; empty: all. Others are left out if not known.
    """
    models = set(only) & set(comparison.models) or set(comparison.models)
    systems = set(only) & set(comparison.systems) or set(comparison.systems)
    earlier = {(row["model"], row["system"]): row for row in known}
    cases = [
        (model, system)
        for model in comparison.models
        for system in comparison.systems
        if (model, system) in earlier or (model in models and system in systems)
    ]
    largest = SMOKE_BATCH if smoke else comparison.largest_batch
    plans: Plans = {}
    for number in progress(len(cases), f"simulating {comparison.name}"):
        model, system = cases[number]
        if number and model != cases[number - 1][0]:
            plans = {}  # of another model
        if (model, system) in earlier:
            yield earlier[model, system]
            continue
        ways = WAYS if system in OURS else [DEFAULT_WAY]
        outcomes = [
            (
                simulate_system(
                    system, find(model), MACHINE, largest_batch=largest, reduced=smoke,
                    fetch=fetch, plans=plans,
                ),
                fetch,
            )
            for fetch in ways
        ]  # fmt: skip
        best, fetch = max(outcomes, key=lambda each: (each[0].fits, each[0].samples_per_second))
        yield {**dataclasses.asdict(best), "fetch": fetch}


def to_json(comparison: Comparison, rows: Sequence[Row], *, smoke: bool) -> dict[str, Any]:
    """The outcomes for a program."""
    return {
        "name": comparison.name,
        "title": comparison.title,
        "simulated": True,
        "machine": MACHINE,
        "context": context(),
        "reduced": smoke,
        "rows": list(rows),
    }


def to_text(document: dict[str, Any]) -> str:
    """A table; everything in it is simulated."""
    header = (
        "model", "system", "workers read by", "batch", "samples/s", "of ideal", "step", "compute",
        "fetch", "waiting", "a device holds",
    )  # fmt: skip
    lines = [f"{document['title']}, simulated on {document['machine']}", ""]
    lines += table(header, list(_cells(document)), right=range(3, 11))
    if any(row["system"] in OURS and row.get("fetch") == "plain" for row in document["rows"]):
        lines += ["", _PLAIN]
    return "\n".join(lines) + "\n"


def _cells(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    ideal = {
        row["model"]: row["samples_per_second"]
        for row in document["rows"]
        if row["system"] == "ideal"
    }
    for row in document["rows"]:
        share = row["samples_per_second"] / ideal[row["model"]] if row["model"] in ideal else None
        rate = f"{row['samples_per_second']:.2f}" if row["fits"] else "out of memory"
        ideal_share = f"{share:.0%}" if share is not None and row["fits"] else "-"
        times = ("step_seconds", "compute_seconds", "fetch_seconds", "waiting_seconds")
        yield (
            row["model"],
            LABELS[row["system"]],
            row.get("fetch", "-") if row["system"] in OURS else "-",
            str(row["batch_size"]),
            rate,
            ideal_share,
            *(f"{row[name]:.3f} s" for name in times),
            f"{row['memory_bytes'] / 2**30:.1f} GiB",
        )


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw groups of bars, a group for each model; relative to "ideal" if it was simulated."""
    pyplot = pyplot_of(document["name"])

    models = list(dict.fromkeys(row["model"] for row in document["rows"]))
    systems = list(dict.fromkeys(row["system"] for row in document["rows"]))
    rates = {(row["model"], row["system"]): row for row in document["rows"]}
    width = 0.8 / len(systems)
    figure, axes = pyplot.subplots(
        figsize=(max(8, 1.5 + 1.5 * len(models)), 4.5), layout="constrained"
    )
    for at, system in enumerate(systems):
        for group, model in enumerate(models):
            row = rates.get((model, system))
            if row is None or (systems[0] == "ideal" and (model, "ideal") not in rates):
                continue
            base = rates[model, systems[0]]["samples_per_second"] if systems[0] == "ideal" else 1
            height = row["samples_per_second"] / base if row["fits"] else 0
            place = group + at * width
            label = LABELS[system] * (group == 0)
            axes.bar(place, height, width, color=COLOURS[system], label=label)
            text = f" {row['samples_per_second']:.3g}" if row["fits"] else " OOM"
            axes.text(place, height, text, rotation=90, ha="center", va="bottom", fontsize=7)
    axes.set_xticks([group + 0.4 - width / 2 for group in range(len(models))], models, fontsize=8)
    axes.set_ylabel("throughput" + ", relative to ideal" * (systems[0] == "ideal"))
    axes.set_ylim(top=axes.get_ylim()[1] * 1.25)
    axes.legend(ncol=len(systems), fontsize=8, loc="upper right")
    axes.set_title(
        f"{document['title']}, simulated on {document['machine']} (samples per second on bars)",
        fontsize=9,
    )
    save(figure, path)


def main(comparison: Comparison, description: str) -> None:
    """Simulate, print, save and draw."""
    parser = parser_of(description)
    parser.add_argument(
        "--rows", type=Path, metavar="JSON", help="raw data whose rows are not simulated again"
    )
    parser.add_argument("--only", nargs="+", default=[], help="models and systems to simulate")
    args = parser.parse_args()
    if draw_again(args, draw):
        return
    earlier: dict[str, Any] = {"rows": []}
    if args.rows is not None:
        earlier = json.loads(args.rows.read_text(encoding="utf-8"))
    rows: list[Row] = []
    for row in measure(comparison, smoke=args.smoke, known=earlier["rows"], only=args.only):
        rows.append(row)
        if args.output is not None:  # after every model: an interrupted run goes on with --rows
            write(args.output, f"{comparison.name}.part", {"rows": rows})
    document = to_json(comparison, rows, smoke=args.smoke)
    if "made" in earlier:  # rows that are kept are as old as their file says
        document["made"] = earlier["made"]
    print(to_text(document))
    if args.output is not None:
        (args.output / f"{comparison.name}.part.json").unlink()
    write_and_draw(args.output, comparison.name, document, draw)
