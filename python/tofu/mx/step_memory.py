"""What a training step takes on every worker, by kind, before anything is allocated.

    memory = step_memory(partitioned, phases, contexts)
    memory.kinds        # {"parameters": 1024, "gradients": 1024, ...} of the fullest worker

Tiles are counted by their sizes; what MXNet's executors allocate for everything else is
from the model of its planner (tofu.mx.memory), under the settings that a run uses.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np

from .executor import planner_settings
from .infer import dtype_name
from .memory import DEFAULT_MATCH_RANGE, ExecutorMemory, memory_rules, predict
from .runtime import MATCH_RANGE

__all__ = ["KINDS", "StepMemory", "step_memory"]

KINDS = ("parameters", "gradients", "optimizer_state", "activations", "fetch_buffers")
_GRADIENT, _STATE = "gradient:", "state:"
_MULTIFETCH = "_tofu_multifetch"


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """Bytes that a step needs.

    Attributes:
        kinds: of the fullest worker, one number for each of KINDS. Auxiliary states are
            parameters. Activations are everything that is nothing else: inputs, tensors
            between operators, and what lies idle between them. Fetch buffers are those that
            are alive at the worst moment.
        bytes_per_worker: the sum for every worker.
    """

    kinds: Mapping[str, int]
    bytes_per_worker: tuple[int, ...]


def step_memory(
    partitioned: Mapping[str, Any], phases: Mapping[str, Any], contexts: Sequence[mx.Context]
) -> StepMemory:
    """Add up what a step of a partitioned graph needs.

    Args:
        partitioned: the partitioned graph (docs/formats.md).
        phases: its phases, to be run on `contexts`.
        contexts: one per worker.

    Raises GraphError where MXNet refuses an operator.
    """
    workers = len(contexts)
    counts = [dict.fromkeys(KINDS, 0) for _ in range(workers)]
    for variable in partitioned["variables"].values():
        kind = _kind(variable["role"])
        for tile, size in _tiles(variable):
            counts[tile["worker"]][kind] += size
    for head in partitioned["heads"]:
        if head["role"].startswith(_GRADIENT):
            for tile, size in _tiles(head):
                counts[tile["worker"]]["gradients"] += size
    pools = [0] * workers
    fetched = 0
    for graph in _graphs(phases):
        found = _predict(graph, contexts)
        pools = [a + b for a, b in zip(pools, found.bytes_per_worker)]
        fetched = max(fetched, _fetch_buffers(graph, found))
    totals = []
    for count, pool in zip(counts, pools):
        # Gradients are outputs of an executor.
        others = max(pool - count["gradients"], 0)
        count["fetch_buffers"] = min(fetched, others)
        count["activations"] += others - count["fetch_buffers"]
        totals.append(sum(count.values()))
    return StepMemory(counts[totals.index(max(totals))], tuple(totals))


def _kind(role: str) -> str:
    if role in ("parameter", "aux"):
        return "parameters"
    return "optimizer_state" if role.startswith(_STATE) else "activations"


def _tiles(record: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    size = np.dtype(dtype_name(record["dtype"])).itemsize
    for tile in record["tiles"]:
        extents = (end - begin for begin, end in zip(tile["begin"], tile["end"]))
        yield tile, math.prod(extents) * size


def _graphs(phases: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if phases.get("joint") is not None:
        yield phases["joint"]["graph"]
        return
    for half in ("forward", "backward"):
        if phases[half] is not None:
            yield phases[half]["graph"]


def _predict(graph: Mapping[str, Any], contexts: Sequence[mx.Context]) -> ExecutorMemory:
    settings = planner_settings(graph, contexts)
    text = json.dumps(graph)
    match_range = settings.get(MATCH_RANGE)
    return predict(
        text,
        memory_rules(text),
        workers=len(contexts),
        match_range=DEFAULT_MATCH_RANGE if match_range is None else int(match_range),
        search_match_range=match_range is None,
    )


def _fetch_buffers(graph: Mapping[str, Any], found: ExecutorMemory) -> int:
    """Bytes at the worst moment of what fetches have brought, gradients' tiles excepted."""
    fetches = {node["name"] for node in graph["nodes"] if node["op"] == _MULTIFETCH}
    heads = {(graph["nodes"][node]["name"], index) for node, index, *_ in graph["heads"]}
    return sum(
        size
        for name, output, size in found.peak
        if (name in fetches or not name) and (name, output) not in heads
    )
