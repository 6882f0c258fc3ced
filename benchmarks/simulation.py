"""The simulator's predictions, compared with real training steps on this machine.

    tofu calibrate --output here.json
    python benchmarks/simulation.py --machine here.json --output results/simulation.json

Trains networks with plain Gluon loops over 1, 2 and 4 workers of one thread each, by plans for
bytes and for time, and simulates the same steps on the machine of the file. Compares the time of a
step, which other load on the machine lengthens; the processor time of the workers' threads, which
it hardly does; and the memory that MXNet plans for tensors between operators.
None of the configurations is one that tofu calibrate measures, except those marked as calibrated.
Hardware: any CPUs. Time: about ten minutes on two idle cores. Expected: see
docs/results/simulation.md. `--smoke` runs reduced models, to check that it works.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import _training  # noqa: E402
from _results import write_json  # noqa: E402

from tofu.models import Model, build, find, make_rnn, make_wresnet  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Case:
    """A network to train.

    Attributes:
        make: makes its model.
        batch_size: examples per step.
        reduced: whether the small version is trained.
        calibrated: whether tofu calibrate measures operators of exactly this network.
        for_time: the numbers of workers that also train under a plan for time.
    """

    make: Callable[[], Model]
    batch_size: int
    reduced: bool = False
    calibrated: bool = False
    for_time: tuple[int, ...] = ()  # numbers of workers


CASES = {
    "cnn": Case(lambda: make_wresnet(50, 1, image=64), 16, calibrated=True),
    "cnn, wider": Case(lambda: make_wresnet(50, 2, image=32), 16, for_time=(2, 4)),
    "lstm": Case(lambda: make_rnn(2, 512, steps=4), 64, for_time=(4,)),
    "lstm, deeper": Case(lambda: make_rnn(4, 768, steps=3), 32),
    "mlp": Case(lambda: resized("mlp", hidden=1024, layers=6), 512, reduced=True, for_time=(4,)),
    "transformer": Case(
        lambda: resized("transformer", units=256, hidden=1024, vocabulary=2000),
        32,
        reduced=True,
        for_time=(2, 4),
    ),
}
SMOKE = {"mlp": Case(lambda: find("mlp"), 16, reduced=True, for_time=(2,))}
OBJECTIVES = ("bytes", "time")
MIB = 2**20


def resized(name: str, **options: int) -> Model:
    """A model whose small version has other sizes."""
    model = find(name)
    size = dataclasses.replace(model.reduced, options={**model.reduced.options, **options})
    return dataclasses.replace(model, reduced=size)


def serve(case: Case, args: argparse.Namespace) -> None:
    """Train in this process, and print the times of the steps."""
    import tofu

    searched = {"objective": "time", "machine": args.machine, "allow_replication": True}
    tofu.enable(workers=args.child, device="cpu", log="quiet", **searched if args.for_time else {})
    options = argparse.Namespace(
        batch_size=case.batch_size, reduced=case.reduced, seed=7, optimizer="sgd"
    )
    step = _training.prepare(case.make(), options)
    step()
    step()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter(), time.process_time(), time.thread_time()
        step()
        wall, process, script = (
            end - begin
            for begin, end in zip(
                start, (time.perf_counter(), time.process_time(), time.thread_time())
            )
        )
        times.append({"step": wall, "workers_cpu": process - script, "script_cpu": script})
    print(json.dumps({"steps": times, "memory": planned_bytes()}))


def planned_bytes() -> int:
    """The bytes that all executors of MXNet planned for tensors between operators."""
    import mxnet as mx

    from tofu.mx.memory.executor_memory import planned_mib

    executors = [each for each in gc.get_objects() if isinstance(each, mx.executor.Executor)]
    return sum(map(planned_mib, executors)) * MIB


def measure(name: str, workers: int, objective: str, args: argparse.Namespace) -> dict[str, float]:
    """Train in a new process; return the time of the fastest step, and median processor times."""
    command = [sys.executable, __file__, "--machine", args.machine, "--cases", name]
    command += ["--steps", str(args.steps), "--child", str(workers)]
    done = subprocess.run(
        [*command, *["--for-time"] * (objective == "time"), *["--smoke"] * args.smoke],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    output = json.loads(done.stdout.splitlines()[-1])
    steps = output["steps"]
    medians = {key: statistics.median(each[key] for each in steps) for key in steps[0]}
    return {**medians, "step": min(each["step"] for each in steps), "memory": output["memory"]}


def predict(case: Case, workers: int, objective: str, file: str) -> dict[str, float]:
    """Simulate the same step."""
    from tofu import _core
    from tofu.analysis.strategy_table import strategy_table
    from tofu.mx.memory.executor_memory import predict as predict_memory
    from tofu.mx.model.mxnet_programs import MXNET
    from tofu.planner.search import search
    from tofu.plans import Problem, SearchOptions
    from tofu.plans.machine_files import read_machine
    from tofu.simulate.simulation import simulate_plan, step_graphs

    graph = build(case.make(), case.batch_size, reduced=case.reduced)
    table = strategy_table(graph.training_graph(optimizer="sgd_mom"))[0]
    if objective == "time":
        options = SearchOptions(objective="time", machine=file, allow_replication=True)
        problem = Problem("", table, workers, front_end=MXNET)
        plan = search(problem, options, fetch="multifetch").plan
    else:
        plan = _core.plan(table, workers=workers)
    machine = json.loads(Path(file).read_text(encoding="utf-8"))
    # With a core for every thread, busy time is processor time. Where other load keeps all cores
    # busy, threads are as slow as they were in calibration, however many of them run.
    alone = {**machine, "host": {**machine["host"], "cores": 1024}}
    if os.getloadavg()[0] > 1.5 * machine["host"]["cores"]:
        alone["host"]["speed_at_once"] = [1]
    described = read_machine(file)
    shared, apart = (
        simulate_plan(plan, each, fetch="multifetch")
        for each in (described, _core.Machine(json.dumps(alone)))
    )
    # As MXNet counts it when it plans: four bytes for every element.
    memory = sum(
        predict_memory(
            graph, workers=workers, search_match_range=True, external=updates
        ).planned_bytes
        for graph, updates in step_graphs(plan, described, fetch="multifetch")
    )
    busy = sum(sum(worker["seconds"].values()) for worker in apart.workers)
    return {
        "step": shared.step_seconds,
        "workers_cpu": busy,
        "script_cpu": apart.operations * machine["host"]["push_s"],
        "memory": memory,
    }


def compare(
    name: str, case: Case, workers: int, objective: str, args: argparse.Namespace
) -> dict[str, Any]:
    """One line of the result."""
    load = os.getloadavg()[0]
    measured = measure(name, workers, objective, args)
    predicted = predict(case, workers, objective, args.machine)
    return {
        "case": name,
        "model": case.make().name,
        "batch_size": case.batch_size,
        "workers": workers,
        "objective": objective,
        "calibrated": case.calibrated and workers == 1,
        "load_average": load,
        "measured": measured,
        "predicted": predicted,
        "error": {key: predicted[key] / max(measured[key], 1e-9) - 1 for key in measured},
    }


def describe(record: dict[str, Any]) -> str:
    """A line for a reader: measured, predicted and error, of step, workers' CPU and memory."""
    cells = []
    for key, unit in (("step", 1.0), ("workers_cpu", 1.0), ("memory", MIB)):
        measured, predicted = record["measured"][key] / unit, record["predicted"][key] / unit
        cells.append(f"{measured:9.4f} {predicted:9.4f} {record['error'][key]:+7.1%}")
    mark = "  calibrated" if record["calibrated"] else ""
    head = f"{record['case']:<13} {record['workers']:>7} {record['objective']}"
    return f"{head}  {'  '.join(cells)}{mark}"


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and worst absolute error of the configurations that were not calibrated."""
    fresh = [record for record in records if not record["calibrated"]] or records
    errors_of = {}
    for key in ("step", "workers_cpu", "memory"):
        errors = [abs(record["error"][key]) for record in fresh]
        errors_of[key] = {"median": statistics.median(errors), "worst": max(errors)}
    return errors_of


def main() -> None:
    """Measure, simulate, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machine", metavar="FILE", help="of tofu calibrate; by default it is run")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=5, help="measured steps (5)")
    parser.add_argument("--smoke", action="store_true", help="reduced models")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--for-time", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = SMOKE if args.smoke else CASES
    chosen = {name: cases[name] for name in args.cases or cases}
    if args.child is not None:
        serve(next(iter(chosen.values())), args)
        return
    if args.machine is None:
        args.machine = str(Path(tempfile.mkdtemp()) / "here.json")
        command = [sys.executable, "-m", "tofu", "calibrate", "--output", args.machine]
        subprocess.run([*command, *["--smoke"] * args.smoke], check=True)
    machine = json.loads(Path(args.machine).read_text(encoding="utf-8"))
    print("seconds of a step, CPU seconds of its workers, MiB between operators:")
    print("case          workers plan " + "    measured predicted   error" * 3)
    records = []
    for name, case in chosen.items():
        for workers, objective in itertools.product(args.workers, OBJECTIVES):
            if objective == "time" and workers not in case.for_time:
                continue
            records.append(compare(name, case, workers, objective, args))
            print(describe(records[-1]), flush=True)
    errors_of = summary(records)
    for key, errors in errors_of.items():
        print(f"{key}: median error {errors['median']:.0%}, at worst {errors['worst']:.0%}")
    document = {
        "benchmark": "simulation",
        "machine": machine["sources"],
        "summary": errors_of,
        "configurations": records,
    }
    if args.output:
        write_json(args.output, document)


if __name__ == "__main__":
    main()
