"""``tofu check``: trains a script whole and partitioned, and compares the results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import click

from tofu.cli.model import open_model
from tofu.cli.options import (
    Script,
    describe_option,
    device_option,
    fetch_option,
    format_option,
    mesh_option,
    workers_option,
)
from tofu.errors import ConfigError
from tofu.plans.runs import Difference
from tofu.tables import table

__all__ = ["check"]

FAULT = 1  # exit status


@click.command(cls=Script, short_help="Compare a script's training whole and partitioned.")
@workers_option
@device_option
@fetch_option
@describe_option
@mesh_option
@click.option("--plan", metavar="PLAN", help="Use a plan that tofu plan --save wrote.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=1, show_default=True, help="Training steps."
)
@click.option("--all", "everything", is_flag=True, help="Show every tensor, not the worst ones.")
@format_option(("text", "json"), "Text, or the JSON document.")
@click.argument("target", metavar="SCRIPT|MODULE:FUNCTION|FILE.pt2")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def check(
    workers: Optional[str],
    mesh: Optional[str],
    plan: Optional[str],
    steps: int,
    everything: bool,
    form: str,
    target: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Train SCRIPT for some steps whole and partitioned, in float32 and float64, and compare.

    Rounding shrinks in float64, a fault does not; a script that does not run in float64 is compared
    in float32 alone. Exits with status 1 on a fault. Dropout keeps all values meanwhile, as its
    random numbers differ by worker. MODULE:FUNCTION returns a module of PyTorch and its inputs;
    its processes are connected by gloo, on CPUs.
    """
    opened = open_model(
        target, args, workers=workers, meshes=[mesh] if mesh else [], settings=settings,
        optimizer="none",
    )  # fmt: skip
    runs = opened.model.trained(opened.given, steps=steps, plan=plan)
    # This module needs NumPy.
    from tofu.verify.script.compare_runs import compare, first_fault, first_unusual

    differences = compare(runs.single, runs.double)
    if not differences:
        raise ConfigError(
            f"tofu check {target}: it ended without a training step; expected one of "
            "gluon.Trainer, after a call of a block under autograd.record(), or of a Module"
        )
    fault = first_fault(differences)
    unusual = None if fault and runs.double else first_unusual(differences)
    wrong = runs.wrong_operators(fault)
    sentences = [
        f"compared in float32 alone: {runs.no_double}" if runs.no_double else "",
        _verdict(fault, differences, runs.is_random),
        *map(_wrong_text, wrong),
        runs.cause(unusual) if unusual is not None else "",
    ]
    told = list(filter(None, sentences))
    _report(differences, told, wrong, fault is not None or bool(wrong), form, everything)


def _report(
    differences: Sequence[Difference],
    sentences: Sequence[str],
    wrong: Sequence[dict[str, Any]],
    is_fault: bool,
    form: str,
    everything: bool,
) -> None:
    """Print the findings. Exits with status 1 on a fault."""
    verdict = "\n".join(sentences)
    if form == "json":
        document = {"format": "tofu-check", "version": 1, "fault": is_fault, "operators": wrong}
        tensors = [{**dataclasses.asdict(each), "fault": each.is_fault} for each in differences]
        click.echo(json.dumps({**document, "verdict": verdict, "tensors": tensors}, indent=1))
    else:
        click.echo("\n".join([*_table(differences, everything), "", verdict]))
    if is_fault:
        raise SystemExit(FAULT)


def _wrong_text(wrong: Mapping[str, Any]) -> str:
    splits = [each for each in wrong["splits"] if each is not None]
    along = ", ".join(dict.fromkeys(splits))
    fault = (
        f"does not run in parts: {wrong['error']}"
        if wrong["error"]
        else f"gives something else in parts than as a whole (by {wrong['difference']:.1e})"
    )
    used = "" if wrong["used"] else "; this plan does not split it so, but another may"
    return (
        f"operator {wrong['label']} ({wrong['op']}), split along {along}, {fault}{used}; "
        f"{wrong['source']} describes it, and tofu verify {wrong['op']} checks that"
    )


def _table(differences: Sequence[Difference], everything: bool) -> list[str]:
    header = ("step", "kind", "tensor", "float32", "float64", "")
    shown = list(differences) if everything else _worst(differences)
    rows = (
        (
            str(diff.step), diff.kind, diff.name, f"{diff.single:.1e}",
            "" if diff.double is None else f"{diff.double:.1e}", "fault" if diff.is_fault else "",
        )
        for diff in shown
    )  # fmt: skip
    lines = ["Largest differences, relative to the tensor's values", ""]
    return [*lines, *table(header, rows, right=(0, 3, 4))]


def _worst(differences: Sequence[Difference]) -> list[Difference]:
    """Returns, per step and kind, the tensor that differs most, and every fault."""
    worst: dict[tuple[int, str], Difference] = {}
    for diff in differences:
        key = (diff.step, diff.kind)
        if key not in worst or _size(diff) > _size(worst[key]):
            worst[key] = diff
    worst_ids = {id(each) for each in worst.values()}
    return [each for each in differences if id(each) in worst_ids or each.is_fault]


def _size(each: Difference) -> tuple[float, float]:
    return each.double or 0.0, each.single


def _verdict(
    fault: Optional[Difference], differences: Sequence[Difference], is_random: bool
) -> str:
    is_single = any(each.double is None for each in differences)
    dtype = "float32" if is_single else "float64"
    if fault is None:
        usually = " usually makes it" if is_single else ""
        return (
            f"rounding only: {len(differences)} tensors differ in {dtype} by no more than rounding"
            + usually
        )
    text = (
        f"FAULT: at step {fault.step} the {fault.kind} {fault.name} is the first that differs by "
        f"more than rounding ({fault.single if is_single else fault.double:.1e} in {dtype})"
    )
    if is_random:
        text += "; the net draws random numbers, which differ by worker and may be the cause"
    return text
