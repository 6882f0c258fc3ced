"""The plan with the least cost whose workers stay within a memory limit."""

from __future__ import annotations

import dataclasses
from typing import Optional

from tofu.plan import Plan, Problem, SearchOptions
from tofu.plan.within import check_fits, fit_within, held_bytes
from tofu.simulate.choose import plan_fastest

from .memory import with_memory

__all__ = ["held_bytes", "plan_within"]


def plan_within(
    problem: Problem,
    limit_bytes: int,
    options: Optional[SearchOptions] = None,
    *,
    exact: bool = True,
    fetch: Optional[str] = None,
    taken_bytes: int = 0,
) -> Plan:
    """The best plan found within a limit, with its memory.

    Args:
        problem: what to plan.
        limit_bytes: what a worker can hold.
        options: how to search; tensors may stay whole only if they allow it.
        exact: whether to count what MXNet will allocate; else a quick estimate.
        fetch: one of config.FETCHES; None: the default of a run.
        taken_bytes: what other graphs hold of the limit.

    Raises:
        MemoryLimitError: no plan was found that fits. The message says how little would do.
        PlanError: an option does not fit the graph.
    """
    chosen = options or SearchOptions()

    def counted(limited: SearchOptions) -> Plan:
        plan = plan_fastest(problem, limited, fetch=fetch)
        return with_memory(problem, plan, fetch) if exact else plan

    fit = fit_within(
        lambda tiles: counted(dataclasses.replace(chosen, memory_limit_bytes=tiles)),
        held_bytes,
        limit_bytes - taken_bytes,
        # Whole tensors may take more than the limit of tiles counts.
        (lambda: counted(dataclasses.replace(chosen, allow_replication=False)))
        if chosen.allow_replication
        else None,
    )
    check_fits(problem.name or "the graph", fit.found, limit_bytes, taken_bytes=taken_bytes)
    return fit.found
