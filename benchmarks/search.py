"""Measures the search: from a training graph (JSON in memory) to its plan.

    python benchmarks/search.py --output search.json [--smoke] [--parts plans steps growth]

Reports medians of the CPU time and wall-clock time of `_core.plan` on one thread. Each graph is
planned in its own process, whose peak memory is recorded. The times to make the training graph and
the strategy table are reported separately. Over 64 and 1,024 workers each model is planned once.
HiGHS also solves the steps of the recursion from the same tables. The last output is a table of
measured values and their goals. Needs `pip install '.[mxnet-cpu,test]'`; takes ten minutes.
docs/results/search.md has the numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

from _goals import Goal, table  # noqa: E402

REPEATS = 5
# Longer plans are measured three times.
LONG_SECONDS = 10.0
FEW_WORKERS = 8
LARGEST = ("wresnet-152-10", "rnn-10-8k")  # HiGHS solves their steps, too
# Seconds in which the plan over 8 workers is to be proven optimal. The search releases the groups
# that coarsening merges of an RNN, so the proof also covers plans without coarsening.
PROVEN = {
    "wresnet-152-10": 0.25,
    "rnn-10-8k": 0.1,
    "transformer": 0.25,
    "gpt-24": 0.25,
    "densenet-121": 0.25,
}
# Number of workers to the goals of all models: the largest gap to the bound, and seconds.
MANY_WORKERS = {64: (0.05, 10.0), 1024: (0.15, 60.0)}
GOALS = {"exponent": 1.1, "peak_bytes": 10**9, "highs_ratio": 20.0}

# Runs in a process without MXNet, so its peak memory is the search's.
_PLAN = """
import json, re, sys, time
from tofu import _core
folder, workers, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
limit = float(sys.argv[4])
graph = open(folder + "/graph", encoding="utf-8").read()
table = open(folder + "/table", encoding="utf-8").read()
times, clocks = [], []
while len(times) < repeats and not (len(times) == 3 and times[0] > limit):
    begin, clock = time.process_time(), time.perf_counter()
    strategies = _core.StrategyTable(table, _core.Graph(graph))
    plan = _core.plan(strategies, workers=workers, time_limit_s=600)
    times.append(time.process_time() - begin)
    clocks.append(time.perf_counter() - clock)
peak = re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())
found = {"nodes": plan.num_nodes, "status": plan.status, "total_bytes": plan.total_bytes,
         "lower_bound_bytes": plan.lower_bound_bytes}
print(json.dumps({**found, "seconds": times,
                  "clock_seconds": clocks, "text_bytes": len(graph) + len(table),
                  "peak_bytes": 1024 * int(peak[1])}))
"""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A training graph and its strategy table, and the CPU times to make them."""

    name: str
    graph: str
    table: str
    graph_seconds: float
    table_seconds: float


def make(model: Any, *, reduced: bool = False) -> Inputs:
    """The inputs of the search for a model, or a model's name."""
    from tofu.analysis.strategy_table import table_document
    from tofu.models import build

    begin = time.process_time()
    built = build(model, reduced=reduced)
    graph = built.training_graph()
    graph_end = time.process_time()
    table, _ = table_document(graph)
    spent = time.process_time() - graph_end
    return Inputs(built.name, graph.to_json(), table, graph_end - begin, spent)


def resnet(depth: int) -> Any:
    """A WResNet of width 4 and any depth, with blocks spread over stages as in depth 152."""
    from tofu.models import make_wresnet

    blocks = (depth - 2) // 3
    first, second, last = (max(1, round(blocks * share / 50)) for share in (3, 8, 3))
    model = make_wresnet(50, 4)
    stages = (first, second, blocks - first - second - last, last)
    size = dataclasses.replace(model.full, options={**model.full.options, "blocks": stages})
    return dataclasses.replace(model, name=f"wresnet-{depth}-4", full=size)


def rnn(steps: int) -> Any:
    """RNN-10-8K with any number of steps."""
    from tofu.models import make_rnn

    model = make_rnn(10, 8192, steps=steps, batch_size=128)
    return dataclasses.replace(model, name=f"{model.name}, {steps} steps")


def plan(inputs: Inputs, workers: int, repeats: int) -> dict[str, Any]:
    """The times, result and peak memory of planning."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "graph").write_text(inputs.graph, encoding="utf-8")
        Path(folder, "table").write_text(inputs.table, encoding="utf-8")
        arguments = [folder, str(workers), str(repeats), str(LONG_SECONDS)]
        ran = subprocess.run(
            [sys.executable, "-c", _PLAN, *arguments], check=True, stdout=subprocess.PIPE, text=True
        )
    record: dict[str, Any] = json.loads(ran.stdout)
    return {
        "model": inputs.name,
        "workers": workers,
        **record,
        "median_seconds": statistics.median(record["seconds"]),
        "median_clock_seconds": statistics.median(record["clock_seconds"]),
        "graph_seconds": inputs.graph_seconds,
        "table_seconds": inputs.table_seconds,
    }


def compare(inputs: Inputs, workers: int, repeats: int) -> list[dict[str, Any]]:
    """Every step of the recursion, solved from the same tables by elimination and by HiGHS.

    Raises:
        RuntimeError: their costs differ.
    """
    from _integer_program import solve

    from tofu import _core

    strategies = _core.StrategyTable(inputs.table, _core.Graph(inputs.graph))
    joint_plan = _core.plan(strategies, workers=workers, mode="recursion")
    records = []
    for step in range(len(joint_plan.parts)):
        text = joint_plan.step_problem(step=step)
        problem = json.loads(text)
        pairs = []
        for _ in range(repeats):  # alternate the two solvers
            solution = json.loads(_core.solve(text))
            highs = solve(problem)
            if solution["cost"] != highs.cost:
                raise RuntimeError(f"found {solution['cost']}, HiGHS {highs.cost}")
            pairs.append((solution["cpu_seconds"], highs.seconds))
        records.append(
            {
                "model": inputs.name,
                "workers": workers,
                "step": step,
                "variables": len(problem["domains"]),
                "cells": sum(len(cells) for *_, cells in problem["pairs"]),
                "cost": solution["cost"],
                "seconds": statistics.median(first for first, _ in pairs),
                "highs_seconds": statistics.median(second for _, second in pairs),
                "ratio": statistics.median(second / first for first, second in pairs),
            }
        )
    return records


def exponent(records: list[dict[str, Any]]) -> float:
    """The exponent e of seconds ~ nodes^e, by least squares of the logarithms."""
    x = [math.log(record["nodes"]) for record in records]
    y = [math.log(record["median_seconds"]) for record in records]
    middle_x, middle_y = statistics.fmean(x), statistics.fmean(y)
    slope = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y))
    return slope / sum((a - middle_x) ** 2 for a in x)


LENGTHS = {"rnn": (rnn, (4, 20, 100, 400)), "resnet": (resnet, (50, 200, 800, 2000))}
SMOKE_LENGTHS = {"rnn": (rnn, (2, 4)), "resnet": (resnet, (20, 35))}


def _grow(models: list[Any], repeats: int) -> dict[str, Any]:
    """Plan longer and longer models over 8 workers, and measure how the time grows."""
    records = []
    for model in models:
        records.append(plan(make(model), FEW_WORKERS, repeats))
        _say(records[-1])
    pieces = [exponent([a, b]) for a, b in zip(records, records[1:])]
    return {"exponent": exponent(records), "exponents_between": pieces, "points": records}


def _say(record: dict[str, Any]) -> None:
    print(
        f"{record['model']:<24}{record['workers']:>6} workers {record['nodes']:>7} nodes "
        f"{record['median_seconds']:>8.3f} s {record['peak_bytes'] / 1e6:>7.0f} MB  "
        f"{record['total_bytes'] / 2**30:.2f} GiB, at least "
        f"{record['lower_bound_bytes'] / 2**30:.2f}",
        flush=True,
    )


PARTS = ("plans", "steps", "growth")


def measure(repeats: int, *, smoke: bool, parts: Collection[str] = PARTS) -> dict[str, Any]:
    """Measure the parts; `smoke` uses models of a few layers, which show nothing about speed."""
    from tofu.models import MODELS

    plans: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    names = LARGEST if smoke or "plans" not in parts else [*PROVEN, *sorted(MODELS)]
    for name in dict.fromkeys(names) if set(parts) & {"plans", "steps"} else ():
        inputs = make(name, reduced=smoke)
        if "plans" in parts:
            plans += _plan(inputs, repeats, smoke=smoke)
        if "steps" in parts and name in LARGEST:
            steps += compare(inputs, FEW_WORKERS, repeats)
    for record in steps:
        print(
            f"{record['model']:<24}step {record['step'] + 1}: {record['seconds']:.4f} s, "
            f"HiGHS {record['highs_seconds']:.3f} s, {record['ratio']:.0f} times",
            flush=True,
        )
    growth = {}
    lengths = SMOKE_LENGTHS if smoke else LENGTHS
    for kind, (make_model, numbers) in lengths.items() if "growth" in parts else ():
        growth[kind] = _grow([make_model(number) for number in numbers], repeats)
        print(f"{kind}: nodes^{growth[kind]['exponent']:.2f}", flush=True)
    return {"plans": plans, "steps": steps, "growth": growth}


def _plan(inputs: Inputs, repeats: int, *, smoke: bool) -> list[dict[str, Any]]:
    """Plan a model over few workers, if there is a goal for them, and over many."""
    records = []
    if inputs.name.partition(",")[0] in PROVEN:
        records.append(plan(inputs, FEW_WORKERS, repeats))
    for workers in list(MANY_WORKERS)[: 1 if smoke else None]:
        records.append(plan(inputs, workers, 1))
    for record in records:
        _say(record)
    return records


def gap(record: dict[str, Any]) -> float:
    """The largest distance of the plan from the optimum, as a share of the bound."""
    bound = record["lower_bound_bytes"]
    return 0.0 if record["status"] == "optimal" else record["total_bytes"] / max(1, bound) - 1


def goals(results: dict[str, Any]) -> list[Goal]:
    """The results of `measure` in a table beside their goals."""
    rows = []
    for record in results["plans"]:
        limit = PROVEN.get(record["model"].partition(",")[0])
        if record["workers"] != FEW_WORKERS or limit is None:
            continue
        took = record["median_seconds"]
        proven = "proven optimal" if gap(record) == 0 else f"at most {gap(record):.1%} above"
        rows.append(
            Goal(
                f"{record['model']}, {FEW_WORKERS} workers, optimum proven",
                f"{took:.2f} s, {proven}",
                f"{limit:g} s",
                took <= limit and gap(record) == 0,
            )
        )
    for workers, (most, limit) in MANY_WORKERS.items():
        records = [record for record in results["plans"] if record["workers"] == workers]
        if not records:
            continue
        widest = max(records, key=gap)
        slowest = max(records, key=lambda record: record["median_seconds"])
        took = slowest["median_seconds"]
        rows.append(
            Goal(
                f"{len(records)} models, {workers:,} workers",
                f"gap at most {gap(widest):.1%} ({widest['model']}), at most {took:.1f} s "
                f"({slowest['model']})",
                f"{most:.0%} in {limit:g} s",
                gap(widest) <= most and took <= limit,
            )
        )
    for kind, growth in results["growth"].items():
        last = growth["points"][-1]["nodes"]
        power = growth["exponent"]
        rows.append(
            Goal(
                f"growth, {kind} to {last:,} nodes",
                f"n^{power:.2f}",
                f"n^{GOALS['exponent']}",
                power <= GOALS["exponent"],
            )
        )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--smoke", action="store_true", help="reduced models, short lengths")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    args = parser.parse_args()
    import scipy
    from _common import context
    from _results import write_json

    before = os.getloadavg()
    results = measure(args.repeats, smoke=args.smoke, parts=args.parts)
    load = {"load_before": before, "load_after": os.getloadavg()}
    document = {"benchmark": "search", **context(), "scipy": scipy.__version__, **load}
    rows = goals(results)
    print(table(rows))
    document.update(
        repeats=args.repeats, goals=[dataclasses.asdict(row) for row in rows], **results
    )
    if args.output:
        write_json(args.output, document)


if __name__ == "__main__":
    main()
