"""The calls to CUDA that a training step over GPUs makes, counted in its graph.

    python benchmarks/gpu_calls.py                              # WResNet-50-4 over 8 GPUs
    python benchmarks/gpu_calls.py --model mlp --workers 4 --format json
    python benchmarks/gpu_calls.py --smoke                      # a small model

Needs no GPU and runs nothing: it searches the plan, makes the graph that MXNet would bind, and
follows MXNet's executor, which copies a tensor to every other worker that reads it, unless
fetches read it in place, and runs the nodes of a segment (src/passes/schedule/segments.h) as one.
The host waits for a stream after every copy, segment, and node outside of segments.

Without ``--model`` the goals are 15,000 copies and 35,000 waits. Expected time: a minute.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Collection
from typing import Any, Optional

from tofu import _core, models
from tofu.analysis.strategy_table import strategy_table
from tofu.mx.graphs.lower.fused_norm import whole_statistics
from tofu.planner.compile_plan import compile_graph
from tofu.plans.fetch import Fetch

MODEL, WORKERS = "wresnet-50-4", 8
GOALS = {"copies": 15_000, "waits": 35_000}
# Kinds of fetch, each with the way in which it reads other workers' tensors.
KINDS = {
    "in place": ("multifetch", "tiles"),
    "plain": ("plain", "tiles"),
}
_FETCH = "_tofu_multifetch"


def count(graph: _core.Graph, workers: int) -> Counter[str]:
    """The calls of one run of a graph, whose nodes are in context groups."""
    nodes = graph.nodes
    order = [number for number, _ in _core.bound_nodes(graph, workers)]
    ops = ["copy" if number < 0 else nodes[number].op for number in order]
    runs = [op not in ("", "copy") for op in ops]
    joined = _core.segments(graph, workers)
    calls: Counter[str] = Counter(copies=ops.count("copy"))
    calls["launches"] = sum(runs) - sum(sum(runs[begin:end]) - 1 for begin, end in joined)
    calls["waits"] = calls["copies"] + calls["launches"]
    # A fetch assembles a region for each of its specifications.
    specs = [nodes[number].attrs["spec"] for number, op in zip(order, ops) if op == _FETCH]
    calls["kernels"] = sum(1 + spec.count("|") for spec in specs)
    return calls


def measure(model: str, workers: int, batch_size: Optional[int]) -> dict[str, dict[str, int]]:
    """The calls of a training step, with each kind of fetch."""
    sizes = {} if batch_size is None else {"batch_size": batch_size}
    graph_of = models.build(model, **sizes).training_graphs(on_gpus=True)

    def prepare(fused: Collection[str] = ()) -> Any:
        return strategy_table(graph_of(fused))[0]

    def refine(plan: Any) -> Any:
        fused = whole_statistics(plan)
        return prepare(fused) if fused else None

    table = prepare()
    calls = {}
    for kind, (fetch, crossing) in KINDS.items():
        compiled = compile_graph(
            table,
            workers=workers,
            refine=refine,
            fetch=Fetch(fetch, crossing=crossing),
            joint=True,
        )
        total: Counter[str] = Counter()
        for graph in compiled.step.graphs:
            total.update(count(graph, workers))
        calls[kind] = dict(total)
    return calls


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--smoke", action="store_true", help="a small model on two workers")
    args = parser.parse_args()
    model, workers = ("mlp", 2) if args.smoke else (args.model, args.workers)
    calls = measure(model, workers, args.batch_size)
    goals = GOALS if (model, workers) == (MODEL, WORKERS) else {}
    if args.format == "json":
        print(json.dumps({"model": model, "workers": workers, "calls": calls, "goals": goals}))
        return
    print(f"{model} over {workers} GPUs, calls of a step")
    print(f"| | {' | '.join(calls)} | goal |\n| --- |{' ---: |' * (len(calls) + 1)}")
    for name in ("copies", "launches", "waits", "kernels"):
        cells = " | ".join(f"{of.get(name, 0):,}" for of in calls.values())
        print(f"| {name} | {cells} | {goals.get(name, '')} |")


if __name__ == "__main__":
    main()
