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
from collections.abc import Collection, Mapping, Sequence
from typing import Optional

import mxnet as mx

from tofu import _core
from tofu.dtypes import dtype_bytes, dtype_flag
from tofu.plans.layout import Layout, heads_of, variables_of
from tofu.plans.peak import KINDS, Held, Peak, alive_over_time

from ..extension import MATCH_RANGE
from ..run.executor import planner_settings
from .executor_memory import DEFAULT_MATCH_RANGE, ExecutorMemory, LiveTensor, predict

__all__ = ["StepMemory", "step_memory"]

_GRADIENT, _STATE = "gradient:", "state:"
_MULTIFETCH, _FETCHED = "_tofu_multifetch", "fetch_buffers"


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


def step_memory(
    step: _core.TrainingStep, contexts: Sequence[mx.Context], *, view: Optional[int] = None
) -> StepMemory:
    """Add up the memory of a step of a partitioned graph.

    Args:
        step: the graphs that its executors run.
        contexts: one per worker.
        view: the worker of which ``step`` is a view, and whose memory alone is counted.

    Raises GraphError if MXNet refuses an operator.
    """
    workers = len(contexts) if view is None else 1  # the first of a view is the one in view
    counts = [dict.fromkeys(KINDS, 0) for _ in range(workers)]
    for variable in variables_of(step).values():
        for count, size in zip(counts, _tile_bytes(variable.layout)):
            count[_kind(variable.role)] += size
    pools = [0] * workers
    fixed = [dict(count) for count in counts]
    gradients: set[int] = set()
    for head in heads_of(step.backward_heads):
        if head.role.startswith(_GRADIENT):
            gradients.update(head.numbers)
            for count, size in zip(counts, _tile_bytes(head.layout)):
                count["gradients"] += size
    peaks = []
    graphs = step.graphs
    for graph in graphs:
        prediction = _predict(graph, contexts, None if view is None else 0)
        pools = [a + b for a, b in zip(pools, prediction.bytes_per_worker)]
        own = gradients if graph is graphs[-1] else ()
        peaks.append(_peak(prediction, fixed[prediction.peak_worker], own, view))
    # Those alive when most memory is needed.
    fetched = max(peak.between[_FETCHED][peak.moment] for peak in peaks if peak.nodes)
    totals = []
    for count, pool in zip(counts, pools):
        # Gradients are outputs of an executor, so its pool contains them.
        others = max(pool - count["gradients"], 0)
        count["fetch_buffers"] = min(fetched, others)
        count["activations"] += others - count["fetch_buffers"]
        totals.append(sum(count.values()))
    # The half that needs more memory at its worst moment.
    peak = max(peaks, key=lambda peak: max(peak.bytes, default=0))
    return StepMemory(counts[totals.index(max(totals))], tuple(totals), peak)


def _peak(
    prediction: ExecutorMemory,
    fixed: Mapping[str, int],
    gradients: Collection[int],
    view: Optional[int],
) -> Peak:
    """The memory of the fullest worker; `gradients`: numbers of heads that are gradients."""

    def kind_of(live: LiveTensor) -> str:
        if live.head in gradients:
            return "gradients"
        return _FETCHED if _held(live) == "fetched" else "activations"

    lives = ((kind_of(live), live.bytes, live.born, live.died) for live in prediction.lives)
    peak = Peak(
        worker=prediction.peak_worker if view is None else view,
        fixed=fixed,
        nodes=prediction.moments,
        between=alive_over_time(lives, range(len(prediction.moments))),
        held=(),
        allocated_bytes=prediction.bytes_per_worker[prediction.peak_worker],
        reuses=prediction.match_range > 0,
    )
    held = [live for live in prediction.lives if live.born <= peak.moment < live.died]
    held.sort(key=lambda live: -live.bytes)
    return dataclasses.replace(
        peak, held=tuple(Held(each.node, each.output, each.bytes, _held(each)) for each in held)
    )


def _held(live: LiveTensor) -> str:
    if live.head >= 0:
        return "result"
    return "fetched" if live.op == _MULTIFETCH or not live.node else "tensor"


def _kind(role: str) -> str:
    if role in ("parameter", "aux"):
        return "parameters"
    return "optimizer_state" if role.startswith(_STATE) else "activations"


def _tile_bytes(layout: Layout) -> list[int]:
    """The size of every worker's tile."""
    size = dtype_bytes(dtype_flag(layout.dtype))
    return [math.prod(box.shape) * size for box in layout.boxes]


def _predict(
    graph: _core.Graph, contexts: Sequence[mx.Context], only_worker: Optional[int]
) -> ExecutorMemory:
    match_range = planner_settings(graph, contexts).get(MATCH_RANGE)
    return predict(
        graph,
        workers=len(contexts),
        match_range=DEFAULT_MATCH_RANGE if match_range is None else int(match_range),
        search_match_range=match_range is None,
        only_worker=only_worker,
    )
