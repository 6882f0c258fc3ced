"""Finds plans of a module that trade communication against a rank's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable, Optional

from tofu.errors import InternalError
from tofu.planner.frontier import Point, frontier
from tofu.planner.side_threads import Start
from tofu.planner.sweep import Measure
from tofu.plans import Plan, Problem, SearchOptions
from tofu.torch.planning import Planning, own_options, planned_as
from tofu.torch.rank_memory import with_memory

__all__ = ["frontier_of"]


def frontier_of(
    planning: Planning,
    *,
    limits: int = 8,
    most_bytes: Optional[int] = None,
    rivals: Optional[Mapping[str, SearchOptions]] = None,
    exact: bool = True,
) -> list[Point]:
    """Returns all plans found, with the step's predicted time if a machine is given.

    Args:
        planning: the module and the options to plan it with.
        limits: number of memory limits to search within.
        most_bytes: leaves out plans that hold more; None: keeps all.
        rivals: name -> how to search a plan to compare with.
        exact: whether to count the memory of a rank's program; else use the search's estimate.
    """
    options, parts = planning.options, planning.options.parts

    def count(problem: Problem, plan: Plan, *, start: Start) -> Callable[[], Plan]:
        return lambda: with_memory(planned_as(planning, plan)).details

    def step_seconds(_: Problem, plan: Plan) -> float:
        if plan.predicted is None:
            raise InternalError("a plan without a prediction, with a machine")
        return float(plan.predicted["step_ns"]) / 1e9

    return list(
        frontier(
            planning.problem,
            options,
            limits=limits,
            most_bytes=most_bytes,
            rivals={k: own_options(each, parts) for k, each in (rivals or {}).items()},
            measure=Measure(count if exact else None, step_seconds if options.machine else None),
        )
    )
