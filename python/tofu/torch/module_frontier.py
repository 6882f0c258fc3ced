"""Finds plans of a module that trade communication against memory, and plans of other searches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, Optional

from tofu.errors import InternalError
from tofu.planner.comparison import Alternative, compare
from tofu.planner.frontier import Point, frontier
from tofu.planner.side_threads import Start
from tofu.planner.sweep import Measure
from tofu.plans import Plan, Problem, SearchOptions
from tofu.torch.planning import Planning, own_options, planned_as
from tofu.torch.rank_memory import with_memory

__all__ = ["compared", "frontier_of"]


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
        rivals: name -> options to search a plan to compare with.
        exact: whether to count the memory of a rank's program; else use the search's estimate.
    """
    options, parts = planning.options, planning.options.parts
    return list(
        frontier(
            planning.problem,
            options,
            limits=limits,
            most_bytes=most_bytes,
            rivals={k: own_options(each, parts) for k, each in (rivals or {}).items()},
            measure=measure_of(planning, exact=exact),
        )
    )


def compared(
    planning: Planning, modes: Sequence[str], objectives: Sequence[str], *, exact: bool
) -> Iterator[Alternative]:
    """Yields the plans of every search mode and objective, with and without whole tensors.

    Args:
        planning: the module and the other options to plan it with.
        modes: search modes.
        objectives: what to minimise, some of config.OBJECTIVES.
        exact: whether to count the memory of a rank's program; else use the search's estimate.
    """
    alternatives = compare(
        lambda _: planning.problem,
        workers=(planning.problem.workers,),
        modes=modes,
        objectives=objectives,
        options=planning.options,
        measure=measure_of(planning, exact=exact),
    )
    return (dataclasses.replace(each, mesh=planning.mesh) for each in alternatives)


def measure_of(planning: Planning, *, exact: bool) -> Measure:
    """Measures a module's plans: a rank's memory, and a step's time if there is a machine."""

    def count(problem: Problem, plan: Plan, *, start: Start) -> Callable[[], Plan]:
        return lambda: with_memory(planned_as(planning, plan)).details

    def step_seconds(_: Problem, plan: Plan) -> float:
        if plan.predicted is None:
            raise InternalError("a plan without a prediction, with a machine")
        return float(plan.predicted["step_ns"]) / 1e9

    return Measure(count if exact else None, step_seconds if planning.options.machine else None)
