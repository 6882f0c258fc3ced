"""The exact memory of a plan: partitions the graph as for a run and asks MXNet's planner."""

from __future__ import annotations

from typing import Optional

from tofu import _core
from tofu.plans import Plan, Problem
from tofu.plans.progress import stage

__all__ = ["serial_memory", "with_memory"]

# Each worker may fetch from all others, so the partitioned graph grows with the square of their
# number: an MLP's takes 5 s for 512 workers, a minute for 1,024.
_MOST_WORKERS = 512


def serial_memory(problem: Problem) -> int:
    """Estimate the memory of one device, counted as a run's summary counts a worker's."""
    return _core.plan(problem.table, workers=1).memory_bytes


def with_memory(
    problem: Problem, plan: Plan, fetch: Optional[str] = None, *, keep_fetched_bytes: int = 0
) -> Plan:
    """Add the memory that MXNet will allocate and the bytes that workers really fetch.

    Over more than 512 workers that differ, the plan keeps its estimate.

    Args:
        problem: the problem that the plan solves.
        plan: the plan.
        fetch: one of config.FETCHES; None: the default of a run.
        keep_fetched_bytes: as in SearchOptions.
    """
    from tofu.mx.devices import default_fetch

    with stage("predicting the memory"):
        return _with_memory(problem, plan, fetch or default_fetch(), keep_fetched_bytes)


def _with_memory(problem: Problem, plan: Plan, fetch: str, keep_fetched_bytes: int) -> Plan:
    import mxnet as mx

    from tofu.mx import extension
    from tofu.mx.memory.step_memory import step_memory

    given = plan.in_graph(problem.table)
    # Copies with plain fetches differ: each chooses another worker to pass on small regions.
    alike = given.without_copied_workers() if fetch == "multifetch" else given
    if alike.workers > _MOST_WORKERS:
        return plan
    copies = given.workers // alike.workers
    partitioned = _core.partition(alike, fetch=fetch, spare_bytes=keep_fetched_bytes)
    step = _core.schedule(partitioned, take=True, joint=extension.runs_parts())
    kind = mx.gpu if mx.context.num_gpus() else mx.cpu
    memory = step_memory(step, [kind(worker) for worker in range(alike.workers)])
    return plan.noted(
        bytes_per_worker=memory.kinds,
        memory="exact",
        fetch=fetch,
        fetched_bytes=copies * partitioned.fetched_bytes + given.update_bytes,
        shared_bytes=copies * partitioned.shared_bytes,
        relayed_bytes=copies * partitioned.relayed_bytes,
        peak=memory.peak,
    )
