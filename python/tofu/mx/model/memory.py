"""The exact memory of a plan: partitions the graph as for a run and asks MXNet's planner."""

from __future__ import annotations

from typing import Callable, Optional

from tofu import _core
from tofu.plans import Plan, Problem
from tofu.plans.problem import Counting
from tofu.plans.progress import stage

__all__ = ["begin_memory", "with_memory"]

# Up to this number the graph of all workers tells what each of them holds. It grows with the square
# of the number.
_MOST_COUNTED = 16
# Plain fetches go through roots, which only the graph of all workers shows.
_MOST_PLAIN_WORKERS = 512


def with_memory(
    problem: Problem, plan: Plan, fetch: Optional[str] = None, *, keep_fetched_bytes: int = 0
) -> Plan:
    """Add the memory that MXNet will allocate and the bytes that workers really fetch.

    Up to 16 workers, the memory is that of the worker that needs most. Over more, it is that of the
    worker with the largest parts, which holds its tiles for the longest time. With plain fetches,
    over more than 512 workers, the plan keeps its estimate.

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
    if chosen == "plain" and core_plan.workers > _MOST_PLAIN_WORKERS:
        return lambda: plan
    has_view = chosen == "multifetch" and core_plan.workers > _MOST_COUNTED
    view = core_plan.fullest_worker if has_view else None
    joint = extension.runs_parts()

    def run() -> tuple[_core.Partitioned, _core.TrainingStep]:
        partitioned = _core.partition(
            core_plan, fetch=chosen, spare_bytes=counting.keep_fetched_bytes, view=view
        )
        return partitioned, _core.schedule(partitioned, take=True, joint=joint)

    wait = counting.start(run)

    def finish() -> Plan:
        with stage("predicting the memory"):
            partitioned, step = wait()
            return _counted(plan, core_plan, partitioned, step, chosen, view)

    return finish


def _counted(
    plan: Plan,
    core_plan: _core.Plan,
    partitioned: _core.Partitioned,
    step: _core.TrainingStep,
    fetch: str,
    view: Optional[int],
) -> Plan:
    """The plan with the memory of its step, which may be a view of one worker."""
    import mxnet as mx

    from tofu.mx.memory.step_memory import step_memory

    kind = mx.gpu if mx.context.num_gpus() else mx.cpu
    memory = step_memory(step, [kind(worker) for worker in range(step.workers)], view=view)
    return plan.noted(
        bytes_per_worker=memory.kinds,
        memory="exact",
        fetch=fetch,
        fetched_bytes=partitioned.fetched_bytes + core_plan.update_bytes,
        shared_bytes=partitioned.shared_bytes,
        relayed_bytes=partitioned.relayed_bytes,
        peak=memory.peak,
    )
