"""``tofu export``: writes what an algorithm of one's own needs to plan a graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import click

from tofu.analysis.strategy_table import table_text
from tofu.cli.model import open_model
from tofu.cli.mxnet_model import SymbolInputs
from tofu.cli.options import (
    Script,
    batch_size_option,
    describe_option,
    level_option,
    mesh_option,
    optimizer_option,
    search_option,
    shape_option,
    workers_option,
)
from tofu.errors import ConfigError
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions

__all__ = ["export"]


@click.command(
    cls=Script, short_help="Write the graph, strategies and costs, for an algorithm of your own."
)
@workers_option
@mesh_option
@level_option
@describe_option
@search_option
@shape_option
@optimizer_option
@batch_size_option
@click.option(
    "--output", required=True, metavar="FOLDER", help="Where to write; made if it is not there."
)
@click.argument("target", metavar="SCRIPT|SYMBOL.json|MODEL|MODULE:FUNCTION|FILE.pt2|config.json")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def export(
    workers: Optional[str],
    mesh: Optional[str],
    shapes: tuple[str, ...],
    optimizer: Optional[str],
    batch_size: Optional[int],
    output: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Write a training graph, its strategy table, tofu's plan, and the problem of each step.

    The files are graph.json, table.json, plan.json, and step1.json and so on, in the formats of
    docs/formats.md. A plan that another program makes of them comes back with tofu plan --cuts.
    Of several graphs of a script the first is written. Of several meshes, give one with --mesh.
    """
    opened = open_model(
        target, args, workers=workers, meshes=[mesh] if mesh else [], settings=settings,
        symbol=SymbolInputs(shapes), optimizer=optimizer, batch_size=batch_size,
    )  # fmt: skip
    if len(opened.devices) > 1:
        meshes = " or ".join(each.option for each in opened.devices)
        raise ConfigError(f"tofu export {target}: give one mesh: {meshes}")
    texts = _texts(opened.model.problem(opened.devices[0]), opened.config.search)
    _write(Path(output), texts)
    click.echo(f"wrote {', '.join(texts)} to {output}")


def _texts(problem: Problem, mode: str) -> Mapping[str, str]:
    """The text of each file, by its name."""
    plan = plan_graph(problem, SearchOptions(mode))
    texts = {
        "graph.json": problem.graph.to_json(),
        "table.json": table_text(problem.table),
        "plan.json": plan.to_json(),
    }
    for step in range(len(plan.parts)):
        texts[f"step{step + 1}.json"] = plan.in_graph(problem.table).step_problem(step=step)
    return texts


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files. Raises ConfigError if that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {folder}: cannot be written ({error.strerror})") from None
