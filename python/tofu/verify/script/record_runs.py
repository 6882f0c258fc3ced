"""Trains a script whole and partitioned, in processes of their own, to compare both.

    runs = trained("train.py", [], steps=2)
    compare(runs.single, runs.double)

Needs NumPy only; the processes import MXNet.
"""

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

import numpy as np

from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.plans.progress import stage
from tofu.plans.runs import UNUSUAL, Difference, Runs

from .compare_runs import compare, read_arrays

__all__ = ["ScriptRuns", "trained"]

_WHOLE_DOUBLE = ("float64", False)
_OTHERS = (("float32", False), _WHOLE_DOUBLE, ("float64", True))
_FACTS = ("random", "own", "steps", "graphs")  # recorded besides arrays
_RECORD = "tofu.verify.script.record"
_OPERATORS = "tofu.verify.script.find_operator"


@dataclasses.dataclass(frozen=True)
class ScriptRuns(Runs):
    """The tensors of a script's runs.

    Attributes:
        has_own: whether the script has operators of its own.
        steps: number of steps that were trained.
        command: the script and its arguments.
    """

    has_own: bool = False
    steps: int = 1
    command: Sequence[str] = ()

    def wrong_operators(self, fault: Optional[Difference]) -> list[dict[str, Any]]:
        """Run each operator alone if there is a fault, or there are operators of the script's."""
        if self.double is None or (fault is None and not self.has_own):
            return []
        return _operators(["1", "float64", *self.command])

    def cause(self, unusual: Difference) -> str:
        """Tell why a tensor differs more in float32 than rounding usually makes it.

        It takes one more run, whole, with inputs that are changed by one rounding.
        """
        if not np.isfinite(unusual.single):
            return ""
        noise = self._noise(unusual)
        text = (
            f"at step {unusual.step} the {unusual.kind} {unusual.name} is the first that differs "
            f"by more than usual in float32 ({unusual.single:.1e}); "
        )
        if 10 * noise >= unusual.single:
            text += (
                f"it differs as much ({noise:.1e}) between two whole runs whose inputs are one "
                "rounding (1e-7) apart: it depends on signs or orders of close values, as a ReLU "
                "at its edge"
            )
        else:
            text += (
                f"inputs that are one rounding (1e-7) apart change it by {noise:.1e} in a whole run"
            )
        if noise <= UNUSUAL:
            return text
        for first in _operators([str(unusual.step), "float32~", *self.command]):
            text += (
                f"; operator {first['label']} ({first['op']}) is the first whose result these "
                f"change by more than rounding, by {first['difference']:.1e}"
            )
        return text

    def _noise(self, unusual: Difference) -> float:
        """The difference of the same tensor between two whole runs, with other roundings."""
        with tempfile.TemporaryDirectory() as folder:
            rounded = _run(Path(folder), [str(self.steps), *self.command], "float32~", False, None)
        whole = self.single[0]
        tensors = {key: rounded[key] for key in whole if key in rounded}
        place = unusual.step, unusual.kind, unusual.name
        changes = compare((whole, tensors), (whole, tensors))
        (noise,) = (each.single for each in changes if (each.step, each.kind, each.name) == place)
        return noise


def trained(
    script: str, args: Sequence[str], *, steps: int = 1, plan: Optional[str] = None
) -> ScriptRuns:
    """Train a script whole and partitioned, in float32 and, if it can, in float64.

    Args:
        script: its path.
        args: its arguments.
        steps: the least number of training steps.
        plan: the file of a plan for float32; None: plans are searched.

    Raises:
        ConfigError: the script does not run, or no block of it runs partitioned.
    """
    runs: dict[tuple[str, bool], dict[str, Any]] = {}
    no_double = ""
    command = [script, *args]
    with tempfile.TemporaryDirectory() as folder:
        # This run comes first, because it gives the number of steps.
        for dtype, parted in (("float32", True), *_OTHERS):
            count = str(steps) if runs else f"{steps}+"
            try:
                ran = _run(Path(folder), [count, *command], dtype, parted, plan)
            except ConfigError as error:
                if not runs:  # the script itself may fail
                    _run(Path(folder), [str(steps), *command], dtype, False, None)
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
    is_random, has_own = (any(ran[key] for ran in runs.values()) for key in ("random", "own"))
    for ran in runs.values():  # a fact that stays would be taken for a tensor
        for key in _FACTS:
            ran.pop(key)
    return ScriptRuns(
        single=(runs["float32", False], runs["float32", True]),
        double=None if no_double else (runs[_WHOLE_DOUBLE], runs["float64", True]),
        is_random=is_random, no_double=no_double, has_own=has_own, steps=steps, command=command,
    )  # fmt: skip


def _operators(command: Sequence[str]) -> list[dict[str, Any]]:
    """Run each operator alone; return the faults that _OPERATORS writes, in the graph's order."""
    environ = {k: v for k, v in os.environ.items() if k != "TOFU_PLAN"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "operators.json"
        line = [sys.executable, "-m", _OPERATORS, str(out), *command]
        with stage("running each operator alone"):
            ran = _finished(line, {**environ, "MXNET_GRAPH_PASS": "tofu"})
        if ran.returncode or not out.is_file():
            print(
                f"tofu: its operators cannot be run one by one: {_last_line(ran)}", file=sys.stderr
            )
            return []
        operators: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        return operators


def _run(
    folder: Path, command: Sequence[str], dtype: str, parted: bool, plan: Optional[str]
) -> dict[str, Any]:
    """Run the script in a process and return its record. Raises ConfigError."""
    steps, *rest = command
    out = folder / f"{dtype}-{parted}.npz"
    environ = {k: v for k, v in os.environ.items() if k not in ("MXNET_GRAPH_PASS", "TOFU_PLAN")}
    if parted:
        environ["MXNET_GRAPH_PASS"] = "tofu"
        if plan is not None and dtype == "float32":  # the graph in float64 is another one
            environ["TOFU_PLAN"] = plan
    how = f"{'partitioned' if parted else 'whole'}, in {dtype}"
    with stage(f"training {how}"):
        ran = _finished([sys.executable, "-m", _RECORD, str(out), steps, dtype, *rest], environ)
    if ran.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if ran.returncode or not out.is_file():
        check_mxnet("tofu check", load=True)
        raise ConfigError(f"tofu check {rest[0]}: it does not run {how}: {_last_line(ran)}")
    return read_arrays(out)


def _finished(line: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip


def _last_line(ran: subprocess.CompletedProcess[str]) -> str:
    return (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
