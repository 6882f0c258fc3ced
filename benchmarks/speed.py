"""Two workers of one thread each, compared with stock MXNet on two threads and on one.

    python benchmarks/speed.py --output docs/results/speed.json

Trains a wide residual network and an RNN of a size that fits a small machine, on two cores.
Three processes alternate, so other load on the machine affects them equally: stock MXNet with
OMP_NUM_THREADS=2, with 1, and tofu with two workers of one thread. In every round the last two
also train once bound to one core, which gives the CPU time of the partitioned graph and of the
serial one. Reports medians and quartiles of the rounds' ratios. Hardware: two cores. Time: about
five minutes on an idle machine. Expected: see docs/results/speed.md. `--smoke` runs reduced
models, to check that it works.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import _training  # noqa: E402
from _results import write_json  # noqa: E402

from tofu.models import Model, find, make_rnn, make_wresnet  # noqa: E402

SIZES = {
    "wresnet": (lambda: make_wresnet(50, 2, image=64), 16),
    "rnn": (lambda: make_rnn(4, 1024, steps=10), 32),
}
SMOKE = {"wresnet": "wresnet-50-4", "rnn": "rnn-6-4k"}
# Name, threads of MXNet's operators, workers of tofu or 0.
CONTENDERS = {"serial_2_threads": (2, 0), "serial_1_thread": (1, 0), "tofu_2_workers": (1, 2)}
# Ratio: name, quantity (samples per second, or CPU time), numerator, denominator, goal.
GOALS = {
    "speed against serial with 2 threads": (0.9, "at least"),
    "speed against serial with 1 thread": (1.6, "at least"),
    "CPU time on one core against serial": (1.15, "at most"),
}


@dataclasses.dataclass(frozen=True)
class Turn:
    """A turn of one process: seconds and CPU seconds per step, and the last loss."""

    seconds: float
    cpu_seconds: float
    loss: float


class Contender:
    """A process that trains on demand."""

    def __init__(self, name: str, model: str, *, smoke: bool) -> None:
        threads, workers = CONTENDERS[name]
        command = [sys.executable, __file__, "--models", model, "--child", str(workers)]
        environment = {
            key: value
            for key, value in os.environ.items()
            if key != "MXNET_GRAPH_PASS" and not key.startswith("OMP_")
        }
        self._process = subprocess.Popen(
            command + ["--smoke"] * smoke,
            env={**environment, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def train(self, steps: int, cores: list[int]) -> Turn:
        """Train for some steps on some cores; return medians per step."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"steps": steps, "cores": cores}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"speed: a process ended with status {self._process.wait()}")
        return Turn(**json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def pick(name: str, *, smoke: bool) -> tuple[Model, argparse.Namespace]:
    """The model, and the options of its training."""
    make_model, batch_size = SIZES[name]
    model = find(SMOKE[name]) if smoke else make_model()
    options = argparse.Namespace(batch_size=batch_size, reduced=smoke, seed=7, optimizer="sgd")
    return model, options


def serve(name: str, workers: int, *, smoke: bool) -> None:
    """Read commands to train from standard input, and answer each with a line."""
    import tofu

    if workers:
        tofu.enable(workers=workers, device="cpu", log="quiet")
    step = _training.prepare(*pick(name, smoke=smoke))
    for line in sys.stdin:
        order = json.loads(line)
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), order["cores"])
        seconds, cpu_seconds, loss = [], [], 0.0
        for _ in range(order["steps"]):
            start, cpu_start = time.perf_counter(), time.process_time()
            loss = step()
            seconds.append(time.perf_counter() - start)
            cpu_seconds.append(time.process_time() - cpu_start)
        turn = Turn(statistics.median(seconds), statistics.median(cpu_seconds), loss)
        print(json.dumps(dataclasses.asdict(turn)), flush=True)


def measure(name: str, rounds: int, steps: int, *, smoke: bool) -> dict[str, Any]:
    """Run all rounds of one model."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    model, options = pick(name, smoke=smoke)
    contenders = {each: Contender(each, name, smoke=smoke) for each in CONTENDERS}
    loads, turns, bound = [], [], []
    try:
        for contender in contenders.values():
            contender.train(2, cores)  # warm-up: trace, plan, bind
        for _ in _training.progress(rounds, f"{model.name}: {rounds} rounds"):
            loads.append(os.getloadavg()[0])
            turns.append({each: c.train(steps, cores) for each, c in contenders.items()})
            alone = ("serial_1_thread", "tofu_2_workers")
            bound.append({each: contenders[each].train(steps, cores[:1]) for each in alone})
    finally:
        for contender in contenders.values():
            contender.close()
    return {
        "model": model.name,
        "reduced": smoke,
        "options": {**(model.reduced if smoke else model.full).options},
        "inputs": dict((model.reduced if smoke else model.full).inputs),
        "batch_size": options.batch_size,
        "rounds": rounds,
        "steps_per_round": steps,
        "load_average": {"median": statistics.median(loads), "most": max(loads)},
        "step_seconds": {way: spread([turn[way].seconds for turn in turns]) for way in CONTENDERS},
        "cpu_seconds_on_one_core": {
            way: spread([turn[way].cpu_seconds for turn in bound]) for way in bound[0]
        },
        "ratios": ratios(turns, bound),
    }


def ratios(turns: list[dict[str, Turn]], bound: list[dict[str, Turn]]) -> dict[str, dict[str, Any]]:
    """The ratios that have goals, each the median of the rounds."""
    tofu, two_threads, one_thread = "tofu_2_workers", "serial_2_threads", "serial_1_thread"
    ratio_values = (
        [turn[two_threads].seconds / turn[tofu].seconds for turn in turns],
        [turn[one_thread].seconds / turn[tofu].seconds for turn in turns],
        [turn[tofu].cpu_seconds / turn[one_thread].cpu_seconds for turn in bound],
    )
    result = {}
    for (name, (goal, direction)), values in zip(GOALS.items(), ratio_values):
        median = statistics.median(values)
        met = median >= goal if direction == "at least" else median <= goal
        result[name] = {**spread(values), "goal": f"{direction} {goal}", "met": met}
    return result


def spread(values: list[float]) -> dict[str, Any]:
    """Median and quartiles."""
    low, _, high = statistics.quantiles(values) if len(values) > 1 else values * 3
    return {"median": statistics.median(values), "quartiles": [low, high]}


def machine() -> dict[str, Any]:
    """The machine and versions."""
    import mxnet as mx

    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "mxnet": mx.__version__,
    }


def describe(record: dict[str, Any]) -> str:
    """A table for a reader."""
    lines = [f"{record['model']}, batch {record['batch_size']}"]
    for way, seconds in record["step_seconds"].items():
        rate = record["batch_size"] / seconds["median"]
        lines.append(f"  {way:<40}{seconds['median']:>9.3f} s per step {rate:>9.2f} samples/s")
    for way, seconds in record["cpu_seconds_on_one_core"].items():
        lines.append(f"  {way + ', CPU on one core':<40}{seconds['median']:>9.3f} s per step")
    for name, ratio in record["ratios"].items():
        low, high = ratio["quartiles"]
        verdict = "met" if ratio["met"] else "missed"
        lines.append(
            f"  {name:<40}{ratio['median']:>9.2f} ({low:.2f} to {high:.2f}), "
            f"goal {ratio['goal']}: {verdict}"
        )
    load = record["load_average"]
    lines.append(f"  load average {load['median']:.1f}, at most {load['most']:.1f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=tuple(SIZES), default=tuple(SIZES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps per turn (3)")
    parser.add_argument("--smoke", action="store_true", help="reduced models")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        serve(args.models[0], args.child, smoke=args.smoke)
        return
    records = []
    for name in args.models:
        records.append(measure(name, args.rounds, args.steps, smoke=args.smoke))
        print(describe(records[-1]), flush=True)
    document = {"benchmark": "speed", "machine": machine(), "models": records}
    if args.output:
        write_json(args.output, document)
    else:
        print(json.dumps(document))


if __name__ == "__main__":
    main()
