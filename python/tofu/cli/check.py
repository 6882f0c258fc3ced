"""``tofu check``: trains a script whole and partitioned, and compares the results."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import click

from tofu.cli import check_torch
from tofu.cli.model import refuse
from tofu.cli.options import (
    Script,
    check_script,
    describe_option,
    device_option,
    fetch_option,
    format_option,
    is_module,
    switch_on,
    tell_misplaced,
    workers_option,
)
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.plans.progress import stage
from tofu.tables import table

__all__ = ["check"]

FAULT = 1  # exit status
_NOT_OF_MODULES = {
    "args": "a module takes no arguments",
    "describe": "descriptions of your own are for MXNet's operators",
    "device": "the processes run on CPUs",
    "fetch": "ranks send messages",
    "workers": "one mesh is checked; give it, such as --mesh 2,2",
}
_WHOLE_DOUBLE = ("float64", False)
_OTHERS = (("float32", False), _WHOLE_DOUBLE, ("float64", True))
_TOLD = ("random", "own", "steps", "graphs")  # facts that runs record besides arrays
_RECORD = "tofu.verify.script.record"
_OPERATORS = "tofu.verify.script.find_operator"


@click.command(cls=Script, short_help="Compare a script's training whole and partitioned.")
@workers_option
@device_option
@fetch_option
@describe_option
@click.option(
    "--mesh", metavar="K,K,...",
    help="For a module of PyTorch: the sizes of the dimensions of a mesh of processes.",
)  # fmt: skip
@click.option("--plan", metavar="PLAN", help="Use a plan that tofu plan --save wrote.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=1, show_default=True, help="Training steps."
)
@click.option("--all", "everything", is_flag=True, help="Show every tensor, not the worst ones.")
@format_option(("text", "json"), "Text, or the JSON document.")
@click.argument("script", metavar="SCRIPT|MODULE:FUNCTION")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def check(
    mesh: Optional[str],
    plan: Optional[str],
    steps: int,
    everything: bool,
    form: str,
    script: str,
    args: tuple[str, ...],
    **options: Any,
) -> None:
    """Train SCRIPT for some steps whole and partitioned, in float32 and float64, and compare.

    Rounding shrinks in float64, a fault does not; a script that does not run in float64 is compared
    in float32 alone. Exits with status 1 on a fault. Dropout keeps
    all values meanwhile, as its random numbers differ by worker. With --mesh, MODULE:FUNCTION
    returns a module of PyTorch and its inputs; its processes are connected by gloo, on CPUs.
    """
    if mesh is not None or (is_module(script) and not os.path.isfile(script)):
        _check_module(script, mesh, steps, plan, form, everything)
        return
    check_script(script)
    check_mxnet("tofu check", load=False)
    tell_misplaced(click.get_current_context(), script, args)
    switch_on(**options)
    runs: dict[tuple[str, bool], dict[str, Any]] = {}
    no_double = ""
    with tempfile.TemporaryDirectory() as folder:
        # This run comes first, because it gives the number of steps.
        for dtype, parted in (("float32", True), *_OTHERS):
            count = str(steps) if runs else f"{steps}+"
            try:
                ran = _run(Path(folder), [count, script, *args], dtype, parted, plan)
            except ConfigError as error:
                if not runs:  # the script itself may fail
                    _run(Path(folder), [str(steps), script, *args], dtype, False, None)
                if (dtype, parted) != _WHOLE_DOUBLE:
                    raise
                no_double = str(error).partition(": ")[2]
                break
            runs[dtype, parted] = ran
            steps = max(steps, int(ran["steps"]))
            if parted and ran["steps"] and not ran["graphs"]:
                raise ConfigError(
                    f"tofu check {script}: no block runs partitioned in {dtype}; TOFU_STRICT=1 "
                    f"tofu run {script} tells why"
                )
    # These modules need only NumPy, so MXNet is not imported.
    import numpy as np

    from tofu.verify.script.compare_runs import compare, first_fault, first_unusual

    is_random, is_own = (any(ran[key] for ran in runs.values()) for key in ("random", "own"))
    for ran in runs.values():  # a fact that stays would be taken for a tensor
        for key in _TOLD:
            ran.pop(key)
    single = runs["float32", False], runs["float32", True]
    double = None if no_double else (runs[_WHOLE_DOUBLE], runs["float64", True])
    differences = compare(single, double)
    if not differences:
        raise ConfigError(
            f"tofu check {script}: it ended without a training step; expected one of "
            "gluon.Trainer, after a call of a block under autograd.record()"
        )
    fault = first_fault(differences)
    unusual = None if fault and double else first_unusual(differences)
    if unusual is not None and not np.isfinite(unusual.single):
        unusual = None
    wrong: list[dict[str, Any]] = []
    if double and (fault is not None or is_own):
        wrong = _operators(["1", "float64", script, *args])
    sentences = [_verdict(fault, differences, is_random), *map(_wrong_text, wrong)]
    if no_double:
        sentences.insert(0, f"compared in float32 alone: {no_double}")
    if unusual is not None:
        command = [str(steps), script, *args]
        sentences.append(_sensitivity(unusual, runs["float32", False], command))
    _report(differences, sentences, wrong, fault is not None or bool(wrong), form, everything)


def _check_module(
    target: str, mesh: Optional[str], steps: int, plan: Optional[str], form: str, everything: bool
) -> None:
    """Compare the training of a module of PyTorch."""
    refuse(click.get_current_context(), target, _NOT_OF_MODULES)
    runs = check_torch.trained(target, mesh, steps, plan)
    from tofu.verify.script.compare_runs import compare, first_fault

    differences = compare(runs.single, runs.double)
    fault = first_fault(differences)
    verdict = _verdict(fault, differences, runs.is_random)
    _report(differences, [verdict], [], fault is not None, form, everything)


def _report(
    differences: Sequence[Any],
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


def _sensitivity(unusual: Any, whole: dict[str, Any], command: Sequence[str]) -> str:
    """Tell why a tensor differs more in float32 than rounding usually makes it.

    It takes one more run, whole, with inputs that are changed by one rounding.
    """
    from tofu.verify.script.compare_runs import UNUSUAL, compare

    with tempfile.TemporaryDirectory() as folder:
        rounded = _run(Path(folder), command, "float32~", False, None)
    tensors = {key: rounded[key] for key in whole if key in rounded}
    place = unusual.step, unusual.kind, unusual.name
    changes = compare((whole, tensors), (whole, tensors))
    (noise,) = (each.single for each in changes if (each.step, each.kind, each.name) == place)
    text = (
        f"at step {unusual.step} the {unusual.kind} {unusual.name} is the first that differs by "
        f"more than usual in float32 ({unusual.single:.1e}); "
    )
    if 10 * noise >= unusual.single:
        text += (
            f"it differs as much ({noise:.1e}) between two whole runs whose inputs are one "
            "rounding (1e-7) apart: it depends on signs or orders of close values, as a ReLU at "
            "its edge"
        )
    else:
        text += f"inputs that are one rounding (1e-7) apart change it by {noise:.1e} in a whole run"
    if noise <= UNUSUAL:
        return text
    for first in _operators([str(unusual.step), "float32~", *command[1:]]):
        text += (
            f"; operator {first['label']} ({first['op']}) is the first whose result these change "
            f"by more than rounding, by {first['difference']:.1e}"
        )
    return text


def _operators(command: Sequence[str]) -> list[dict[str, Any]]:
    """Run each operator alone; return the faults that _OPERATORS writes, in the graph's order."""
    environ = {k: v for k, v in os.environ.items() if k != "TOFU_PLAN"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "operators.json"
        line = [sys.executable, "-m", _OPERATORS, str(out), *command]
        with stage("running each operator alone"):
            ran = subprocess.run(
                line, env={**environ, "MXNET_GRAPH_PASS": "tofu"}, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        if ran.returncode or not out.is_file():
            last = (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
            click.echo(f"tofu: its operators cannot be run one by one: {last}", err=True)
            return []
        operators: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        return operators


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


def _run(
    folder: Path, command: Sequence[str], dtype: str, parted: bool, plan: Optional[str]
) -> dict[str, Any]:
    """Run the script in a process and return its record. Raises ConfigError."""
    import numpy as np

    steps, *rest = command
    out = folder / f"{dtype}-{parted}.npz"
    environ = {k: v for k, v in os.environ.items() if k not in ("MXNET_GRAPH_PASS", "TOFU_PLAN")}
    if parted:
        environ["MXNET_GRAPH_PASS"] = "tofu"
        if plan is not None and dtype == "float32":  # the graph in float64 is another one
            environ["TOFU_PLAN"] = plan
    what = f"{'partitioned' if parted else 'whole'}, in {dtype}"
    line = [sys.executable, "-m", _RECORD, str(out), steps, dtype, *rest]
    with stage(f"training {what}"):
        ran = subprocess.run(
            line, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    if ran.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if ran.returncode or not out.is_file():
        last = (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
        check_mxnet("tofu check", load=True)
        raise ConfigError(f"tofu check {rest[0]}: it does not run {what}: {last}")
    with np.load(out) as arrays:
        return {key: arrays[key] for key in arrays.files}


def _table(differences: Sequence[Any], everything: bool) -> list[str]:
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


def _worst(differences: Sequence[Any]) -> list[Any]:
    """Returns, per step and kind, the tensor that differs most, and every fault."""
    worst: dict[tuple[int, str], Any] = {}
    for diff in differences:
        key = (diff.step, diff.kind)
        if key not in worst or _size(diff) > _size(worst[key]):
            worst[key] = diff
    worst_ids = {id(each) for each in worst.values()}
    return [each for each in differences if id(each) in worst_ids or each.is_fault]


def _size(each: Any) -> tuple[float, float]:
    return each.double or 0.0, each.single


def _verdict(fault: Any, differences: Sequence[Any], is_random: bool) -> str:
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
