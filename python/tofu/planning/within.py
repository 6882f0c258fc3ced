"""The plan with the least cost whose workers stay within a memory limit.

The search limits tiles only (src/passes/search/memory_limit.h). What a plan really takes, with
the regions that operators fetch and the blocks that MXNet cannot reuse, is known afterwards; the
limit of the tiles is lowered by what was too much, until the plan fits.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tofu.errors import PlanError
from tofu.plan import Plan, Problem, SearchOptions, plan_graph
from tofu.plan.plan import format_bytes

from .memory import with_memory

__all__ = ["held_bytes", "plan_within"]

_TRIES = 6
_LEAST_CUT = 0.01  # of the limit, between two tries


def held_bytes(plan: Plan) -> int:
    """What the fullest worker holds."""
    return sum(plan.bytes_per_worker.values())


def plan_within(
    problem: Problem,
    limit_bytes: int,
    options: Optional[SearchOptions] = None,
    *,
    exact: bool = True,
) -> Plan:
    """The best plan found within a limit, with its memory.

    Args:
        problem: what to plan.
        limit_bytes: what a worker can hold.
        options: how to search; tensors may stay whole only if they allow it.
        exact: whether to count what MXNet will allocate; else a quick estimate.

    Raises:
        PlanError: no plan was found that fits. The message says how little would do.
    """
    chosen = options or SearchOptions()

    def searched(tiles: Optional[int]) -> Plan:
        plan = plan_graph(problem, dataclasses.replace(chosen, memory_limit_bytes=tiles))
        return with_memory(problem, plan) if exact else plan

    best = searched(None)
    least, tiles = held_bytes(best), limit_bytes
    for _ in range(_TRIES):
        if held_bytes(best) <= limit_bytes:
            return best
        try:
            best = searched(tiles)
        except PlanError:
            break
        least = min(least, held_bytes(best))
        tiles -= max(held_bytes(best) - limit_bytes, int(_LEAST_CUT * limit_bytes))
        if tiles <= 0:
            break
    if held_bytes(best) <= limit_bytes:
        return best
    raise PlanError(
        f"{problem.name or 'the graph'}: no plan over {problem.workers} workers was found that "
        f"fits in {format_bytes(limit_bytes)}; the least that one holds is {format_bytes(least)}. "
        "Use more workers, a smaller batch, or an optimizer with less state"
    )
