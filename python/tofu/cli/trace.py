"""``tofu trace``: profiles training steps of a script, and says what bounds them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tofu.cli.options import (
    Script,
    check_script,
    describe_option,
    device_option,
    fetch_option,
    format_option,
    log_option,
    search_option,
    switch_on,
    tell_misplaced,
    workers_option,
)
from tofu.cli.reports.trace_file import check_output, write_trace
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.tables import table

__all__ = ["bounds", "trace"]

_RECORD = "tofu.trace.profiled_run"
_LONGEST = 4
# The profiler's names of operators grow with every step.
_MOST_STEPS = 100


@click.command(
    cls=Script,
    context_settings={"allow_interspersed_args": False},
    short_help="Profile training steps of a script.",
)
@workers_option
@device_option
@fetch_option
@log_option
@describe_option
@search_option
@click.option("--plan", metavar="PLAN", help="Use a plan that tofu plan --save wrote.")
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    metavar="M",
    help="Training steps before; the first ones plan and allocate.",
)
@click.option(
    "--steps",
    type=click.IntRange(1, _MOST_STEPS),
    default=1,
    show_default=True,
    metavar="N",
    help="Training steps to profile.",
)
@click.option(
    "--output", default="trace.json", show_default=True, metavar="FILE",
    help="The trace, for ui.perfetto.dev or chrome://tracing.",
)  # fmt: skip
@format_option(("text", "json"), "Tables, or the JSON document.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def trace(
    skip: int,
    steps: int,
    output: str,
    form: str,
    script: str,
    args: tuple[str, ...],
    **options: Any,
) -> None:
    """Run SCRIPT partitioned with MXNet's profiler on, and say what bounds a training step.

    Prints for each worker how long it computes, fetches and waits, and writes all of it as a
    trace. The script ends after the last profiled step.
    """
    check_script(script)
    check_mxnet("tofu trace", load=False)
    check_output(Path(output), script, "--output")
    config = switch_on(**options)
    tell_misplaced(click.get_current_context(), script, args)
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "document.json"
        line = [sys.executable, "-m", _RECORD, str(out), str(skip), str(steps), script, *args]
        # The script's output must not get into the document.
        out_of_script = sys.stderr.fileno() if form == "json" else None
        status = subprocess.run(line, stdout=out_of_script, check=False).returncode
        if status and status != -signal.SIGALRM:  # which ends a process that has written all
            raise SystemExit(status if status > 0 else 128 - status)
        document: dict[str, Any] = {"seen": 0}
        if out.is_file():
            document = json.loads(out.read_text(encoding="utf-8"))
    if "trace" not in document:
        raise ConfigError(f"tofu trace {script}: {_missing(document['seen'], skip, steps)}")
    write_trace(Path(output), document["trace"], "--output")
    if form == "json":
        click.echo(json.dumps(_summary(document, steps), indent=1))
    else:
        click.echo("\n".join([*_table(document, steps), "", *bounds(document, steps)]))
    cores = len(os.sched_getaffinity(0))
    if config.device != "gpu" and len(document["workers"]) > cores:
        click.echo(
            f"tofu: {len(document['workers'])} workers share {cores} cores, so operators "
            "also take the time of others that run meanwhile",
            err=True,
        )


def _summary(document: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The table and the lines below it as JSON (docs/formats.md), in microseconds of one step."""
    return {
        "format": "tofu-trace",
        "version": 1,
        "steps": steps,
        "step_us": document["duration"] / steps,
        "busiest": document["busiest"],
        "workers": [
            {"name": name, **{f"{kind}_us": spent / steps for kind, spent in share.items()}}
            for name, share in zip(document["workers"], document["shares"])
        ],
        "bounds": bounds(document, steps),
    }


def bounds(document: Mapping[str, Any], steps: int) -> list[str]:
    """Three lines: the busiest worker's time, the step's bound, and its longest operators."""
    duration, busiest = document["duration"], document["busiest"]
    share = document["shares"][busiest]
    computation, fetch, others = (share[k] / duration for k in ("computation", "fetch", "others"))
    script = 1 - computation - fetch - others
    mean = f"steps of {_time(duration / steps)} (mean of {steps})"
    reasons = {
        f"computation bounds the step: worker {busiest} computes {computation:.0%} of it": (
            computation
        ),
        f"fetches bound the step: worker {busiest} moves data {fetch:.0%} of it": fetch,
        f"dependencies bound the step: worker {busiest} waits for other workers {others:.0%} "
        "of it": others,
        f"the script bounds the step: worker {busiest} and all others wait for it {script:.0%} of "
        "the time (Python, data, starting operators)": script,
    }
    longest = ", ".join(
        f"{name} {_time(count / steps)}" for name, count in document["longest"][:_LONGEST]
    )
    return [
        f"{f'a step of {_time(duration)}' if steps == 1 else mean}: worker {busiest}, the busiest, "
        f"computes {computation:.0%}, fetches {fetch:.0%}, waits {others + script:.0%}",
        max(reasons, key=lambda reason: reasons[reason]),
        f"longest on worker {busiest}: {longest}",
    ]


def _table(document: Mapping[str, Any], steps: int) -> list[str]:
    header = ("worker", "computes", "fetches", "waits for workers", "for the script", "step")
    rows = []
    for number, (device, share) in enumerate(zip(document["workers"], document["shares"])):
        alone = share["waiting"] - share["others"]
        parts = (share["computation"], share["fetch"], share["others"], alone)
        times = (_time(part / steps) for part in (*parts, document["duration"]))
        rows.append((f"{number} {device}", *times))
    return list(table(header, rows, right=range(1, len(header))))


def _time(microseconds: float) -> str:
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


def _missing(seen: int, skip: int, steps: int) -> str:
    if seen >= skip + steps:
        return "no partitioned block ran in the profiled steps; TOFU_STRICT=1 tells why"
    steps_seen = f"{seen} training step{'s' * (seen != 1)}" if seen else "no training step"
    return (
        f"it ended after {steps_seen}; expected {skip + steps} calls of gluon.Trainer.step (--skip "
        f"{skip}, --steps {steps})"
    )
