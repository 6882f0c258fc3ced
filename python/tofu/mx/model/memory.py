"""The exact memory of a plan: partitions the graph as for a run and asks MXNet's planner."""

from __future__ import annotations

from typing import Callable, Optional

from tofu import _core
from tofu.plans import Plan, Problem
from tofu.plans.problem import Counting
from tofu.plans.progress import stage

__all__ = ["begin_memory", "with_memory"]

# Each worker may fetch from all others, so the partitioned graph grows with the square of their
# number: an MLP's takes 5 s for 512 workers, a minute for 1,024.
_MOST_WORKERS = 512


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
    return begin_memory(problem, plan, Counting(fetch, keep_fetched_bytes))()


def begin_memory(problem: Problem, plan: Plan, counting: Counting) -> Callable[[], Plan]:
    """Begin the work of ``with_memory``, and return a function that waits for its result.

    The passes, which take most of the time, are started; the function returned asks MXNet.
    """
    from tofu.mx import extension
    from tofu.mx.devices import default_fetch

    chosen = counting.fetch or default_fetch()
    core_plan = plan.in_graph(problem.table)
    # Copies with plain fetches differ: each chooses another worker to pass on small regions.
    alike = core_plan.without_copied_workers() if chosen == "multifetch" else core_plan
    if alike.workers > _MOST_WORKERS:
        return lambda: plan
    joint = extension.runs_parts()

    def run() -> tuple[_core.Partitioned, _core.TrainingStep]:
        partitioned = _core.partition(alike, fetch=chosen, spare_bytes=counting.keep_fetched_bytes)
        return partitioned, _core.schedule(partitioned, take=True, joint=joint)

    wait = counting.start(run)

    def finish() -> Plan:
        with stage("predicting the memory"):
            partitioned, step = wait()
            return _counted(plan, core_plan, partitioned, step, chosen)

    return finish


def _counted(
    plan: Plan,
    core_plan: _core.Plan,
    partitioned: _core.Partitioned,
    step: _core.TrainingStep,
    fetch: str,
) -> Plan:
    """The plan with the memory of its step, in which each copied worker stands for all copies."""
    import mxnet as mx

    from tofu.mx.memory.step_memory import step_memory

    copies = core_plan.workers // step.workers
    kind = mx.gpu if mx.context.num_gpus() else mx.cpu
    memory = step_memory(step, [kind(worker) for worker in range(step.workers)])
    return plan.noted(
        bytes_per_worker=memory.kinds,
        memory="exact",
        fetch=fetch,
        fetched_bytes=copies * partitioned.fetched_bytes + core_plan.update_bytes,
        shared_bytes=copies * partitioned.shared_bytes,
        relayed_bytes=copies * partitioned.relayed_bytes,
        peak=memory.peak,
    )
