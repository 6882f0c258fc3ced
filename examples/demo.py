"""Train the example scripts twice, serially and over several workers, and compare.

The scripts contain no tofu code: the second run differs from the first only in its environment,
``MXNET_GRAPH_PASS=tofu TOFU_WORKERS=4``. Prints one table per script at the end::

    python examples/demo.py
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from rich import box
from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent
SCRIPTS = ("digits_resnet.py", "text_lstm.py")


@dataclasses.dataclass(frozen=True)
class Run:
    """The results of one run of a script."""

    losses: list[float]
    weights: Path
    seconds: float
    summary: Optional[dict[str, Any]]  # tofu's report on the training graph


def run_script(
    console: Console, script: Path, title: str, folder: Path, epochs: int, env: Mapping[str, str]
) -> Run:
    """Run `script` with `env` added to the environment, and show its output immediately."""
    folder.mkdir(parents=True)
    weights, metrics = folder / "weights.params", folder / "metrics.json"
    command = [sys.executable, str(script), "--epochs", str(epochs)]
    command += ["--save", str(weights), "--metrics", str(metrics)]
    shown = " ".join(f"{name}={value}" for name, value in env.items() if name != "TOFU_LOG")
    started = f"{shown} python examples/{script.name}".lstrip()
    console.print(f"\n[bold]{title}[/]: {started}", soft_wrap=True)
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    with console.status(f"{script.name}, {title}"):
        for line in process.stdout:
            console.print(f"  {line.rstrip()}", markup=False, soft_wrap=True)
    if process.wait() != 0:
        raise SystemExit(f"demo: {script.name} ({title}) failed with status {process.returncode}")
    return Run(
        losses=json.loads(metrics.read_text(encoding="utf-8"))["loss"],
        weights=weights,
        seconds=time.perf_counter() - start,
        summary=read_summary(folder / "dump" / "summary.json"),
    )


def read_summary(path: Path) -> Optional[dict[str, Any]]:
    """The first graph that tofu reports: the graph of a whole training batch."""
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    return json.loads(lines[0]) if lines else None


def largest_difference(first: Path, second: Path) -> float:
    """The largest difference between two parameter files, over all elements."""
    import mxnet as mx

    one, other = mx.nd.load(str(first)), mx.nd.load(str(second))
    if one.keys() != other.keys():
        raise SystemExit(f"demo: {first} and {second} name different parameters")
    return max(float(abs(one[name] - other[name]).max().asscalar()) for name in one)


def make_table(script: str, workers: int, serial: Run, partitioned: Run) -> Table:
    """A table of the losses of both runs, then the cost of the partitioned run."""
    summary = partitioned.summary
    if summary is None:
        raise SystemExit(f"demo: {script} ran, but tofu partitioned none of its blocks")
    table = Table(title=f"\n{script}", title_justify="left", title_style="bold", box=box.SIMPLE)
    table.add_column("")
    for heading in ("serial", f"{workers} workers", "difference"):
        table.add_column(heading, justify="right")
    for epoch, losses in enumerate(zip(serial.losses, partitioned.losses), 1):
        difference = abs(losses[0] - losses[1])
        table.add_row(f"loss, epoch {epoch}", *(f"{x:.6f}" for x in losses), f"{difference:.1e}")
    table.add_section()
    weights = largest_difference(serial.weights, partitioned.weights)
    table.add_row("final weights, largest difference", "", "", f"{weights:.1e}")
    share = summary["serial_bytes"] / workers
    largest = max(summary["bytes_per_worker"])
    table.add_section()
    table.add_row("bytes communicated per step", "0", f"{summary['bytes_per_step']:,}", "")
    table.add_row("bytes of all tensors", f"{summary['serial_bytes']:,}", "", "")
    table.add_row(f"  serial / {workers}", f"{share:,.0f}", "", "")
    table.add_row("  on the fullest worker", "", f"{largest:,}", f"{largest / share:.2f} x")
    table.add_row("search time", "", f"{summary['search_seconds']:.3f} s", "")
    table.add_row("run time", f"{serial.seconds:.1f} s", f"{partitioned.seconds:.1f} s", "")
    return table


def main() -> None:
    """Run every script twice and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="default: all of them")
    args = parser.parse_args()
    console = Console(highlight=False)
    tables = []
    with tempfile.TemporaryDirectory(prefix="tofu-demo-") as temporary:
        for name in args.scripts or SCRIPTS:
            script, folder = EXAMPLES / name, Path(temporary) / Path(name).stem
            serial = run_script(console, script, "serial", folder / "serial", args.epochs, {})
            switch = {
                "MXNET_GRAPH_PASS": "tofu",
                "TOFU_WORKERS": str(args.workers),
                "TOFU_LOG": f"dump:{folder / 'tofu' / 'dump'}",
            }
            partitioned = run_script(
                console, script, f"{args.workers} workers", folder / "tofu", args.epochs, switch
            )
            tables.append(make_table(name, args.workers, serial, partitioned))
        for table in tables:
            console.print(table)


if __name__ == "__main__":
    main()
