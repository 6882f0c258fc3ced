"""Memory per worker at full size, as MXNet's planner allocates it, serial and partitioned.

    python scripts/memory.py --model rnn-10-8k          # one of the three; all by default
    python scripts/memory.py --format json --output docs/results
    python scripts/memory.py --smoke                    # a reduced model, in seconds

The script binds the serial training graph and the partitioned one to MXNet's executors. Binding
reserves memory without touching it, so this runs on any machine. The executors report what MXNet
planned for intermediate tensors; weights, gradients and Adam's two states are added from their
sizes. Each line changes one thing in the line above it:

    plain              slices, copies between workers and concatenations, MXNet's own order
    multifetch         one operator assembles a region
    shared             several operators use one fetch, if that needs no more memory
    control_deps       dependencies keep nodes in an order that needs little memory
    delayed_fetch      a fetch runs just before its reader, instead of as early as possible
    match_range        MXNet's planner tries how much larger a reused block may be
    halves             as in a script: forward, then backward, in one executor
    two_executors      as in a script with random operators: two executors

MXNet does not report each worker's share. The model of its planner does
(tofu.mx.memory.planner), and must agree with MXNet's total. Hardware: any, 8 GiB of memory.
Time: ten minutes for all three. Expected: at most 1.10 of serial/8 in the last lines.
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

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.dtypes import dtype_name
from tofu.models import ModelGraph, build
from tofu.mx.memory import planner as memory_planner
from tofu.mx.run.executor import bind
from tofu.mx.run.extension import MATCH_RANGE, SEARCH_MATCH_RANGE, environment, load
from tofu.plan.layout import variables_of
from tofu.tables import table

WORKERS = 8
CASES = {"wresnet-152-10": 8, "rnn-10-8k": 128, "wresnet-50-4": 128}
SMOKE = ("rnn-6-4k", 65536)
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
    "delayed_fetch": (_SHARED, False),
    "match_range": (_SHARED, True),
    "halves": (_SHARED, True),
    "two_executors": (_SHARED, True),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One variant of one model.

    Attributes:
        model, batch: the case.
        variant: a key of VARIANTS.
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
        for one in _graphs(divided, variant):
            found = memory_planner.predict(one, workers=workers, search_match_range=search)
            predicted += found.planned_bytes / MIB
            planned += bound_mib(one, workers, search=search)
            pools = [a + b for a, b in zip(pools, found.bytes_per_worker)]
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


def serial_bytes(graph: ModelGraph) -> int:
    """The bytes that stock MXNet needs; it differentiates and binds the symbol itself."""
    variables = {**graph.inputs, **graph.parameters}
    arguments = {name: mx.nd.empty(shape, dtype=kind) for name, (shape, kind) in variables.items()}
    gradients = {
        name: mx.nd.empty(shape, dtype=kind) for name, (shape, kind) in graph.parameters.items()
    }
    requests = {name: "write" if name in gradients else "null" for name in arguments}
    states = {name: mx.nd.empty(shape, dtype=kind) for name, (shape, kind) in graph.aux.items()}
    with environment({"MXNET_SUBGRAPH_BACKEND": "NONE"}):
        executor = graph.symbol.bind(
            mx.cpu(), arguments, args_grad=gradients, grad_req=requests, aux_states=states
        )
    weights = _bytes(graph.parameters)
    fixed = (2 + ADAM_STATES) * weights + _bytes(graph.inputs) + _bytes(graph.aux)
    return fixed + memory_planner.planned_mib(executor) * MIB


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
    return [divided.in_order(delay_fetches=variant != "control_deps")]


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


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Measure, print, and write raw data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append", choices=sorted(CASES))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", type=Path, help="folder for memory.json")
    parser.add_argument("--smoke", action="store_true", help="a reduced model only")
    options = parser.parse_args(arguments)
    load()
    variants = options.variant or list(VARIANTS)
    rows: list[Row] = []
    cases = dict([SMOKE]) if options.smoke else {m: CASES[m] for m in options.model or CASES}
    for model, batch in cases.items():
        for row in measure(model, batch, variants, options.workers, reduced=options.smoke):
            rows.append(row)
            if options.format == "text":
                print(to_text([row]).splitlines()[-1], flush=True)
    document = to_json(rows)
    print(json.dumps(document, indent=1) if options.format == "json" else "\n" + to_text(rows))
    if options.output is not None:
        write(options.output, "memory", document)


if __name__ == "__main__":
    main()
