"""Predicts the memory of a training step on every worker, by kind of tensor.

    step = tofu._core.schedule(tofu._core.partition(plan, fetch="multifetch"), joint=True)
    memory = step_memory(step, contexts)
    memory.kinds        # {"parameters": 1024, "gradients": 1024, ...} of the fullest worker

Tiles count with their sizes. For everything else, the model of MXNet's memory planner
(tofu.mx.memory.executor_memory) predicts the allocation, under the settings that a run uses.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Optional

import mxnet as mx

from tofu import _core
from tofu.dtypes import dtype_bytes, dtype_flag
from tofu.plans.layout import Layout, heads_of, variables_of
from tofu.plans.peak import Held, Peak

from ..extension import MATCH_RANGE
from ..run.executor import planner_settings
from .executor_memory import DEFAULT_MATCH_RANGE, ExecutorMemory, LiveTensor, predict

__all__ = ["KINDS", "StepMemory", "step_memory"]

KINDS = ("parameters", "gradients", "optimizer_state", "activations", "fetch_buffers")
_GRADIENT, _STATE = "gradient:", "state:"
_MULTIFETCH = "_tofu_multifetch"


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """The bytes of a step.

    Attributes:
        kinds: bytes on the fullest worker, for each of KINDS. Auxiliary states count as
            parameters. Activations include everything without a kind of its own: inputs,
            tensors between operators, and unused memory between them. Fetch buffers are
            those alive when most memory is needed.
        bytes_per_worker: the sum on every worker.
        peak: the memory over the step of the worker with the most tensors between operators.
    """

    kinds: Mapping[str, int]
    bytes_per_worker: tuple[int, ...]
    peak: Optional[Peak] = None


def step_memory(step: _core.TrainingStep, contexts: Sequence[mx.Context]) -> StepMemory:
    """Add up the memory of a step of a partitioned graph.

    Args:
        step: the graphs that its executors run.
        contexts: one per worker.

    Raises GraphError if MXNet refuses an operator.
    """
    workers = len(contexts)
    counts = [dict.fromkeys(KINDS, 0) for _ in range(workers)]
    for variable in variables_of(step).values():
        for count, size in zip(counts, _tile_bytes(variable.layout)):
            count[_kind(variable.role)] += size
    pools = [0] * workers
    fetched = 0
    fixed = [sum(count.values()) for count in counts]
    for head in heads_of(step.backward_heads):
        if head.role.startswith(_GRADIENT):
            for count, size in zip(counts, _tile_bytes(head.layout)):
                count["gradients"] += size
    predictions = [_predict(graph, contexts) for graph in step.graphs]
    for prediction in predictions:
        pools = [a + b for a, b in zip(pools, prediction.bytes_per_worker)]
        fetched = max(fetched, _fetch_buffers(prediction))
    totals = []
    for count, pool in zip(counts, pools):
        # Gradients are outputs of an executor, so its pool contains them.
        others = max(pool - count["gradients"], 0)
        count["fetch_buffers"] = min(fetched, others)
        count["activations"] += others - count["fetch_buffers"]
        totals.append(sum(count.values()))
    # The half that needs more memory at its worst moment.
    worst = max(predictions, key=lambda prediction: max(prediction.live_per_worker))
    peak = _peak(worst, fixed[worst.peak_worker])
    return StepMemory(counts[totals.index(max(totals))], tuple(totals), peak)


def _peak(prediction: ExecutorMemory, fixed_bytes: int) -> Peak:
    return Peak(
        worker=prediction.peak_worker,
        fixed_bytes=fixed_bytes,
        nodes=tuple(name for name, _ in prediction.moments),
        bytes=tuple(count for _, count in prediction.moments),
        held=tuple(
            Held(live.node, live.output, live.bytes, "result" if live.is_head else _held(live))
            for live in prediction.peak
        ),
        allocated_bytes=prediction.bytes_per_worker[prediction.peak_worker],
    )


def _held(live: LiveTensor) -> str:
    return "fetched" if live.op == _MULTIFETCH or not live.node else "tensor"


def _kind(role: str) -> str:
    if role in ("parameter", "aux"):
        return "parameters"
    return "optimizer_state" if role.startswith(_STATE) else "activations"


def _tile_bytes(layout: Layout) -> list[int]:
    """The size of every worker's tile."""
    size = dtype_bytes(dtype_flag(layout.dtype))
    return [math.prod(box.shape) * size for box in layout.boxes]


def _predict(graph: _core.Graph, contexts: Sequence[mx.Context]) -> ExecutorMemory:
    match_range = planner_settings(graph, contexts).get(MATCH_RANGE)
    return predict(
        graph,
        workers=len(contexts),
        match_range=DEFAULT_MATCH_RANGE if match_range is None else int(match_range),
        search_match_range=match_range is None,
    )


def _fetch_buffers(prediction: ExecutorMemory) -> int:
    """Bytes of fetched tensors when most memory is needed, except gradients' tiles."""
    return sum(
        live.bytes for live in prediction.peak if _held(live) == "fetched" and not live.is_head
    )
