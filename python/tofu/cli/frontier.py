"""``tofu frontier``: the plans that trade time against memory, as a table and a picture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import click

from tofu.cli.model import open_model
from tofu.cli.mxnet_model import SymbolInputs
from tofu.cli.options import (
    Script,
    batch_size_option,
    describe_option,
    device_option,
    format_option,
    level_option,
    mesh_option,
    optimizer_option,
    shape_option,
    workers_option,
)
from tofu.config import parse_bytes
from tofu.errors import ConfigError, PlanError
from tofu.planner.frontier import Point, changed, frontier, turning_point, unbeaten
from tofu.planner.frontier_picture import draw
from tofu.planner.prediction import step_predictor
from tofu.planner.rivals import rivals_of
from tofu.planner.sweep import Measure
from tofu.plans import SearchOptions
from tofu.plans.plan import format_bytes, format_seconds
from tofu.plans.render.html import render_html
from tofu.tables import csv_table, html_page, table

__all__ = ["frontier_command", "render"]

FORMATS = ("text", "json", "csv", "svg", "html")
_RIVALS = "data-parallel,tofu,optcnn,mesh-tensorflow"
_COMPLETE = "proven: no other plan beats these in what the search minimises and in memory of tiles"
_MODES = "allrow-greedy,spartan,equalchop,icml18"


@click.command("frontier", cls=Script, short_help="Print the plans that trade time against memory.")
@workers_option
@click.option(
    "--machine",
    metavar="FILE|NAME",
    help="Trade the time of a step on this machine, which tofu simulate predicts; without it, "
    "bytes communicated are traded against memory.",
)
@mesh_option
@click.option("--memory", metavar="SIZE", help="Leave out plans that hold more, such as 12GiB.")
@click.option(
    "--limits",
    type=click.IntRange(min=1, max=1000),
    default=8,
    show_default=True,
    help="How many memory limits to search within, at most.",
)
@click.option(
    "--rivals", metavar="NAME,...",
    help="Plans of other systems to compare with: data-parallel, tofu, optcnn, or search modes; "
    f"empty: none. Default: {_RIVALS},{_MODES}, without optcnn if there is no machine.",
)  # fmt: skip
@click.option(
    "--recompute", type=click.Choice(("auto", "none")), default="auto", show_default=True,
    help="With --machine: whether activations may be computed again in the backward pass.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Estimate memory instead of counting it exactly.")
@device_option
@level_option
@describe_option
@shape_option
@optimizer_option
@batch_size_option
@click.option(
    "--save", metavar="FILE", help="Save the cheapest plan of the frontier for tofu run --plan."
)
@click.option(
    "--pages", metavar="FOLDER",
    help="Web page: write a page of each plan of the frontier to this folder, and link to it.",
)  # fmt: skip
@format_option(
    FORMATS,
    "A table, a JSON document, comma-separated values, a picture, or a web page with both.",
)
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2|config.json")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def frontier_command(
    machine: Optional[str],
    mesh: Optional[str],
    memory: Optional[str],
    workers: Optional[str],
    limits: int,
    rivals: Optional[str],
    recompute: str,
    quick: bool,
    shapes: tuple[str, ...],
    optimizer: Optional[str],
    batch_size: Optional[int],
    save: Optional[str],
    pages: Optional[str],
    form: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Search plans within memory limits, and print those that no other one beats."""
    if pages is not None and form != "html":
        raise ConfigError("--pages is for a page: give --format html, too")
    most = None if memory is None else parse_bytes(memory, "--memory")
    options = (
        SearchOptions() if machine is None else SearchOptions(objective="time", machine=machine)
    )
    if rivals is None:
        rivals = f"{_RIVALS},{_MODES}" if machine else f"{_RIVALS},{_MODES}".replace("optcnn,", "")
    compared = rivals_of([each.strip() for each in rivals.split(",") if each.strip()], options)
    opened = open_model(
        target, args, workers=workers, meshes=[mesh] if mesh else [], symbol=SymbolInputs(shapes),
        optimizer=optimizer, batch_size=batch_size, settings=settings,
    )  # fmt: skip
    model, devices, config = opened.model, opened.devices, opened.config
    predict = None
    if machine is not None:
        predict = step_predictor(machine, devices[0].workers, config.fetch)
    points: list[Point] = []
    for each in devices:
        found = frontier(
            model.problem(each),
            options,
            limits=limits,
            most_bytes=most,
            rivals=compared,
            measure=Measure(not quick, predict, config.fetch),
            recompute=recompute == "auto" and machine is not None,
        )
        suffix = f", {each}" if len(devices) > 1 else ""
        points += (dataclasses.replace(point, name=point.name + suffix) for point in found)
    front = _kept(target, points, most, devices[0].workers)
    if save is not None:
        problem = front[-1].problem or model.problem(devices[0])
        problem.front_end.save(Path(save), problem, front[-1].plan)
    if pages is not None:
        points = _with_pages(points, front, Path(pages), most)
    click.echo(render(target, points, form), nl=False)


def _with_pages(
    points: Sequence[Point], front: Sequence[Point], folder: Path, most: Optional[int]
) -> list[Point]:
    """The points, those of the frontier with pages. Raises ConfigError for an unusable folder."""
    page_of = {id(point): folder / f"plan{number}.html" for number, point in enumerate(front, 1)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for point, path in zip(front, page_of.values()):
            graph = None if point.problem is None else point.problem.graph
            page = render_html(point.plan, graph=graph, limit_bytes=most)
            path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--pages {folder}: cannot be written ({error.strerror})") from None
    return [
        dataclasses.replace(point, page=str(page_of[id(point)])) if id(point) in page_of else point
        for point in points
    ]


def _kept(target: str, points: Sequence[Point], most: Optional[int], workers: int) -> list[Point]:
    """The frontier. Raises PlanError if it is empty."""
    front = unbeaten(points)
    if not front:
        size = format_bytes(most or 0)
        raise PlanError(
            f"tofu frontier {target}: no plan over {workers} workers fits in {size}; tofu estimate "
            f"{target} says which number would do"
        )
    return front


# --- printing -----------------------------------------------------------------------------------


def render(target: str, points: Sequence[Point], form: str) -> str:
    """The frontier in one of FORMATS."""
    front = unbeaten(points)
    turning = turning_point(front)
    rivals = [point for point in points if point.is_rival]
    beaten = [point for point in rivals if not any(point is each for each in front)]
    if form == "json":
        document = {
            "format": "tofu-frontier",
            "version": 1,
            "target": target,
            "workers": front[0].plan.workers,
            "complete": any(point.is_proven for point in points),
            "frontier": [
                {**_record(point, turning), "changes": changed(before, point) if before else ""}
                for before, point in zip([None, *front], front)
            ],
            "rivals": [_record(point, None) for point in rivals],
        }
        return json.dumps(document, indent=1) + "\n"
    if form == "csv":
        records = [{**_record(p, turning), "rival": p.is_rival} for p in [*front, *beaten]]
        return csv_table(list(records[0]), records)
    if form == "svg":
        return draw(target, front, rivals, turning)
    header, rows = _rows(front, beaten, turning)
    if form == "html":
        picture = draw("", front, rivals, turning)
        numbers = range(len(header) - 1)
        changes = ["", *map(changed, front, front[1:]), *["shown to compare"] * len(beaten)]
        name = len(header) - 1
        links = {(row, name): point.page for row, point in enumerate([*front, *beaten])}
        rows = [(*row, change) for row, change in zip(rows, changes)]
        header = (*header, "changes against the plan above")
        return html_page(
            f"Frontier of {target}", header, rows, right=numbers, lead=[_lead(front, points)],
            picture=picture, notes=[_CUTS], links=links,
        )  # fmt: skip
    lines = table(header, rows, right=(0, 1, 2))
    if any(point.is_proven for point in points):
        lines.append(_COMPLETE)
    return "\n".join(lines) + "\n"


_CUTS = (
    "After the name of a tensor stands the dimension that each step cuts now; - leaves it whole at "
    "that step."
)


def _lead(front: Sequence[Point], points: Sequence[Point]) -> str:
    """The first sentence of the page."""
    ends = [(format_bytes(point.held_bytes), _cost_text(point)) for point in (front[0], front[-1])]
    over = f"over {front[0].plan.workers} workers"
    sentence = f"One plan {over} has the least of both: {ends[0][0]} on a worker and {ends[0][1]}."
    if len(front) > 1:
        sentence = (
            f"{len(front)} plans {over}, each of which holds less or costs less than any other: "
            f"from {ends[0][0]} on a worker and {ends[0][1]} to {ends[1][0]} and {ends[1][1]}."
        )
    is_complete = any(point.is_proven for point in points)
    return sentence + f" {_COMPLETE.capitalize()}." * is_complete


def _cost_text(point: Point) -> str:
    if point.step_seconds is None:
        return f"{format_bytes(point.plan.total_bytes)} communicated in a step"
    return f"{format_seconds(point.step_seconds)} for a step"


def _record(point: Point, turning: Optional[Point]) -> dict[str, Any]:
    return {
        "name": point.name,
        "held_bytes": point.held_bytes,
        "tile_bytes": point.tile_bytes,
        "communicated_bytes": point.plan.total_bytes,
        "step_seconds": point.step_seconds,
        "turning_point": point is turning,
    }


def _rows(
    front: Sequence[Point], rivals: Sequence[Point], turning: Optional[Point]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    is_timed = front[0].step_seconds is not None
    header = ("a worker holds", "communicated", *(["a step takes"] if is_timed else []), "plan")
    rows = []
    for point in [*front, *rivals]:
        seconds = [format_seconds(point.step_seconds)] if point.step_seconds is not None else []
        name = point.name + (" (turning point)" if point is turning else "")
        memory, traffic = format_bytes(point.held_bytes), format_bytes(point.plan.total_bytes)
        rows.append((memory, traffic, *seconds, name))
    return header, rows
