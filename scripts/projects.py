"""Runs public projects' models, plainly and partitioned, and reports differences.

    pip install --target DIR gluoncv2==0.0.64 --no-deps
    pip install --target DIR gluonts==0.14.4 'pandas<2.1' numpy==1.23.5
    pip install --target DIR d2l==1.0.3 --no-deps
    pip install --target DIR sockeye==2.3.24 mxfusion==0.3.1 --no-deps
    pip install --target DIR ipython 'matplotlib<3.9' matplotlib-inline 'scipy<1.12' numpy==1.23.5
    pip install --target DIR 'networkx<3' portalocker pyyaml sacrebleu==1.4.14 numpy==1.23.5
    make test-projects DIR=DIR
    python scripts/projects.py DIR --only gluonts/ --workers 2 3

Each case trains one model for some steps in a process of its own. Losses, weights and predictions
must be those of plain MXNet up to rounding. A model of gluoncv2 that differs in float32 runs again
in float64, both ways. Cases that plain MXNet fails are listed with the error.

Writes projects.md and projects.json into --out, after each case. Each case and setting takes about
6 s of processor time, of which importing takes half.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
# The versions that the cases are written for.
VERSIONS = {
    "gluoncv2": "0.0.64", "gluonts": "0.14.4", "d2l": "1.0.3", "sockeye": "2.3.24",
    "mxfusion": "0.3.1",
}  # fmt: skip
RELATIVE, ABSOLUTE = 2e-3, 2e-4
NEARBY = 3e-7  # two to five roundings of float32
_TIMES = 3  # so much farther may tofu's results be
_DOUBLE = 1e-6  # so far apart may they be in float64
_TAIL = 1500  # characters of a failed run's output


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a case.

    Attributes:
        error: the end of its output if it failed.
        values: its arrays by name.
        told: tofu's lines.
        seconds: its time.
    """

    error: str
    values: dict[str, Any]
    told: list[str]
    seconds: float


def run(case: str, folder: Path, workers: int, timeout_s: float, *more: str) -> Run:
    """Run a case plainly (no workers) or under tofu; `more`: words for _project_cases.py."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TOFU_", "MXNET_GRAPH"))}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", "MXNET_SUBGRAPH_BACKEND": "NONE"}
    if workers:
        env |= {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": str(workers), "TOFU_DEVICE": "cpu"}
    start = "import sys, runpy; sys.path += [sys.argv.pop(1)]; del sys.argv[0]; "
    start += "runpy.run_path(sys.argv[0], run_name='__main__')"
    with tempfile.TemporaryDirectory() as out:
        file = Path(out, "values.npz")
        script = str(HERE / "_project_cases.py")
        command = [sys.executable, "-c", start, str(folder), script, case, str(file), *more]
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
            )
            error = "" if done.returncode == 0 else (done.stdout + done.stderr)[-_TAIL:]
            text = done.stderr
        except subprocess.TimeoutExpired:
            error, text = f"no end after {timeout_s:.0f} s", ""
        values = {} if error else dict(np.load(file))
    told = [line for line in re.findall(r"tofu: .*", text) if "communicated per step" not in line]
    parts = text.count("communicated per step")
    told = [f"{parts} graphs partitioned", *dict.fromkeys(told)]
    return Run(error, values, told, time.monotonic() - began)


def difference(plain: dict[str, Any], found: dict[str, Any]) -> str:
    """The first difference of a run's results from those of plain MXNet; "" if there is none."""
    if plain.keys() != found.keys():
        return f"results {sorted(plain.keys() ^ found.keys())[:4]} are only in one"
    for name, expected in plain.items():
        if expected.shape != found[name].shape:
            return f"{name}: shape {found[name].shape}, plainly {expected.shape}"
        if not np.allclose(found[name], expected, RELATIVE, ABSOLUTE, equal_nan=True):
            most = float(np.nanmax(np.abs(found[name] - expected)))
            return f"{name}: differs by up to {most:.3g}"
    return ""


def is_rounding(plain: Run, found: Run, other: Run) -> bool:
    """Whether tofu's results are not farther from plain MXNet's than MXNet's own are from others.

    other: plain MXNet's from weights that are NEARBY apart.
    """
    return not other.error and all(
        value.shape == found.values[name].shape
        and _distance(value, found.values[name]) <= _TIMES * _distance(value, other.values[name])
        for name, value in plain.values.items()
    )


def _distance(one: Any, other: Any) -> float:
    """The root mean square of a difference, at least that of the tolerance."""
    scale = ABSOLUTE + RELATIVE * float(np.sqrt(np.mean(np.square(one))))
    return max(scale, float(np.sqrt(np.mean(np.square(one - other)))))


def compare(case: str, folder: Path, workers: Sequence[int], timeout_s: float) -> dict[str, Any]:
    """The outcomes of a case over each number of workers."""
    plain = run(case, folder, 0, timeout_s)
    result: dict[str, Any] = {"case": case, "plain": plain.error, "seconds": plain.seconds}
    result["runs"], nearby = {}, None
    for count in () if plain.error else workers:
        found = run(case, folder, count, timeout_s)
        outcome = found.error or difference(plain.values, found.values)
        if outcome and not found.error:
            nearby = nearby or run(case, folder, 0, timeout_s, str(NEARBY))
            if is_rounding(plain, found, nearby):
                outcome = f"rounding ({outcome}; so do plain runs that begin {NEARBY} apart)"
            elif case.startswith("gluoncv2/"):
                apart = _apart_in_double(case, folder, count, timeout_s)
                if apart <= _DOUBLE:
                    outcome = f"rounding ({outcome}; in float64 by up to {apart:.1g})"
        result["runs"][str(count)] = {
            "outcome": outcome or "equal", "told": found.told, "seconds": found.seconds
        }  # fmt: skip
    return result


def _apart_in_double(case: str, folder: Path, workers: int, timeout_s: float) -> float:
    """How far a case's results in float64 are from those of plain MXNet; infinite if it fails."""
    plain, found = (run(case, folder, each, timeout_s, "0", "float64") for each in (0, workers))
    if plain.error or found.error or plain.values.keys() != found.values.keys():
        return float("inf")
    pairs = ((value, found.values[name]) for name, value in plain.values.items())
    apart = [
        np.abs(one - other).max() if one.shape == other.shape else np.inf for one, other in pairs
    ]
    return float(np.max(apart))


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The report for people."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    runs = [each for result in results for each in result["runs"].values()]
    equal = sum(map(_is_right, runs))
    yield from ("# Public projects, plain and partitioned", "")
    yield f"{equal} of {len(runs)} runs are equal up to rounding, of {len(results)} models."
    yield from ("", "| model | workers | result | lines of tofu |", "| --- | --- | --- | --- |")
    for result in results:
        if result["plain"]:
            yield f"| {result['case']} | plain | fails | {_last(result['plain'])} |"
        for count, each in result["runs"].items():
            told = "; ".join(line.removeprefix("tofu: ")[:160] for line in each["told"])
            yield f"| {result['case']} | {count} | {_last(each['outcome'])} | {told} |"


def _is_right(run: dict[str, Any]) -> bool:
    return run["outcome"] == "equal" or run["outcome"].startswith("rounding (")


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200].replace("|", "/")


def wrong_versions(folder: Path, cases: Sequence[str]) -> Iterator[str]:
    """Errors about the installed projects that these cases need."""
    found = {each.name.lower(): each.version for each in metadata.distributions(path=[str(folder)])}
    for project in sorted({case.partition("/")[0] for case in cases} & VERSIONS.keys()):
        if found.get(project) != VERSIONS[project]:
            have = found.get(project, "none")
            yield f"{project}: found {have} in {folder}, expected {VERSIONS[project]}"


def main() -> None:
    """Run the cases and write the report; exit status 1 if one differs."""
    from _project_cases import CASES

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where pip installed the projects")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of cases' names")
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("--out", type=Path, default=Path("build/projects"))
    arguments = parser.parse_args()
    cases = [case for case in CASES if case.startswith(tuple(arguments.only))]
    for wrong in wrong_versions(arguments.folder, cases):
        parser.error(f"{wrong}; install it as {Path(__file__).name} says")
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = []
    for case in cases:
        results.append(
            compare(case, arguments.folder.resolve(), arguments.workers, arguments.timeout)
        )
        (arguments.out / "projects.md").write_text(markdown(results), encoding="utf-8")
        document = json.dumps(results, indent=1) + "\n"
        (arguments.out / "projects.json").write_text(document, encoding="utf-8")
        outcomes = {k: _last(each["outcome"]) for k, each in results[-1]["runs"].items()}
        print(f"{case}: {outcomes or _last(results[-1]['plain'])}", flush=True)
    runs = [each for result in results for each in result["runs"].values()]
    sys.exit(not all(map(_is_right, runs)))


if __name__ == "__main__":
    main()
