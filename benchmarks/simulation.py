"""The simulator's predictions, compared with real training steps on this machine.

    tofu calibrate --output here.json
    python benchmarks/simulation.py --machine here.json --output results/simulation.json

Trains networks with plain Gluon loops over 1, 2 and 4 workers of one thread each, and simulates the
same steps on the machine of the file. Compares two quantities: the time of a step, which other load
on the machine lengthens, and the processor time of the workers' threads, which it hardly does.
None of the configurations is one that tofu calibrate measures, except those marked as calibrated.
Hardware: any CPUs. Time: about five minutes on two idle cores. Expected: see
docs/results/simulation.md. `--smoke` runs reduced models, to check that it works.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import _training  # noqa: E402

from tofu.models import Model, build, find, make_rnn, make_wresnet  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Case:
    """A network to train.

    Attributes:
        make: makes its model.
        batch_size: examples per step.
        reduced: whether the small version is trained.
        calibrated: whether tofu calibrate measures operators of exactly this network.
    """

    make: Callable[[], Model]
    batch_size: int
    reduced: bool = False
    calibrated: bool = False


CASES = {
    "cnn": Case(lambda: make_wresnet(50, 1, image=64), 16, calibrated=True),
    "cnn, wider": Case(lambda: make_wresnet(50, 2, image=32), 16),
    "lstm": Case(lambda: make_rnn(2, 512, steps=4), 64),
    "lstm, deeper": Case(lambda: make_rnn(4, 768, steps=3), 32),
    "mlp": Case(lambda: dataclasses.replace(find("mlp"), reduced=WIDE), 512, reduced=True),
}
WIDE = dataclasses.replace(
    find("mlp").reduced,
    options={**find("mlp").reduced.options, "hidden": 1024, "layers": 6},
)
SMOKE = {"mlp": Case(lambda: find("mlp"), 16, reduced=True)}


def serve(case: Case, workers: int, steps: int) -> None:
    """Train in this process, and print what the steps took."""
    import tofu

    tofu.enable(workers=workers, device="cpu", log="quiet")
    options = argparse.Namespace(
        batch_size=case.batch_size, reduced=case.reduced, seed=7, optimizer="sgd"
    )
    step = _training.prepare(case.make(), options)
    step()
    step()
    taken = []
    for _ in range(steps):
        start = time.perf_counter(), time.process_time(), time.thread_time()
        step()
        wall, process, script = (
            end - begin
            for begin, end in zip(
                start, (time.perf_counter(), time.process_time(), time.thread_time())
            )
        )
        taken.append({"step": wall, "workers_cpu": process - script, "script_cpu": script})
    print(json.dumps(taken))


def measure(name: str, workers: int, steps: int, *, smoke: bool) -> dict[str, float]:
    """Train in a new process; the least step, and the median processor times."""
    command = [sys.executable, __file__, "--machine", "-", "--cases", name, "--steps", str(steps)]
    done = subprocess.run(
        [*command, "--child", str(workers), *["--smoke"] * smoke],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    taken = json.loads(done.stdout.splitlines()[-1])
    found = {key: statistics.median(each[key] for each in taken) for key in taken[0]}
    return {**found, "step": min(each["step"] for each in taken)}


def predict(case: Case, workers: int, machine: dict[str, Any]) -> dict[str, float]:
    """Simulate the same step."""
    from tofu import _core
    from tofu.analysis.strategy_table import strategy_table
    from tofu.simulate.step import simulate_plan

    graph = build(case.make(), case.batch_size, reduced=case.reduced)
    table = strategy_table(graph.training_graph(optimizer="sgd_mom"))[0]
    plan = _core.plan(table, workers=workers)
    # With a core for every thread, busy time is processor time.
    alone = {**machine, "host": {**machine["host"], "cores": 1024}}
    shared, apart = (
        simulate_plan(plan, _core.Machine(json.dumps(each)), fetch="multifetch")
        for each in (machine, alone)
    )
    busy = sum(sum(worker["seconds"].values()) for worker in apart.workers)
    return {
        "step": shared.step_seconds,
        "workers_cpu": busy,
        "script_cpu": apart.operations * machine["host"]["push_s"],
    }


def compare(
    name: str, case: Case, workers: int, machine: dict[str, Any], args: argparse.Namespace
) -> dict[str, Any]:
    """One line of the result."""
    load = os.getloadavg()[0]
    measured = measure(name, workers, args.steps, smoke=args.smoke)
    predicted = predict(case, workers, machine)
    return {
        "case": name,
        "model": case.make().name,
        "batch_size": case.batch_size,
        "workers": workers,
        "calibrated": case.calibrated and workers == 1,
        "load_average": load,
        "measured": measured,
        "predicted": predicted,
        "error": {key: predicted[key] / measured[key] - 1 for key in measured},
    }


def describe(record: dict[str, Any]) -> str:
    """A line for a reader: measured, predicted and error, of step and workers' CPU."""
    cells = []
    for key in ("step", "workers_cpu"):
        measured, predicted = record["measured"][key], record["predicted"][key]
        cells.append(f"{measured:9.4f} {predicted:9.4f} {record['error'][key]:+7.0%}")
    mark = "  calibrated" if record["calibrated"] else ""
    return f"{record['case']:<14} {record['workers']:>7}  {'  '.join(cells)}{mark}"


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and worst absolute error of the configurations that were not calibrated."""
    fresh = [record for record in records if not record["calibrated"]] or records
    found = {}
    for key in ("step", "workers_cpu"):
        errors = [abs(record["error"][key]) for record in fresh]
        found[key] = {"median": statistics.median(errors), "worst": max(errors)}
    return found


def main() -> None:
    """Measure, simulate, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machine", required=True, metavar="FILE", help="a file of tofu calibrate")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=5, help="measured steps (5)")
    parser.add_argument("--smoke", action="store_true", help="reduced models")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = SMOKE if args.smoke else CASES
    chosen = {name: cases[name] for name in args.cases or cases}
    if args.child is not None:
        serve(next(iter(chosen.values())), args.child, args.steps)
        return
    machine = json.loads(Path(args.machine).read_text(encoding="utf-8"))
    print("                          seconds per step           CPU seconds of workers")
    print("case           workers   measured predicted   error   measured predicted   error")
    records = []
    for name, case in chosen.items():
        for workers in args.workers:
            records.append(compare(name, case, workers, machine, args))
            print(describe(records[-1]), flush=True)
    found = summary(records)
    for key, errors in found.items():
        print(f"{key}: median error {errors['median']:.0%}, at worst {errors['worst']:.0%}")
    document = {
        "benchmark": "simulation",
        "machine": machine["sources"],
        "summary": found,
        "configurations": records,
    }
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
