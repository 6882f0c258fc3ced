"""Measures the host's cost of partitioning: a step over 2, 4 and 8 workers, and the serial one.

    python benchmarks/host_cost.py --output docs/results/host_cost.json

Trains a net of 60 small layers, ResNet-50 and WResNet-50-2 on CPU contexts, every worker with one
thread. For each network the processes of all numbers of workers alternate, so other load on the
machine affects them equally. Reports medians of a step's time, and of its processor time compared
with the serial step's, in pairs. Hardware: any CPUs. Time: about ten minutes on two idle cores.
Expected: see docs/results/speed.md. `--smoke` runs reduced models, to check that it works.
"""

from __future__ import annotations

import argparse
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
from _goals import Goal, table  # noqa: E402
from _results import write_json  # noqa: E402

from tofu.models import make_wresnet  # noqa: E402

WORKERS = (0, 2, 4, 8)  # 0: stock MXNet
STEPS = {"dense": 30, "resnet": 3, "wresnet": 1}  # of a turn
# A step's milliseconds, or its processor time compared with the serial step's.
GOALS = (
    ("dense", 2, "step_ms", 9.0),
    ("dense", 8, "step_ms", 46.0),
    ("resnet", 8, "cpu_ratio", 1.5),
    ("wresnet", 8, "cpu_ratio", 1.25),
)


def make_step(name: str, *, smoke: bool) -> Callable[[], Any]:
    """A function that trains one step, and waits for it."""
    if name == "wresnet":
        model = make_wresnet(50, 2, image=64)
        options = argparse.Namespace(
            batch_size=16, reduced=smoke, seed=7, optimizer="sgd", workers=None
        )
        return _training.prepare(model, options)
    import mxnet as mx
    from mxnet import autograd, gluon

    if name == "dense":
        net = gluon.nn.HybridSequential()
        for _ in range(4 if smoke else 60):
            net.add(gluon.nn.Dense(64, activation="relu", in_units=64))
        inputs, options = mx.nd.ones((64, 64)), {"learning_rate": 0.01}
    else:
        size = 32 if smoke else 64
        net = gluon.model_zoo.vision.resnet50_v1(classes=10)
        inputs = mx.nd.random.uniform(shape=(16, 3, size, size))
        options = {"learning_rate": 0.01, "momentum": 0.9}
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)

    def step() -> None:
        with autograd.record():
            loss = (net(inputs) ** 2).sum()
        loss.backward()
        trainer.step(len(inputs))
        mx.nd.waitall()

    return step


def serve(name: str, workers: int, *, smoke: bool) -> None:
    """Train as many steps as each line of standard input says; answer with their medians."""
    if workers:
        import tofu

        tofu.enable(workers=workers, device="cpu", log="quiet")
    step = make_step(name, smoke=smoke)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start, cpu_start = time.perf_counter(), time.process_time()
            step()
            times.append((time.perf_counter() - start, time.process_time() - cpu_start))
        print(json.dumps([statistics.median(each) for each in zip(*times)]), flush=True)


def measure(name: str, workers: list[int], rounds: int, *, smoke: bool) -> list[dict[str, Any]]:
    """The records of one network, for each number of workers."""
    command = [sys.executable, __file__, "--networks", name, *["--smoke"] * smoke, "--child"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, str(count)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for count in workers
    ]

    def turn(process: Any, steps: int) -> Any:
        print(steps, file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"host_cost: {name}: a process ended with status {process.wait()}")
        return json.loads(line)

    try:
        for process in processes:
            turn(process, 2)  # trace, plan, bind
        steps = 1 if smoke else STEPS[name]
        turns = [[turn(process, steps) for process in processes] for _ in range(rounds)]
    finally:
        for process in processes:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
    return records(name, workers, turns)


def records(name: str, workers: list[int], turns: list[list[Any]]) -> list[dict[str, Any]]:
    """Medians of the rounds; ratios are those of each round."""
    rows = []
    for number, count in enumerate(workers):
        wall, cpu = zip(*(turn[number] for turn in turns))
        ratios = [turn[number][1] / turn[0][1] for turn in turns]
        rows.append(
            {
                "network": name,
                "workers": count,
                "step_ms": 1e3 * statistics.median(wall),
                "cpu_ms": 1e3 * statistics.median(cpu),
                "cpu_ratio": statistics.median(ratios),
            }
        )
    return rows


def goals(measurements: list[dict[str, Any]]) -> list[Goal]:
    """The rows of the table of goals."""
    rows = []
    for name, workers, quantity, most in GOALS:
        for record in measurements:
            if (record["network"], record["workers"]) == (name, workers):
                value = record[quantity]
                unit = "ms a step" if quantity == "step_ms" else "times the serial CPU time"
                work, measured = f"{name}, {workers} workers", f"{value:.3g} {unit}"
                rows.append(Goal(work, measured, f"{most:g}", met=value <= most))
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=tuple(STEPS), default=list(STEPS))
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS[1:]))
    parser.add_argument("--rounds", type=int, default=7, help="turns of each process (7)")
    parser.add_argument("--smoke", action="store_true", help="reduced models")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        serve(args.networks[0], args.child, smoke=args.smoke)
        return
    load, measurements = os.getloadavg()[0], []
    for name in args.networks:
        network_records = measure(name, [0, *args.workers], args.rounds, smoke=args.smoke)
        for record in network_records:
            print(
                f"{name:<8} {record['workers'] or 'serial':>6} {record['step_ms']:9.1f} ms "
                f"{record['cpu_ms']:9.1f} ms CPU {record['cpu_ratio']:6.2f}",
                flush=True,
            )
        measurements += network_records
    rows = goals(measurements)
    print(table(rows))
    if args.output:
        document = {"benchmark": "host_cost", "load_average": load, "records": measurements}
        write_json(args.output, document)


if __name__ == "__main__":
    main()
