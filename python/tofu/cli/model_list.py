"""``tofu models``: the networks that commands know by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from tofu.cli.options import format_option
from tofu.models import LABEL, MODELS
from tofu.tables import csv_table, table

__all__ = ["models_command"]

_COLUMNS = ("model", "batch", "inputs of an example", "label")


@click.command("models", short_help="List the networks known by name.")
@format_option(("text", "json", "csv"), "A table, the JSON document, or comma-separated values.")
def models_command(form: str) -> None:
    """List the networks that plan, compare, estimate, frontier and simulate take as MODEL."""
    records = list(_records())
    if form == "json":
        document = {"format": "tofu-models", "version": 1, "models": records}
        click.echo(json.dumps(document, indent=1))
        return
    rows = [
        (model["name"], str(model["batch_size"]), _shapes(model["inputs"]), _shape(model["label"]))
        for model in records
    ]
    if form == "csv":
        click.echo(csv_table(_COLUMNS, (dict(zip(_COLUMNS, row)) for row in rows)), nl=False)
        return
    click.echo("\n".join(table(_COLUMNS, rows, right=(1,))))


def _records() -> Iterator[dict[str, Any]]:
    for model in MODELS.values():
        inputs = {name: list(shape) for name, shape in model.full.inputs.items()}
        label = inputs.pop(LABEL)
        yield {
            "name": model.name,
            "batch_size": model.batch_size,
            "inputs": inputs,
            "label": label,
        }


def _shapes(inputs: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} {_shape(shape)}" for name, shape in inputs.items())


def _shape(shape: list[int]) -> str:
    return "x".join(map(str, shape)) or "1"
