"""Plans of a module that trade what is communicated against what a rank holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from tofu.errors import InternalError
from tofu.planner.frontier import Point, frontier
from tofu.planner.sweep import Measure
from tofu.plans import Plan, Problem, SearchOptions
from tofu.torch.module_trace import Traced
from tofu.torch.planning import own_options, planned_as, planning_of
from tofu.torch.rank_memory import with_memory

__all__ = ["frontier_of"]


def frontier_of(
    traced: Traced,
    mesh: tuple[int, ...],
    options: SearchOptions,
    *,
    optimizer: Optional[str] = "adam",
    limits: int = 8,
    most_bytes: Optional[int] = None,
    rivals: Optional[Mapping[str, SearchOptions]] = None,
    exact: bool = True,
    name: str = "",
) -> list[Point]:
    """All plans found, with the step's predicted time if there is a machine.

    Args:
        traced: the module.
        mesh: the size of every dimension of the mesh.
        options: how to search.
        optimizer: whose state counts as memory.
        limits: number of memory limits to search within.
        most_bytes: plans that hold more are left out; None: none are.
        rivals: how to search the plans to compare with, by name.
        exact: whether to count what a rank's program holds; else the search's estimate.
        name: the module's.
    """
    planning = planning_of(traced, mesh, optimizer=optimizer, options=options, name=name)
    parts = planning.options.parts

    def count(_: Problem, plan: Plan) -> Plan:
        return with_memory(planned_as(planning, plan)).details

    def step_seconds(_: Problem, plan: Plan) -> float:
        if plan.predicted is None:
            raise InternalError("a plan without a prediction, with a machine")
        return float(plan.predicted["step_ns"]) / 1e9

    return list(
        frontier(
            planning.problem,
            planning.options,
            limits=limits,
            most_bytes=most_bytes,
            rivals={k: own_options(each, parts) for k, each in (rivals or {}).items()},
            measure=Measure(count if exact else None, step_seconds if options.machine else None),
        )
    )
