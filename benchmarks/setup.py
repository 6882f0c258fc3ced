"""Measures the first step of a script, part by part: from a block's symbol to bound executors.

    python benchmarks/setup.py --output docs/results/setup.json
    python benchmarks/setup.py --models resnet-50 --workers 8      # one model, one worker count

Each run is a new process, so nothing is cached. It trains a network for two steps and prints the
times of the parts of the first one. `MXNet` is the time inside MXNet's C library, for any caller;
other time is tofu's and Python's. Runs of stock MXNet and tofu alternate, and the script reports
medians. For models that are too large to run, `--models wresnet-152-10` measures the way from the
training graph to the texts that MXNet would bind. Hardware: two cores. Time: about three minutes.
`--smoke` runs a reduced model once, to check that the script works.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

EXECUTED = {"resnet-50": (64, 16)}  # pixels and batch
PLANNED = ("wresnet-152-10", "rnn-10-8k")
PARTS = (
    "training graph", "strategy table", "search", "partition", "schedule", "tiling", "binding",
    "running",
)  # fmt: skip
GOALS = {"resnet-50": {"total": 2.5, "outside MXNet": 0.8}, "wresnet-152-10": {"total": 1.5}}


class Clock:
    """Seconds by part, and inside MXNet's library."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._depth = threading.local()
        self._lock = threading.Lock()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function to add its time to a part; nested calls count once."""

        @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
        def wrapper(*args: Any, **options: Any) -> Any:
            with self.measure(part):
                return function(*args, **options)

        return wrapper

    @contextlib.contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time inside this context to a part."""
        depth = getattr(self._depth, part, 0)
        setattr(self._depth, part, depth + 1)
        begin = time.perf_counter()
        try:
            yield
        finally:
            setattr(self._depth, part, depth)
            if depth == 0:
                with self._lock:
                    spent = time.perf_counter() - begin
                    self.parts[part] = self.parts.get(part, 0.0) + spent


def watch_mxnet(clock: Clock) -> None:
    """Time every function of MXNet's C library that its Python calls."""
    import mxnet
    from mxnet.base import _LIB

    names = {
        name
        for path in Path(mxnet.__file__).parent.rglob("*.py")
        for name in re.findall(r"_LIB\.((?:MX|NN)\w+)", path.read_text(encoding="utf-8"))
    }
    for name in sorted(names):
        with contextlib.suppress(AttributeError):  # not in every build
            setattr(_LIB, name, clock.timed("MXNet", getattr(_LIB, name)))


def watch_tofu(clock: Clock) -> None:
    """Time the parts of tofu's set-up."""
    from tofu import _core
    from tofu.analysis import strategy_table
    from tofu.gluon.blocks import compile_block
    from tofu.mx.graphs import training_graph
    from tofu.mx.run import program

    original = clock.timed("training graph", training_graph.training_graphs)

    def training_graphs(*args: Any, **options: Any) -> Callable[..., Any]:
        return clock.timed("training graph", original(*args, **options))

    training_graph.training_graphs = training_graphs
    for part, owner, name in (
        ("strategy table", strategy_table, "strategy_table"),
        ("search", _core, "plan"),
        ("partition", _core, "partition"),
        ("schedule", _core, "schedule"),
        ("tiling", compile_block, "tile"),
        ("binding", program, "Program"),
    ):
        setattr(owner, name, clock.timed(part, getattr(owner, name)))


def train(model: str, workers: int, *, smoke: bool) -> dict[str, Any]:
    """Train for two steps in this process; return the seconds of each and the first's parts."""
    import mxnet as mx
    from mxnet import autograd, gluon

    clock = Clock()
    watch_mxnet(clock)
    if workers:
        import tofu

        watch_tofu(clock)
        tofu.enable(workers=workers, device="cpu", log="quiet")
    pixels, batch = (32, 4) if smoke else EXECUTED[model]
    make_net = gluon.model_zoo.vision.resnet18_v1 if smoke else gluon.model_zoo.vision.resnet50_v1
    net = make_net(classes=1000)
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    data = mx.nd.random.normal(shape=(batch, 3, pixels, pixels))
    label = mx.nd.arange(batch)
    mx.nd.waitall()
    seconds, cpu = [], []
    for step in range(2):
        if step == 0:
            clock.parts.clear()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
        loss.backward()
        trainer.step(batch)
        mx.nd.waitall()
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
        if step == 0:
            parts = dict(clock.parts)
    inside = parts.pop("MXNet")
    parts["running"] = seconds[0] - sum(parts.values())
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "parts": parts,
        "total": seconds[0],
        "outside MXNet": seconds[0] - inside,
    }


def compile_only(model: str, workers: int, *, smoke: bool) -> dict[str, Any]:
    """Measure the way from a model's training graph to the texts that MXNet would load."""
    from tofu import _core
    from tofu.analysis.strategy_table import strategy_table
    from tofu.models import build

    graph = build(model, reduced=smoke).training_graph(optimizer=None)
    clock = Clock()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    with clock.measure("strategy table"):
        table, _ = strategy_table(graph)
    with clock.measure("search"):
        plan = _core.plan(table, workers=workers)
    with clock.measure("partition"):
        partitioned = _core.partition(plan, fetch="multifetch")
    with clock.measure("schedule"):
        step = _core.schedule(partitioned, joint=True)
    with clock.measure("binding"):
        size = sum(len(each.to_symbol_json()) for each in step.graphs)
    total = time.perf_counter() - begin
    return {
        "seconds": [total],
        "cpu_seconds": [time.process_time() - cpu_begin],
        "parts": clock.parts,
        "total": total,
        "outside MXNet": total,
        "text_bytes": size,
    }


def run(model: str, workers: int, *, smoke: bool, again: bool = False) -> dict[str, Any]:
    """Do one run in a new process; with `again` it may use the cache of an earlier run."""
    command = [sys.executable, __file__, "--child", model, "--workers", str(workers)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "TOFU_"))}
    environment.pop("MXNET_GRAPH_PASS", None)
    done = subprocess.run(
        command + ["--smoke"] * smoke,
        env={**environment, "OMP_NUM_THREADS": "1", "TOFU_CACHE": str(int(again))},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


def measure(model: str, workers: list[int], repeats: int, *, smoke: bool) -> dict[str, Any]:
    """Medians over alternating runs; serial ones come first if the model is executed."""
    contenders = [0, *workers] if model in EXECUTED else workers
    runs: dict[int, list[dict[str, Any]]] = {count: [] for count in contenders}
    for _ in range(repeats):
        for count in contenders:
            runs[count].append(run(model, count, smoke=smoke))
    return {"model": model, "runs": {str(k): _medians(found) for k, found in runs.items()}}


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def of(key: str) -> float:
        return statistics.median(each[key] for each in runs)

    parts = {
        part: statistics.median(each["parts"].get(part, 0.0) for each in runs)
        for part in PARTS
        if any(part in each["parts"] for each in runs)
    }
    cpu = statistics.median(each["cpu_seconds"][0] for each in runs)
    result = {
        "total": of("total"),
        "outside MXNet": of("outside MXNet"),
        "cpu": cpu,
        "parts": parts,
    }
    if len(runs[0]["seconds"]) > 1:
        result["second step"] = statistics.median(each["seconds"][-1] for each in runs)
    return result


def report(record: dict[str, Any]) -> None:
    """Print a model's medians."""
    print(record["model"])
    for workers, medians in record["runs"].items():
        name = "stock MXNet" if workers == "0" else f"{workers} workers"
        goals = GOALS.get(record["model"], {}) if workers == "8" else {}
        for key in ("total", "outside MXNet"):
            goal = f"   goal {goals[key]} s" if key in goals else ""
            print(f"  {name:12} {key:18} {medians[key]:8.2f} s{goal}")
        if workers != "0":
            for part, seconds in medians["parts"].items():
                print(f"  {'':12}   {part:16} {seconds:8.2f} s")


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=(*EXECUTED, *PLANNED))
    parser.add_argument("--workers", type=int, nargs="+", default=[8], metavar="K")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("--smoke", action="store_true", help="reduced models, to test the script")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        action = train if args.child in EXECUTED else compile_only
        print(json.dumps(action(args.child, args.workers[0], smoke=args.smoke)))
        return
    records = []
    for model in args.models or (*EXECUTED, *PLANNED):
        record = measure(model, args.workers, args.repeats, smoke=args.smoke)
        report(record)
        records.append(record)
    if args.output is not None:
        machine = {"cores": os.cpu_count(), "processor": platform.processor() or "unknown"}
        write_json(args.output, {"machine": machine, "models": records})


if __name__ == "__main__":
    main()
