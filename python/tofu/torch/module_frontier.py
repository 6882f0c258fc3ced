"""Plans of a module that trade what is communicated against what a rank holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Optional

from tofu.planner.frontier import Point, frontier
from tofu.plans import SearchOptions
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
    found = []
    for point in frontier(
        planning.problem,
        planning.options,
        limits=limits,
        rivals={k: own_options(each, parts) for k, each in (rivals or {}).items()},
        exact=False,
    ):
        plan = point.plan
        if exact:
            plan = with_memory(planned_as(planning, plan)).details
        if plan.predicted is not None:
            point = dataclasses.replace(point, step_seconds=plan.predicted["step_ns"] / 1e9)
        point = dataclasses.replace(point, plan=plan)
        if most_bytes is None or point.held_bytes <= most_bytes:
            found.append(point)
    return found
