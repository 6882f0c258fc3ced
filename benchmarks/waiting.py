"""Measures the waits of a person: for answers of commands, for first steps, for every step.

    python benchmarks/waiting.py                        # every row; `make bench` does the same
    python benchmarks/waiting.py --rows estimate plan   # some of them

Prints a table of measured values, each with its goal and whether the value meets it. Of the clock
and the processor time of a command the smaller one counts, so other load on the machine does not.
Serial and partitioned runs alternate. Needs two cores and half an hour. `--smoke` takes small
models, to check that the script works.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

from _goals import Goal, table  # noqa: E402

TOFU = (sys.executable, "-m", "tofu")
REPEATS = 3
# Commands take nothing from earlier runs, except in the rows that measure exactly this.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TOFU_CACHE": "0"}
_TICKS = os.sysconf("SC_CLK_TCK")

Rows = Iterator[Goal]


@dataclasses.dataclass(frozen=True)
class Moment:
    """A line of a command's output, or its end.

    Attributes:
        line: the line; "" at the end.
        clock_s: seconds since the command began.
        processor_s: processor seconds that it has taken.
    """

    line: str
    clock_s: float
    processor_s: float

    @property
    def seconds(self) -> float:
        """The time that a quiet machine would take, at most."""
        return min(self.clock_s, self.processor_s)


def moments(*arguments: str) -> list[Moment]:
    """Run ``tofu`` with these arguments; return the moments of its lines and of its end."""
    lines = []
    begin = time.monotonic()
    command = [*TOFU, *arguments]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            clock, processor = time.monotonic() - begin, _processor_s(process.pid)
            lines.append(Moment(line.rstrip("\n"), clock, processor))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"waiting: tofu {' '.join(arguments)}: status {process.returncode}")
    clock = time.monotonic() - begin
    return [*lines, Moment("", clock, used.ru_utime + used.ru_stime)]


def _processor_s(process: int) -> float:
    """Processor seconds of a process that runs."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def _within(work: str, seconds: float, most: float) -> Goal:
    return Goal(work, f"{seconds:.2f} s", f"{most:g} s", seconds <= most)


def _ratio(work: str, ratio: float, most: float) -> Goal:
    return Goal(work, f"{ratio:.2f}", f"{most:g}", ratio <= most)


# --- answers of commands ------------------------------------------------------------------------


def estimate(*, smoke: bool) -> Rows:
    """The rows of an estimate, and the largest batches."""
    model = "mlp" if smoke else "rnn-10-8k"
    name = f"tofu estimate {model}"
    lines = moments("estimate", model, "--gpu-memory", "12GiB")
    rows = [each for each in lines if each.line.split()[:1] and each.line.split()[0].isdigit()]
    # The lines on batches have fewer columns.
    memory_rows = [each for each in rows if len(each.line.split()) > 8]
    yield _within(f"{name}, first row", memory_rows[0].seconds, 2)
    yield _within(f"{name}, {len(memory_rows)} rows", memory_rows[-1].seconds, 8)
    yield _within(f"{name}, largest batches", lines[-1].seconds - memory_rows[-1].seconds, 10)


def frontier(*, smoke: bool) -> Rows:
    """A frontier with exact memory."""
    model, workers = ("mlp", "2") if smoke else ("transformer", "16")
    lines = moments("frontier", model, "--workers", workers)
    yield _within(f"tofu frontier {model} --workers {workers}", lines[-1].seconds, 10)


def interrupt(*, smoke: bool) -> Rows:
    """The end of a command after Ctrl-C, at several moments."""
    model = "mlp" if smoke else "transformer"
    slowest = 0.0
    for after_s in (4,) if smoke else (4, 8, 12):
        command = [*TOFU, "frontier", model, "--workers", "16"]
        with subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as ran:
            time.sleep(after_s)
            if ran.poll() is not None:
                break
            begin, spent = time.monotonic(), _processor_s(ran.pid)
            ran.send_signal(signal.SIGINT)
            _, status, used = os.wait4(ran.pid, 0)
            ran.returncode = os.waitstatus_to_exitcode(status)
            heard = used.ru_utime + used.ru_stime - spent
            slowest = max(slowest, min(time.monotonic() - begin, heard))
    yield _within(f"tofu frontier {model}, Ctrl-C", slowest, 1)


def compare(*, smoke: bool) -> Rows:
    """A comparison of all modes."""
    model, workers = ("mlp", "2") if smoke else ("wresnet-50-4", "2,4,8")
    lines = moments("compare", "--workers", workers, model)
    yield _within(f"tofu compare --workers {workers} {model}", lines[-1].seconds, 8)


def plan(*, smoke: bool) -> Rows:
    """A plan with exact memory."""
    model = "mlp" if smoke else "wresnet-152-10"
    lines = moments("plan", "--workers", "8", model)
    yield _within(f"tofu plan --workers 8 {model}", lines[-1].seconds, 3)


def limit(*, smoke: bool) -> Rows:
    """A search that has no time to end, without the time to make the graph."""
    workers, limit_s = ("64", 5.0) if smoke else ("16384", 20.0)
    lines = moments(
        *("plan", "--workers", workers, "--time-limit", f"{limit_s:g}", "--count", "estimate"),
        *("--format", "json", "mlp"),
    )
    took = json.loads("".join(each.line for each in lines))["search_seconds"]
    most = 1.05 * limit_s + 1
    yield _within(f"mlp over {workers} workers, a limit of {limit_s:g} s", took, most)


# --- first steps --------------------------------------------------------------------------------


def setup(*, smoke: bool) -> Rows:
    """The first step of ResNet-50 less a later one, in processor time."""
    import setup as measured

    for again, most in ((False, 1.9), (True, 1.0)):
        if again:
            measured.run("resnet-50", 8, smoke=smoke, again=True)  # keeps its plan
        runs = [
            measured.run("resnet-50", 8, smoke=smoke, again=again)
            for _ in range(1 if smoke else REPEATS)
        ]
        seconds = statistics.median(run["cpu_seconds"][0] - run["cpu_seconds"][1] for run in runs)
        work = f"set-up of ResNet-50 over 8 workers{', started again' * again}"
        yield _within(work, seconds, most)


def first_step(*, smoke: bool) -> Rows:
    """The first step of a tiny net, less that of plain MXNet."""
    for workers in (2,) if smoke else (2, 8):
        pairs = []
        for _ in range(1 if smoke else REPEATS):
            plain, divided = (_first_step(count) for count in (0, workers))
            pairs.append(divided - plain)
        work = f"first step of a tiny net over {workers} workers, less the plain one"
        yield _within(work, statistics.median(pairs), 0.5)


def _first_step(workers: int) -> float:
    command = [sys.executable, __file__, "--child", str(workers)]
    ran = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True)
    return float(ran.stdout.split()[-1])


def take_first_step(workers: int) -> float:
    """Processor seconds of a tiny net's first step in this process."""
    import mxnet as mx
    from mxnet import autograd, gluon

    if workers:
        import tofu

        tofu.enable(workers=workers, device="cpu", log="quiet")
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(10))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    data, label = mx.nd.ones((256, 784)), mx.nd.ones(256)
    mx.nd.waitall()
    begin = time.process_time()
    with autograd.record():
        value = loss(net(data), label)
    value.backward()
    trainer.step(256)
    mx.nd.waitall()
    return time.process_time() - begin


# --- every step ---------------------------------------------------------------------------------


def steps(*, smoke: bool) -> Rows:
    """Steps of small operators, and of ResNet-50, against serial ones."""
    import host_cost

    rounds = 1 if smoke else 7
    dense = host_cost.measure("dense", [0, 2] if smoke else [0, 2, 4, 8], rounds, smoke=smoke)
    serial = dense[0]["step_ms"]
    for record, most in zip(dense[1:], (1.4, 3.5, 8.0)):
        work = f"60 dense layers over {record['workers']} workers, step against serial"
        yield _ratio(work, record["step_ms"] / serial, most)
    if smoke:
        return
    resnet = host_cost.measure("resnet", [0, 1, 2, 4, 8], rounds, smoke=smoke)
    for record, most in zip(resnet[1:], (1.03, 1.15, 1.3, 1.5)):
        work = f"ResNet-50 over {record['workers']} workers, processor time against serial"
        yield _ratio(work, record["cpu_ratio"], most)
    faster = resnet[0]["step_ms"] / resnet[2]["step_ms"]
    yield Goal(
        "ResNet-50 over 2 workers against one thread", f"{faster:.2f}", "1.65", faster >= 1.65
    )


def processes(*, smoke: bool) -> Rows:
    """Steps of two processes against those of one with the same workers, in turns."""
    workers = 1 if smoke else 2
    pairs = []
    for _ in range(1 if smoke else REPEATS):
        single = _step_seconds("--workers", str(2 * workers), smoke=smoke)
        two = _step_seconds("--processes", "2", "--workers", str(workers), smoke=smoke)
        pairs.append(two / single)
    work = f"two processes of {workers} workers, step against one process of {2 * workers}"
    yield _ratio(work, statistics.median(pairs), 1.3)


def _step_seconds(*options: str, smoke: bool) -> float:
    command = [*TOFU, "run", *options, "--device", "cpu", "--log", "quiet", __file__]
    command += ["--steps", "3" if smoke else "20"]
    ran = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True)
    return float(ran.stdout.split()[-1])


def take_steps(count: int) -> None:
    """Print the median seconds of a step, by the clock, over as many processes as there are."""
    import mxnet as mx
    from mxnet import autograd, gluon

    store = mx.kv.create("dist_sync") if "DMLC_ROLE" in os.environ else None
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(2048, activation="relu"), gluon.nn.Dense(2048, activation="relu"))
    net.add(gluon.nn.Dense(10))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=store or "device"
    )
    parts = store.num_workers if store else 1
    data = mx.nd.ones((512 // parts, 784))
    seconds = []
    for _ in range(3 + count):
        begin = time.perf_counter()
        with autograd.record():
            loss = (net(data) ** 2).sum()
        loss.backward()
        trainer.step(512)
        mx.nd.waitall()
        seconds.append(time.perf_counter() - begin)
    if not store or store.rank == 0:
        print(statistics.median(seconds[3:]))


# --- searches -----------------------------------------------------------------------------------


def search(*, smoke: bool) -> Rows:
    """The joint optimum over 8 workers."""
    import search as measured

    goals = {"wresnet-152-10": 0.2, "densenet-121": 0.2, "rnn-10-8k": 0.05}
    for model in ["mlp"] if smoke else goals:
        measurement = measured.plan(measured.make(model, reduced=smoke), 8, REPEATS)
        most = goals.get(model, 1.0)
        yield _within(f"optimum of {model} over 8 workers", measurement["median_seconds"], most)


def growth(*, smoke: bool) -> Rows:
    """The growth of a search's time with the graph."""
    import search as measured

    measurement = measured.measure(1 if smoke else REPEATS, smoke=smoke, parts=("growth",))
    for kind, grown in measurement["growth"].items():
        power = grown["exponent"]
        yield Goal(f"growth of the search, {kind}", f"n^{power:.2f}", "n^1.05", power <= 1.05)


# --- GPUs ---------------------------------------------------------------------------------------


def gpus(*, smoke: bool) -> Rows:
    """Simulated steps with default settings against the best of others, and calls to CUDA."""
    import gpu_calls

    from tofu import _core
    from tofu.mx.model.sources import from_model
    from tofu.planner.search import search as search_problem
    from tofu.plans.machine_files import machine_text, read_machine
    from tofu.simulate.simulation import simulate_plan

    machine = "p2.8xlarge"
    document = json.loads(machine_text(machine))
    document["device"]["segments"] = False
    without_segments = _core.Machine(json.dumps(document))
    for model in ["mlp"] if smoke else ["rnn-6-4k", "wresnet-50-4"]:
        problem = from_model(model, batch_size=None, optimizer="sgd", workers=8)
        planned = search_problem(problem, fetch="plain").plan
        default = simulate_plan(planned, read_machine(machine), fetch="plain").step_seconds
        best = min(
            simulate_plan(planned, without_segments, fetch="plain").step_seconds,
            simulate_plan(planned, read_machine(machine), fetch="multifetch").step_seconds,
        )
        work = f"{model} over 8 GPUs, {default:.2f} s by default, against the best setting"
        yield _ratio(work, default / best, 1.05)
    model = "mlp" if smoke else gpu_calls.MODEL
    calls = gpu_calls.measure(model, gpu_calls.WORKERS, None)["plain"]
    for name, most in gpu_calls.GOALS.items():
        work = f"{model} over 8 GPUs, {name}"
        yield Goal(work, f"{calls[name]:,}", f"{most:,}", calls[name] <= most)


ROWS: dict[str, Callable[..., Rows]] = {
    row.__name__: row
    for row in (
        estimate, frontier, interrupt, compare, plan, limit, setup, first_step, steps, processes,
        search, growth, gpus,
    )
}  # fmt: skip


def main() -> None:
    """Measure and print, each row when it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=tuple(ROWS))
    parser.add_argument("--smoke", action="store_true", help="small models")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(take_first_step(args.child))
        return
    if args.steps is not None:
        take_steps(args.steps)
        return
    goals: list[Goal] = []
    for name in args.rows:
        for goal in ROWS[name](smoke=args.smoke):
            goals.append(goal)
            print(f"{goal.work}: {goal.measured}, goal {goal.goal}", file=sys.stderr, flush=True)
    print(table(goals))
    load: Any = os.getloadavg()[0]
    print(f"\nLoad of the machine at the end: {load:.1f}, on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
