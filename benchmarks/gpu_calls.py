"""The calls to CUDA that a training step over GPUs makes, counted in its graph.

    python benchmarks/gpu_calls.py                              # WResNet-50-4 over 8 GPUs
    python benchmarks/gpu_calls.py --model mlp --workers 4 --format json
    python benchmarks/gpu_calls.py --smoke                      # a small model

Needs no GPU and runs nothing: it searches the plan, makes the graph that MXNet would bind, and
follows MXNet's executor, which copies a tensor to every other worker that reads it, unless
fetches read it in place, and runs nodes of one worker between two such copies as one, a segment.
Without copies, tofu says which nodes are a segment (tofu.mx.run.segments).
The host waits for a stream after every copy, segment, and node outside of segments.

Without ``--model`` the goals are 15,000 copies and 35,000 waits. Expected time: a minute.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Optional

from tofu import models
from tofu.analysis.strategy_table import strategy_table
from tofu.mx.graphs.lower.fused_norm import whole_statistics
from tofu.mx.run.segments import Step, segments
from tofu.planner.compile_plan import compile_graph

MODEL, WORKERS = "wresnet-50-4", 8
GOALS = {"copies": 15_000, "waits": 35_000}
# Kind of fetch and what it reads of other workers.
KINDS = {
    "in place": ("multifetch", "tiles"),
    "with handles": ("multifetch", "copies"),
    "plain": ("plain", "copies"),
}
_COPY = "_CrossDeviceCopy"
_FETCH = "_tofu_multifetch"
# A node's operator and worker.
Placed = tuple[str, str]


def executed(graph: dict[str, Any]) -> list[Placed]:
    """The nodes of a graph in the executor's order: depth first from the heads."""
    nodes = graph["nodes"]
    workers = [node.get("attrs", {}).get("__ctx_group__", "") for node in nodes]
    direct = ["__direct__" in node.get("attrs", {}) for node in nodes]
    order: list[Placed] = []
    done: set[Any] = set()

    def needs(key: Any) -> Iterator[Any]:
        if isinstance(key, tuple):  # a copy of an entry, on a worker
            yield key[0]
            return
        for number, index, *_ in nodes[key]["inputs"]:
            crosses = workers[number] != workers[key] and not direct[key]
            yield (number, index, workers[key]) if crosses else number
        yield from nodes[key].get("control_deps", ())

    for head in graph["heads"]:
        stack = [(head[0], needs(head[0]))] if head[0] not in done else []
        while stack:
            key, rest = stack[-1]
            following = next((each for each in rest if each not in done), None)
            if following is not None:
                stack.append((following, needs(following)))
                continue
            stack.pop()
            if key not in done:
                done.add(key)
                copied = isinstance(key, tuple)
                order.append((_COPY, key[2]) if copied else (nodes[key]["op"], workers[key]))
    return order


def pieces(order: list[Placed]) -> Iterator[list[str]]:
    """The workers of the nodes between two copies."""
    piece: list[str] = []
    for op, worker in order:
        if op == _COPY:
            yield piece
            piece = []
        elif op != "null":
            piece.append(worker)
    yield piece


def is_direct(graph: dict[str, Any]) -> bool:
    """Whether MXNet leaves all nodes as they are, and tofu says which are run as one."""
    return any("__direct__" in node.get("attrs", {}) for node in graph["nodes"])


def _steps(graph: dict[str, Any]) -> list[Step]:
    return [
        Step(
            "" if node["op"] == "null" else node["op"],
            node.get("attrs", {}).get("__ctx_group__", ""),
            [source for source, *_ in node["inputs"]],
            node.get("control_deps", ()),
        )
        for node in graph["nodes"]
    ]


def count(graph: dict[str, Any]) -> Counter[str]:
    """The calls of one run of a graph."""
    order = executed(graph)
    found: Counter[str] = Counter(copies=sum(op == _COPY for op, _ in order))
    heads = [head for head, *_ in graph["heads"]]
    joined = segments(_steps(graph), heads) if is_direct(graph) else []
    if joined:
        runs = [op != "null" for op, _ in order]
        found["launches"] = sum(runs) - sum(sum(runs[begin:end]) - 1 for begin, end in joined)
    else:
        for piece in pieces(order):
            # MXNet makes no segment of nodes on several workers.
            found["launches"] += 1 if len(set(piece)) == 1 else len(piece)
    found["waits"] = found["copies"] + found["launches"]
    found["publications"] = sum(op == "_tofu_publish" for op, _ in order)
    # A fetch assembles a region for each of its specifications.
    specs = [node["attrs"].get("spec", "") for node in graph["nodes"] if node["op"] == _FETCH]
    found["kernels"] = sum(1 + spec.count("|") for spec in specs)
    return found


def measure(model: str, workers: int, batch_size: Optional[int]) -> dict[str, dict[str, int]]:
    """The calls of a training step, with each kind of fetch."""
    sizes = {} if batch_size is None else {"batch_size": batch_size}
    make = models.build(model, **sizes).training_graphs(on_gpus=True)

    def prepare(fused: Collection[str] = ()) -> Any:
        return strategy_table(make(fused))[0]

    def refine(plan: Any) -> Any:
        fused = whole_statistics(plan)
        return prepare(fused) if fused else None

    table = prepare()
    found = {}
    for kind, (fetch, crossing) in KINDS.items():
        compiled = compile_graph(
            table,
            workers=workers,
            refine=refine,
            fetch=fetch,
            crossing=crossing,
            relays=False,
            joint=True,
        )
        total: Counter[str] = Counter()
        for graph in compiled.step.graphs:
            total.update(count(json.loads(graph.to_json())))
        found[kind] = dict(total)
    return found


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
    found = measure(model, workers, args.batch_size)
    goals = GOALS if (model, workers) == (MODEL, WORKERS) else {}
    if args.format == "json":
        print(json.dumps({"model": model, "workers": workers, "calls": found, "goals": goals}))
        return
    print(f"{model} over {workers} GPUs, calls of a step")
    print(f"| | {' | '.join(found)} | goal |\n| --- |{' ---: |' * (len(found) + 1)}")
    for name in ("copies", "launches", "waits", "kernels", "publications"):
        of_kinds = " | ".join(f"{of.get(name, 0):,}" for of in found.values())
        print(f"| {name} | {of_kinds} | {goals.get(name, '')} |")


if __name__ == "__main__":
    main()
