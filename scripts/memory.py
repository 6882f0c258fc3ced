"""Memory per worker at full size, as MXNet's planner allocates it, serial and partitioned.

    python scripts/memory.py --model rnn-10-8k          # one of the four; all by default
    python scripts/memory.py --format json --output docs/results
    python scripts/memory.py --smoke                    # a reduced model, in seconds

The script binds the serial training graph and the partitioned one to MXNet's executors. Binding
reserves memory without touching it, so this runs on any machine. The executors report the memory
that MXNet planned for intermediate tensors; weights, gradients and Adam's two states are added from
their sizes. Each line changes one thing in the line above it:

    plain              slices, copies between workers and concatenations, MXNet's own order
    multifetch         one operator assembles a region
    shared             several operators use one fetch, if that needs no more memory
    control_deps       dependencies keep nodes in an order that needs little memory
    match_range        MXNet's planner tries several limits of the size of a reused block
    halves             as in a script: forward, then backward, in one executor
    two_executors      as in a script whose random numbers depend on data: two executors

For a language model with a vocabulary of 50,304, whose scores are larger than its weights, the net
and its loss are two blocks, as scripts have them:

    gathered_output    the scores are gathered on worker 0, where the loss runs serially
    tiles              as scripts run it: the loss reads the scores as tiles, where they lie

MXNet does not report each worker's share. The model of its planner does
(tofu.mx.memory.executor_memory), and must agree with MXNet's total. Hardware: any, 8 GiB of memory.
Time: ten minutes for all. Expected: at most 1.10 of serial/8 in the last lines.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import mxnet as mx
from _common import context, write
from _separate_loss import SCORES, blocks_of

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.dtypes import dtype_name
from tofu.models import ModelGraph, build
from tofu.mx.extension import MATCH_RANGE, SEARCH_MATCH_RANGE, environment, load
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.memory import executor_memory as memory_planner
from tofu.mx.run.executor import bind
from tofu.plans.layout import cuts_of, heads_of, variables_of
from tofu.tables import table

WORKERS = 8
CASES = {"wresnet-152-10": 8, "rnn-10-8k": 128, "wresnet-50-4": 128}
PAIRS = {"gpt-24": 8}
SMOKE = ("rnn-6-4k", 65536)
SMOKE_PAIR = ("gpt-24", 8192)
LIMIT_BYTES = 12 * 2**30
ADAM_STATES = 2
FLOAT32_BYTES = 4
MIB = 2**20
# Every variant: the partition's options, and the planner's search for a range.
_MULTIFETCH: dict[str, Any] = {"fetch": "multifetch", "share": False}
_SHARED: dict[str, Any] = {"fetch": "multifetch"}
VARIANTS: dict[str, tuple[dict[str, Any], bool]] = {
    "plain": ({"fetch": "plain"}, False),
    "multifetch": (_MULTIFETCH, False),
    "shared": (_SHARED, False),
    "control_deps": (_SHARED, False),
    "match_range": (_SHARED, True),
    "halves": (_SHARED, True),
    "two_executors": (_SHARED, True),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One variant of one model.

    Attributes:
        model, batch: the case.
        variant: a key of VARIANTS, "gathered_output" or "tiles".
        serial_bytes: everything on one device: weights, gradients, Adam's states, the
            inputs, and the allocations of MXNet's own executor.
        bytes_per_worker: the same for every worker.
        fetched_bytes: bytes that workers fetch from each other in a step.
        planned_mib: MXNet's plan for the intermediate tensors of all workers.
        predicted_mib: the model's prediction for them.
    """

    model: str
    batch: int
    variant: str
    serial_bytes: int
    bytes_per_worker: tuple[int, ...]
    fetched_bytes: int
    planned_mib: int
    predicted_mib: float

    @property
    def ratio(self) -> float:
        """The fullest worker's bytes divided by its fair share of the serial bytes."""
        return max(self.bytes_per_worker) * len(self.bytes_per_worker) / self.serial_bytes

    @property
    def fits(self) -> bool:
        """Whether 12 GiB is enough for the fullest worker."""
        return max(self.bytes_per_worker) <= LIMIT_BYTES


def measure(
    model: str, batch: int, variants: Sequence[str], workers: int, *, reduced: bool = False
) -> Iterator[Row]:
    """Bind one model in every variant."""
    graph = build(model, batch, reduced=reduced)
    serial = serial_bytes(graph)
    training = graph.training_graph(optimizer=None)
    strategies, _ = strategy_table(training)
    plan = _core.plan(strategies, workers=workers)
    for variant in variants:
        options, search = VARIANTS[variant]
        divided = _core.partition(plan, **options)
        fixed = fixed_bytes(divided)
        planned, predicted, pools = 0, 0.0, [0] * workers
        for step_graph in _graphs(divided, variant):
            prediction = memory_planner.predict(
                step_graph, workers=workers, search_match_range=search
            )
            predicted += prediction.planned_bytes / MIB
            planned += bound_mib(step_graph, workers, search=search)
            pools = [a + b for a, b in zip(pools, prediction.bytes_per_worker)]
        yield Row(
            model,
            batch,
            variant,
            serial,
            tuple(a + b for a, b in zip(fixed, pools)),
            divided.fetched_bytes,
            planned,
            round(predicted, 1),
        )


def measure_pair(model: str, batch: int, workers: int, *, reduced: bool = False) -> Iterator[Row]:
    """Bind a net and its loss as two blocks, the output gathered between them, or not."""
    net, loss = blocks_of(model, batch, reduced=reduced)
    whole_bytes = _bytes({SCORES: loss.inputs[SCORES]})
    # The loss reads the net's output where it lies, and makes one gradient of it.
    loss_bytes = _serial_planned_mib(loss, [SCORES]) * MIB + whole_bytes
    serial = serial_bytes(net) + loss_bytes + _bytes(loss.inputs) - whole_bytes
    strategies, _ = strategy_table(net.training_graph(optimizer=None))
    plan = _core.plan(strategies, workers=workers)
    divided = _core.partition(plan, fetch="multifetch")
    fixed, pools, sizes = _of_program(divided)
    net_bytes = [a + b for a, b in zip(fixed, pools)]
    gathered = [net_bytes[0] + whole_bytes + loss_bytes + _bytes(loss.inputs), *net_bytes[1:]]
    yield Row(
        model, batch, "gathered_output", serial, tuple(gathered), divided.fetched_bytes, *sizes
    )
    (output,) = (head for head in heads_of(divided.heads) if head.role == "output")
    cuts = cuts_of(output.layout, plan.parts)
    assert cuts is not None
    graph = training_graph(
        loss.symbol,
        inputs=loss.inputs,
        parameters={},
        aux={},
        gradients=[SCORES],
        train=True,
        workers=workers,
    )
    plan = _core.plan(
        strategy_table(graph)[0], workers=workers, pins={SCORES: cuts}, parts=plan.parts
    )
    last = _core.partition(plan, fetch="multifetch")
    fixed, pools, last_sizes = _of_program(last)
    tiles = [
        a + b + c - math.prod(box.shape) * FLOAT32_BYTES  # bound to the net's output
        for a, b, c, box in zip(net_bytes, fixed, pools, output.layout.boxes)
    ]
    fetched = divided.fetched_bytes + last.fetched_bytes
    planned, predicted = (a + b for a, b in zip(sizes, last_sizes))
    yield Row(model, batch, "tiles", serial, tuple(tiles), fetched, planned, predicted)


def _of_program(
    divided: _core.Partitioned,
) -> tuple[list[int], list[int], tuple[int, float]]:
    """Bytes of variables and of other tensors on each worker; MiB planned, and predicted."""
    workers = divided.workers
    planned, predicted, pools = 0, 0.0, [0] * workers
    for graph in _core.schedule(divided, joint=True).graphs:
        prediction = memory_planner.predict(graph, workers=workers, search_match_range=True)
        predicted += prediction.planned_bytes / MIB
        planned += bound_mib(graph, workers, search=True)
        pools = [a + b for a, b in zip(pools, prediction.bytes_per_worker)]
    return fixed_bytes(divided), pools, (planned, round(predicted, 1))


def serial_bytes(graph: ModelGraph) -> int:
    """The memory of stock MXNet, which differentiates and binds the symbol itself."""
    weights = _bytes(graph.parameters)
    fixed = (2 + ADAM_STATES) * weights + _bytes(graph.inputs) + _bytes(graph.aux)
    return fixed + _serial_planned_mib(graph, list(graph.parameters)) * MIB


def _serial_planned_mib(graph: ModelGraph, gradient_names: Sequence[str]) -> int:
    """The MiB that MXNet plans for a symbol whose gradients it makes itself."""
    variables = {**graph.inputs, **graph.parameters}
    arguments = {name: mx.nd.empty(shape, dtype=kind) for name, (shape, kind) in variables.items()}
    gradients = {name: mx.nd.empty(variables[name][0]) for name in gradient_names}
    requests = {name: "write" if name in gradients else "null" for name in arguments}
    states = {name: mx.nd.empty(shape, dtype=kind) for name, (shape, kind) in graph.aux.items()}
    with environment({"MXNET_SUBGRAPH_BACKEND": "NONE"}):
        executor = graph.symbol.bind(
            mx.cpu(), arguments, args_grad=gradients, grad_req=requests, aux_states=states
        )
    return memory_planner.planned_mib(executor)


def fixed_bytes(divided: _core.Partitioned) -> list[int]:
    """Weights, Adam's states and inputs of every worker; gradients are in the graph."""
    totals = [0] * divided.workers
    for variable in variables_of(divided).values():
        copies = 1 + ADAM_STATES if variable.role == "parameter" else 1
        for worker, box in enumerate(variable.layout.boxes):
            totals[worker] += copies * math.prod(box.shape) * FLOAT32_BYTES
    return totals


def bound_mib(graph: _core.Graph, workers: int, *, search: bool) -> int:
    """The MiB that MXNet plans for a graph when it is bound."""
    contexts = [mx.cpu(worker) for worker in range(workers)]
    context_of = {f"worker{worker}": one for worker, one in enumerate(contexts)}
    groups = dict(graph.variables)
    arrays = {}
    for node in graph.nodes:
        if not node.op:
            ((shape, dtype),) = node.outputs
            arrays[node.name] = mx.nd.empty(shape, context_of[groups[node.name]], dtype_name(dtype))
    planner = {
        MATCH_RANGE: str(memory_planner.DEFAULT_MATCH_RANGE),
        SEARCH_MATCH_RANGE: str(int(search)),
    }
    return memory_planner.planned_mib(bind("training", graph, contexts, arrays, planner=planner))


def _graphs(divided: _core.Partitioned, variant: str) -> list[_core.Graph]:
    if variant in ("halves", "two_executors"):
        return _core.schedule(divided, joint=variant == "halves").graphs
    if variant in ("plain", "multifetch", "shared"):
        return [divided.graph]
    return [divided.in_order()]


def _bytes(variables: Mapping[str, tuple[tuple[int, ...], str]]) -> int:
    return sum(math.prod(shape) * FLOAT32_BYTES for shape, _ in variables.values())


def to_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows for a program."""
    return {
        "measured": "planned by MXNet when the graphs were bound; nothing was executed",
        "context": context(),
        "rows": [
            {
                **dataclasses.asdict(row),
                "workers": len(row.bytes_per_worker),
                "ratio": round(row.ratio, 4),
                "fits_12_gib": row.fits,
            }
            for row in rows
        ],
    }


def to_text(rows: Sequence[Row]) -> str:
    """A table."""
    header = (
        "model", "batch", "variant", "GiB a worker", "of serial/k", "12 GiB", "GiB fetched",
        "MXNet/model",
    )  # fmt: skip
    return "\n".join(
        table(
            header,
            (
                (
                    row.model,
                    str(row.batch),
                    row.variant,
                    f"{max(row.bytes_per_worker) / 2**30:.2f}",
                    f"{row.ratio:.3f}",
                    "fits" if row.fits else "no",
                    f"{row.fetched_bytes / 2**30:.2f}",
                    f"{row.planned_mib / max(row.predicted_mib, 1):.4f}",
                )
                for row in rows
            ),
        )
    )


def _rows(options: argparse.Namespace, variants: Sequence[str]) -> Iterator[Row]:
    chosen = options.model or [*CASES, *PAIRS]
    cases = dict([SMOKE]) if options.smoke else {m: CASES[m] for m in chosen if m in CASES}
    for model, batch in cases.items():
        yield from measure(model, batch, variants, options.workers, reduced=options.smoke)
    pairs = dict([SMOKE_PAIR]) if options.smoke else {m: PAIRS[m] for m in chosen if m in PAIRS}
    for model, batch in pairs.items():
        yield from measure_pair(model, batch, options.workers, reduced=options.smoke)


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Measure, print, and write raw data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append", choices=sorted({**CASES, **PAIRS}))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", type=Path, help="folder for memory.json")
    parser.add_argument("--smoke", action="store_true", help="a reduced model only")
    options = parser.parse_args(arguments)
    load()
    variants = options.variant or list(VARIANTS)
    rows: list[Row] = []
    for row in _rows(options, variants):
        rows.append(row)
        if options.format == "text":
            print(to_text([row]).splitlines()[-1], flush=True)
    document = to_json(rows)
    print(json.dumps(document, indent=1) if options.format == "json" else "\n" + to_text(rows))
    if options.output is not None:
        write(options.output, "memory", document)


if __name__ == "__main__":
    main()
