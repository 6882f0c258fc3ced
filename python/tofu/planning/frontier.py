"""The trade-off of time, or bytes, against memory: all plans that no other found one beats.

The plans are those of searches within memory limits (tofu.planning.within), from what the plan
of fewest bytes with whole tensors takes down to what the plan without any takes; TensorOpt (Cai
et al., section 4) calls the result the cost frontier. The rivals' plans are single points.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from tofu.errors import PlanError
from tofu.plan import Plan, Problem, SearchOptions, plan_refined
from tofu.plan.plan import format_bytes
from tofu.plan.progress import stage
from tofu.plan.recompute import Recomputation, recomputed

from .memory import with_memory
from .within import held_bytes

__all__ = ["Point", "frontier", "turning_point", "unbeaten"]

Wanted = tuple[str, SearchOptions, Optional[Recomputation], bool]
_LEVELS = 4  # of recomputation, between none and all


@dataclasses.dataclass(frozen=True)
class Point:
    """One plan.

    Attributes:
        name: where it comes from: a limit of tiles, or the search mode.
        plan: the plan.
        step_seconds: the predicted time of a step; None without a machine.
        is_rival: whether it is the plan of another algorithm.
        problem: the graph that the plan is for; None: the one given.
    """

    name: str
    plan: Plan
    step_seconds: Optional[float] = None
    is_rival: bool = False
    problem: Optional[Problem] = dataclasses.field(default=None, repr=False)

    @property
    def held_bytes(self) -> int:
        """What the fullest worker holds."""
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
    rivals: Sequence[str] = (),
    exact: bool = True,
    step_seconds: Optional[Callable[[Problem, Plan], float]] = None,
    recompute: bool = False,
) -> Iterator[Point]:
    """All plans found, as they are found; `unbeaten` keeps the frontier.

    Args:
        problem: what to plan.
        options: how to search; whether tensors may stay whole is decided here.
        limits: number of memory limits between the two ends.
        most_bytes: plans that hold more are left out; None: none are.
        rivals: search modes to compare with.
        exact: whether to count what MXNet will allocate; else a quick estimate.
        step_seconds: predicts the time of a step; None: bytes are compared.
        recompute: whether activations may also be computed again in the backward pass.
    """

    def point(
        name: str, chosen: SearchOptions, again: Optional[Recomputation], is_rival: bool = False
    ) -> Optional[Point]:
        own = problem if again is None else problem.replaced(again.table)
        try:
            own, plan = plan_refined(own, chosen)
        except PlanError:
            return None
        plan = with_memory(own, plan) if exact else plan
        if most_bytes is not None and held_bytes(plan) > most_bytes:
            return None
        seconds = None if step_seconds is None else step_seconds(own, plan)
        plan = plan if again is None else again.note(plan)
        return Point(name, plan, seconds, is_rival, own)

    cut = dataclasses.replace(options, allow_replication=False)
    free = dataclasses.replace(options, allow_replication=True)
    sizes = (held_bytes(plan_refined(problem, each)[1]) for each in (cut, free))
    low, high = sorted(sizes)
    wanted: list[Wanted] = [("every tensor cut", cut, None, False)]
    for index in range(limits + 1):
        tiles = low + (high - low) * index // max(limits, 1)
        chosen = dataclasses.replace(free, memory_limit_bytes=tiles)
        wanted.append((f"tiles within {format_bytes(tiles)}", chosen, None, False))
    wanted.append(("no limit", free, None, False))
    for again in _recomputations(problem) if recompute else ():
        told = f"{again.computation:.2f} x the computation"
        wanted.append((f"every tensor cut, {told}", cut, again, False))
        wanted.append((f"no limit, {told}", free, again, False))
    for mode in rivals:
        wanted.append((mode, dataclasses.replace(options, mode=mode), None, True))
    for number, each in enumerate(wanted, 1):
        with stage(f"plan {number} of {len(wanted)}"):
            found = point(*each)
        if found is not None:
            yield found


def _recomputations(problem: Problem) -> Iterator[Recomputation]:
    """As few activations as possible, and some limits between these and all of them."""
    most = recomputed(problem.table)
    if not most.segments:
        return
    yield most
    costs = {0, most.cost}
    for share in range(1, _LEVELS):
        limit = most.bytes + (most.saved_bytes - most.bytes) * share // _LEVELS
        found = recomputed(problem.table, limit)
        if found.cost not in costs:
            costs.add(found.cost)
            yield found


def unbeaten(points: Sequence[Point]) -> list[Point]:
    """Those of which no other costs less and holds no more, by ascending memory."""
    kept: list[Point] = []
    ours = (point for point in points if not point.is_rival)
    for point in sorted(ours, key=lambda point: (point.held_bytes, point.cost)):
        if not kept or point.cost < kept[-1].cost:
            kept.append(point)
    return kept


def turning_point(kept: Sequence[Point]) -> Optional[Point]:
    """The point from which more memory saves little; None for fewer than three points.

    It is the one farthest below the line between the ends of the frontier.
    """
    if len(kept) < 3:
        return None
    first, last = kept[0], kept[-1]
    memory, cost = last.held_bytes - first.held_bytes, first.cost - last.cost

    def below(point: Point) -> float:
        spent = (point.held_bytes - first.held_bytes) / memory
        return (first.cost - point.cost) / cost - spent

    return max(kept[1:-1], key=below)
