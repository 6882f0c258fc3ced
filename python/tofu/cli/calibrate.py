"""``tofu calibrate``: measures the machine at hand, and writes its machine file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tofu.errors import ConfigError
from tofu.installation import check_mxnet

__all__ = ["calibrate"]


@click.command()
@click.option(
    "--output",
    required=True,
    metavar="FILE",
    help="The machine file to write.",
)
@click.option(
    "--smoke", is_flag=True, help="Measure a small part only, to check that it works here."
)
def calibrate(output: str, smoke: bool) -> None:
    """Measure this machine, and write its file.

    Runs operators, copies and the engine on CPU contexts.

    Takes a few minutes. Workers have one thread each, as with OMP_NUM_THREADS=1.
    """
    path = Path(output)
    if not os.path.isdir(path.parent):
        raise ConfigError(f"--output {output}: found no folder {path.parent}, expected one")
    os.environ["OMP_NUM_THREADS"] = "1"  # before MXNet is loaded
    check_mxnet("tofu calibrate", load=True)
    from tofu.models import find
    from tofu.simulate.calibrate import calibrate as measure

    models = [(find("mlp"), 8, True)] if smoke else None
    document = measure(models=models, progress=_progress)
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {output}: cannot be written ({error.strerror})") from None
    click.echo(f"{path}: {len(document['operators'])} tables of operators' rates")


def _progress(calls: Sequence[Any]) -> Iterator[Any]:
    """The calls, with a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    text = f"measuring {len(calls)} operators"
    shown = console.is_terminal
    yield from track(calls, text, console=console, disable=not shown, transient=True)
