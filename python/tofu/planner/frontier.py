"""The trade-off of time, or bytes, against memory: plans that no other plan found beats.

TensorOpt (Cai et al., section 3) calls it the cost frontier. The search (``plan_frontier``)
finds it for the memory of tiles and its own costs, and says whether it is complete; the memory that
MXNet allocates and the simulated time of a step are then those of the plans found. The rivals'
plans are single points.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from tofu import _core
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.names import readable
from tofu.plans.plan import format_bytes
from tofu.plans.progress import stage
from tofu.plans.render.text import cuts_text

from .limits import held_bytes
from .recomputation import Recomputation, recomputed
from .search import BY_SPEED, plan_frontier, refined, search, with_shares
from .sweep import Found, Measure, Outcome, Trial, sweep

__all__ = ["Point", "changed", "frontier", "turning_point", "unbeaten"]

_LEVELS = 4  # of recomputation, between none and all


@dataclasses.dataclass(frozen=True)
class Point:
    """A plan of a frontier, with its cost and memory.

    Attributes:
        name: its origin: a limit of tiles, or the search mode.
        plan: the plan.
        step_seconds: the predicted time of a step; None without a machine.
        is_rival: whether it is the plan of another algorithm.
        problem: the graph that the plan is for; None: the one given.
        tile_bytes: the most bytes of tiles on a worker; None: the search does not tell.
        is_proven: whether the search has proven that it found every plan of the graph that no
            other beats in its own cost and the memory of tiles, of which this is one.
        page: the file of the plan's page, to which pictures link; "" for none.
    """

    name: str
    plan: Plan
    step_seconds: Optional[float] = None
    is_rival: bool = False
    problem: Optional[Problem] = dataclasses.field(default=None, repr=False)
    tile_bytes: Optional[int] = None
    is_proven: bool = False
    page: str = ""

    @property
    def held_bytes(self) -> int:
        """Bytes that the fullest worker holds."""
        return held_bytes(self.plan)

    @property
    def cost(self) -> float:
        """Seconds of a step where they are predicted, else bytes communicated."""
        return self.plan.total_bytes if self.step_seconds is None else self.step_seconds


def frontier(
    problem: Problem,
    options: SearchOptions,
    *,
    limits: int = 8,
    most_bytes: Optional[int] = None,
    rivals: Optional[Mapping[str, SearchOptions]] = None,
    measure: Optional[Measure] = None,
    recompute: bool = False,
) -> Iterator[Point]:
    """Yield plans as they are found; `unbeaten` keeps the frontier.

    Args:
        problem: what to plan.
        options: how to search; whether tensors may stay whole is decided here.
        limits: number of memory limits to search within.
        most_bytes: plans that hold more are left out; None: none are.
        rivals: searches to compare with, by name.
        measure: how to count memory and predict times; None: a quick estimate of memory, and
            bytes are compared.
        recompute: whether activations may also be computed again in the backward pass.
    """
    measure = measure or Measure()
    figures: deque[dict[str, Any]] = deque()

    def trials() -> Iterator[Union[Trial, Found]]:
        for planned, more in _plans(problem, options, limits, measure):
            figures.append(more)
            yield planned
        for trial in _recomputing(problem, options, measure.fetch) if recompute else ():
            figures.append({})
            yield trial
        others = rivals or {}
        for number, (name, chosen) in enumerate(others.items(), 1):
            figures.append({"is_rival": True})
            place = f"{name} (rival {number} of {len(others)})"
            yield Trial(name, problem, chosen, place=place)

    for outcome in sweep(trials(), measure):
        yield from _point(outcome, most_bytes, **figures.popleft())


def _plans(
    problem: Problem, options: SearchOptions, limits: int, measure: Measure
) -> Iterator[tuple[Found, dict[str, Any]]]:
    """Yield the plans of the search within limits, each with the search's figures."""
    with stage("searching plans within memory limits"):
        within = plan_frontier(problem, options, searches=limits)
    count = len(within.plans)
    for number, (searched, tiles) in enumerate(zip(within.plans, within.tile_bytes), 1):
        name = "no limit" if number == count else f"tiles within {format_bytes(tiles)}"
        figures = {"tile_bytes": tiles, "is_proven": within.is_complete}
        place = f"plan {number} of {count}"
        yield (Trial(name, problem, options, place=place), searched), figures
        by_speed = f"{place}, {BY_SPEED}"
        with stage(by_speed):
            shared = with_shares(searched, measure.fetch)
        if shared is not None:
            trial = Trial(f"{name}, {BY_SPEED}", problem, options, place=by_speed)
            yield (trial, dataclasses.replace(shared, simulation=None)), {}
    if options.objective == "time" and problem.front_end.simulates and measure.step_seconds:
        trial = Trial("fastest of all modes", problem, options)
        with stage(trial.doing):
            replicating = dataclasses.replace(options, allow_replication=True)
            fastest = search(problem, replicating, fetch=measure.fetch)
        yield (trial, dataclasses.replace(fastest, simulation=None)), {}


def _point(outcome: Outcome, most_bytes: Optional[int], **figures: Any) -> Iterator[Point]:
    """Yield the point of a plan, if there is one within the limit."""
    plan = outcome.plan
    if plan is not None and (most_bytes is None or outcome.held_bytes <= most_bytes):
        name = outcome.trial.name
        yield Point(name, plan, outcome.step_seconds, problem=outcome.problem, **figures)


def _recomputing(problem: Problem, options: SearchOptions, fetch: Optional[str]) -> Iterator[Trial]:
    """Searches of graphs that run parts again, with and without whole tensors."""
    find = functools.partial(search, fetch=fetch, simulated=False)
    for again in _recomputations(refined(problem, options, find).table):
        for name, replicates in (("every tensor cut", False), ("no limit", True)):
            yield Trial(
                f"{name}, {again.computation:.2f} x the computation",
                problem.replaced(again.table),
                dataclasses.replace(options, allow_replication=replicates),
                again,
            )


def _recomputations(table: _core.StrategyTable) -> Iterator[Recomputation]:
    """Yield recomputations that keep as few activations as possible, or some more."""
    most = recomputed(table)
    if not most.segments:
        return
    yield most
    costs = {0, most.cost}
    for share in range(1, _LEVELS):
        limit = most.bytes + (most.saved_bytes - most.bytes) * share // _LEVELS
        recomputation = recomputed(table, limit)
        if recomputation.cost not in costs:
            costs.add(recomputation.cost)
            yield recomputation


def unbeaten(points: Sequence[Point]) -> list[Point]:
    """Keep the points that no other, of rivals too, beats in cost and memory, by their memory."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.held_bytes, p.cost, p.is_rival)):
        if not front or point.cost < front[-1].cost:
            front.append(point)
    return front


def turning_point(front: Sequence[Point]) -> Optional[Point]:
    """The point from which more memory saves little; None for fewer than three points.

    The turning point is farthest below the line between the ends of the frontier.
    """
    if len(front) < 3:
        return None
    first, last = front[0], front[-1]
    memory, cost = last.held_bytes - first.held_bytes, first.cost - last.cost

    def below(point: Point) -> float:
        spent = (point.held_bytes - first.held_bytes) / memory
        return (first.cost - point.cost) / cost - spent

    return max(front[1:-1], key=below)


def changed(before: Point, after: Point) -> str:
    """Names the tensors that a plan cuts in another way than another plan of the same net."""
    cuts_before = {(tensor.node, tensor.output): tensor.cuts for tensor in before.plan.tensors}
    recut = [
        tensor
        for tensor in after.plan.tensors
        if cuts_before.get((tensor.node, tensor.output), tensor.cuts) != tensor.cuts
    ]
    if not recut:
        return "computes other activations again" if after.problem is not before.problem else ""
    largest = max(recut, key=lambda tensor: tensor.bytes)
    count = f"{len(recut)} tensors are" if len(recut) > 1 else "1 tensor is"
    named = f"{readable(largest.node)} ({format_bytes(largest.bytes)}): {cuts_text(largest)}"
    return f"{count} cut otherwise, {'the largest, ' * (len(recut) > 1)}{named}"
