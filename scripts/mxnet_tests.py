"""Runs MXNet 1.9.1's own tests of training, plain and partitioned, and reports differences.

    make test-mxnet DIR=path/to/mxnet                    # a checkout of the tag 1.9.1
    python scripts/mxnet_tests.py path/to/mxnet --files test_loss --workers 2

Each file runs in a process of its own, which may crash or hang: a test that is silent for longer
than --timeout is killed, and its file goes on with the next test. A test that passes plainly and
not under tofu is run again alone, plainly and under tofu, with every array in float64. If it passes
both times, the difference is rounding. Else it is run with other seeds, and differs if tofu fails
more of these runs than plain MXNet. With --flaky, tests that pass plainly with some seeds only are
listed.

Writes mxnet_tests.json and mxnet_tests.md into --out, and the outcomes of each run into
--out/parts, from which --resume takes them. Takes hours on two cores.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from tofu.config import VARIABLES

HERE = Path(__file__).resolve().parent
FILES = (
    "test_gluon", "test_gluon_rnn", "test_gluon_trainer", "test_gluon_model_zoo",
    "test_gluon_save", "test_gluon_contrib", "test_gluon_estimator", "test_gluon_batch_processor",
    "test_gluon_event_handler", "test_loss", "test_optimizer", "test_autograd", "test_numpy_gluon",
)  # fmt: skip
# From these files run only the tests that train a block: tofu sees nothing of the others.
OPERATOR_FILES = (
    "test_contrib_control_flow", "test_contrib_stes_op", "test_dynamic_shape",
    "test_higher_order_grad", "test_numpy_ndarray", "test_numpy_op", "test_operator",
)  # fmt: skip
SEED, OTHER_SEEDS = 1, (2, 3, 4)
# Whether blocks that a script never hybridizes are partitioned, too.
HYBRIDIZE = "TOFU_HYBRIDIZE"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A way to run the tests: plainly (no workers), or under tofu."""

    workers: int = 0
    hybridize: Optional[bool] = None
    float64: bool = False

    @property
    def name(self) -> str:
        """The setting in words, which is also its key in the report."""
        if not self.workers:
            return "plain"
        suffix = {None: "", True: ", all hybridized", False: ", as hybridized"}[self.hybridize]
        return f"{self.workers} workers{suffix}"

    def environment(self) -> dict[str, str]:
        """The environment variables that select the setting."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TOFU_", "MXNET_GRAPH"))}
        env["MXNET_TESTS_FLOAT64"] = str(int(self.float64))
        if not self.workers:
            return env
        env.update(MXNET_GRAPH_PASS="tofu", TOFU_WORKERS=str(self.workers), TOFU_DEVICE="cpu")
        if self.hybridize is not None:
            env[HYBRIDIZE] = str(int(self.hybridize))
        return env


def settings(workers: Sequence[int]) -> list[Setting]:
    """The plain setting, and each number of workers, with tracing and without where tofu has it."""
    choices = (False, True) if HYBRIDIZE in VARIABLES else (None,)
    return [Setting(), *(Setting(count, each) for count in workers for each in choices)]


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs test files of a checkout.

    Attributes:
        folder: the folder of the test files.
        timeout_s: the longest time of one test.
        parts: the folder that keeps the outcomes of each run.
        resume: whether outcomes are taken from there.
        select: the expression for pytest's -k.
    """

    folder: Path
    timeout_s: float
    parts: Path
    resume: bool = False
    select: str = ""

    def kept(self, setting: Setting, what: str, seed: int = SEED) -> dict[str, dict[str, Any]]:
        """The outcomes of `run`, read from the file of an earlier run if there is one."""
        width = ", float64" if setting.float64 else ""
        path = self.parts / f"{what}, {setting.name}{width}, seed {seed}.json"
        if self.resume and path.exists():
            return dict(json.loads(path.read_text("utf-8")))
        began = time.monotonic()
        outcomes = self.run(setting, what, seed)
        path.write_text(json.dumps(outcomes, indent=1) + "\n", "utf-8")
        passed = sum(result["outcome"] == "passed" for result in outcomes.values())
        seconds = time.monotonic() - began
        print(f"{path.stem}: {passed} of {len(outcomes)} pass, {seconds:.0f} s", flush=True)
        return outcomes

    def run(
        self, setting: Setting, what: str, seed: int = SEED, skip: Sequence[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """Run a file of tests, or one test, and return outcomes by the test's name."""
        outcomes: dict[str, dict[str, Any]] = {}
        while True:
            process_outcomes, ended = self._run_process(setting, what, seed, [*skip, *outcomes])
            outcomes.update(process_outcomes)
            if ended:
                return outcomes

    def _run_process(
        self, setting: Setting, what: str, seed: int, skip: Sequence[str]
    ) -> tuple[dict[str, dict[str, Any]], bool]:
        """Results of one process, and whether it got to the end."""
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder, "record")
            record.touch()
            with open(Path(folder, "log"), "w+", encoding="utf-8") as log:
                process = subprocess.Popen(
                    self._command(what),
                    cwd=folder,
                    env={
                        "OMP_NUM_THREADS": "1",
                        **setting.environment(),
                        "PYTHONPATH": f"{HERE}{os.pathsep}{self.folder}",
                        "MXNET_TESTS_RECORD": str(record),
                        "MXNET_TESTS_SKIP": json.dumps(list(skip)),
                        "MXNET_TESTS_TRAINING": str(int(what in OPERATOR_FILES)),
                        "MXNET_TEST_SEED": str(seed),
                    },
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                hung = _watch(process, record, self.timeout_s)
                log.seek(0)
                tail = log.read()[-2000:]
            lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
        outcomes = {line["test"]: line for line in lines if line["outcome"] != "begins"}
        current = lines[-1]["test"] if lines and lines[-1]["outcome"] == "begins" else None
        if current is None and process.returncode in (0, 1, 5):
            return outcomes, True
        if current is None:  # the process crashed where no test ran
            current = f"{what}::(after its tests)" if lines else f"{what}::(import)"
            outcomes[current] = {
                "test": current,
                "outcome": "crashed",
                "reason": tail,
                "blocks": [],
            }
            return outcomes, True
        outcome = "hung" if hung else "crashed"
        reason = f"exit status {process.returncode}: {tail}"
        outcomes[current] = {"test": current, "outcome": outcome, "reason": reason, "blocks": []}
        return outcomes, False

    def _command(self, what: str) -> list[str]:
        file, _, test = what.partition("::")
        path = str(self.folder / f"{file}.py")
        return [
            *(sys.executable, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull),
            *("--rootdir", str(self.folder), "-p", "no:cacheprovider", "-p", "no:warnings"),
            *("-p", "_mxnet_tests_plugin", "--import-mode", "importlib"),
            *(("-k", self.select) if self.select and not test else ()),
            f"{path}::{test}" if test else path,
        ]


def _watch(process: subprocess.Popen[bytes], record: Path, timeout_s: float) -> bool:
    """Wait for a process; kill it when it writes nothing for too long, and return whether."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        if record.stat().st_size != size:
            size, since = record.stat().st_size, time.monotonic()
        elif time.monotonic() - since > timeout_s:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
    return False


def differing(runner: Runner, report: dict[str, Any]) -> None:
    """Add to a report the tests that differ from the plain run, each tried again."""
    plain = report["results"]["plain"]
    for setting in report["settings"][1:]:
        different = report["differ"][setting.name] = []
        rounding = report["rounding"][setting.name] = []
        for test, result in report["results"][setting.name].items():
            if result["outcome"] in ("passed", "skipped"):
                continue
            if test not in plain:  # such as a crash when all tests have ended
                different.append(result)
            elif plain[test]["outcome"] == "passed":
                if _passes_in_float64(runner, setting, test):
                    rounding.append(result)
                    continue
                passes = _again(runner, setting, test)
                if passes["tofu"] < passes["plain"]:  # else the test is as random as without tofu
                    different.append({**result, "passes": passes})


def _again(runner: Runner, setting: Setting, test: str) -> dict[str, int]:
    """The number of other seeds with which a test passes alone."""
    passes = {"plain": 0, "tofu": 0}
    for seed in OTHER_SEEDS:
        for name, each in (("plain", Setting()), ("tofu", setting)):
            outcomes = runner.kept(each, _by_file(test), seed).values()
            passes[name] += all(result["outcome"] == "passed" for result in outcomes)
    return passes


def _passes_in_float64(runner: Runner, setting: Setting, test: str) -> bool:
    """Whether a test passes, plainly and under tofu, when all arrays are of float64."""
    for each in (Setting(), setting):
        wide = dataclasses.replace(each, float64=True)
        outcomes = {result["outcome"] for result in runner.kept(wide, _by_file(test)).values()}
        if outcomes != {"passed"}:
            return False
    return True


def flaky(runner: Runner, files: Sequence[str]) -> dict[str, list[int]]:
    """The tests that pass plainly with some seeds, and those seeds."""
    passing = collections.defaultdict[str, list[int]](list)
    for file in files:
        for seed in (SEED, *OTHER_SEEDS):
            for test, result in runner.kept(Setting(), file, seed).items():
                passing[test] += [seed] if result["outcome"] in ("passed", "skipped") else []
    return {test: seeds for test, seeds in passing.items() if 0 < len(seeds) <= len(OTHER_SEEDS)}


def _by_file(test: str) -> str:
    path, _, name = test.partition("::")
    return f"{Path(path).stem}::{name}"


def blocks(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The number of partitioned blocks, and of refused blocks by reason."""
    partitioned, refused = 0, collections.Counter[str]()
    examples: dict[str, str] = {}
    for test, result in results.items():
        for block in result["blocks"]:
            if block["kind"] == "partitioned":
                partitioned += 1
                continue
            reason = re.sub(r"\d+", "N", block["reason"].partition("\n")[0])[:160]
            refused[reason] += 1
            examples.setdefault(reason, test)
    return {
        "partitioned": partitioned,
        "refused": [
            {"reason": reason, "count": count, "example": examples[reason]}
            for reason, count in refused.most_common()
        ],
    }


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield "# MXNet's own tests of what trains"
    yield ""
    names = ("passed", "skipped", "failed", "crashed", "hung")
    yield f"| setting | {' | '.join(names)} | differ | by rounding | blocks | refused |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for setting in report["settings"]:
        results = report["results"][setting.name]
        outcomes = collections.Counter(result["outcome"] for result in results.values())
        counts = [outcomes[name] for name in names]
        block_counts = report["blocks"].get(setting.name)
        tail = ["", "", "", ""]
        if block_counts:
            refused = sum(each["count"] for each in block_counts["refused"])
            different = (len(report[kind][setting.name]) for kind in ("differ", "rounding"))
            tail = [*different, block_counts["partitioned"], refused]
        yield f"| {' | '.join(map(str, [setting.name, *counts, *tail]))} |"
    for name, tests in report["differ"].items():
        yield from ("", f"## Tests that differ: {name}", "")
        yield from map(_line, tests)
    for name, tests in report["rounding"].items():
        yield from ("", f"## Tests that differ by rounding and pass in float64: {name}", "")
        yield from map(_line, tests)
    if report["flaky"]:
        yield from ("", "## Tests that pass plainly with some seeds only", "")
        yield from (f"- `{test}`: {seeds}" for test, seeds in report["flaky"].items())
    for name, block_counts in report["blocks"].items():
        yield from ("", f"## Blocks refused: {name}", "")
        for each in block_counts["refused"]:
            yield f"- {each['count']}: {each['reason']} (first in `{each['example']}`)"


def _line(test: dict[str, Any]) -> str:
    reason, runs = test["reason"].strip().splitlines() or [""], ""
    if "passes" in test:
        passes = test["passes"]
        runs = f" (passes {passes['tofu']} of {len(OTHER_SEEDS)}, plainly {passes['plain']})"
    return f"- `{test['test']}` {test['outcome']}{runs}: {reason[0][:300]}"


def main() -> None:
    """Run the tests and write the report; exit status 1 if a test differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="MXNet 1.9.1's sources")
    parser.add_argument(
        "--files", nargs="+", default=FILES + OPERATOR_FILES, help="names of test files"
    )
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 3, 5])
    parser.add_argument("--flaky", action="store_true", help="also find the tests that are flaky")
    parser.add_argument("--select", default="", help="tests, as for pytest -k")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one test")
    parser.add_argument("--out", type=Path, default=Path("build/mxnet_tests"))
    parser.add_argument("--resume", action="store_true", help="keep the files that have run")
    arguments = parser.parse_args()
    folder = arguments.checkout.resolve() / "tests" / "python" / "unittest"
    if not (folder / "common.py").exists():
        parser.error(f"{folder} is missing; expected a checkout of the tag 1.9.1 of MXNet")
    files = [name[: -len(".py")] if name.endswith(".py") else name for name in arguments.files]
    for file in files:
        if not (folder / f"{file}.py").exists():
            parser.error(
                f"--files {file}: {folder} has no such file; expected one such as {FILES[0]}"
            )
    (arguments.out / "parts").mkdir(parents=True, exist_ok=True)
    runner = Runner(
        folder, arguments.timeout, arguments.out / "parts", arguments.resume, arguments.select
    )
    report: dict[str, Any] = {"settings": settings(arguments.workers), "differ": {}, "rounding": {}}
    report["results"] = {setting.name: {} for setting in report["settings"]}
    for file in files:
        for setting in report["settings"]:
            report["results"][setting.name].update(runner.kept(setting, file))
    report["flaky"] = flaky(runner, files) if arguments.flaky else {}
    differing(runner, report)
    report["blocks"] = {s.name: blocks(report["results"][s.name]) for s in report["settings"][1:]}
    text = markdown(report)
    (arguments.out / "mxnet_tests.md").write_text(text, encoding="utf-8")
    document = {**report, "settings": [setting.name for setting in report["settings"]]}
    (arguments.out / "mxnet_tests.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(text)
    sys.exit(any(report["differ"].values()))


if __name__ == "__main__":
    main()
