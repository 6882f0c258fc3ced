"""Decides the plan of a problem: one road for commands, runs and modules.

From the outside in: as little recomputation as a limit needs, a limit of the tiles that keeps the
whole plan within the limit, the search and its objective, and then fetched regions to keep in the
memory that is left. A plan's memory is known once the front end has made a program of it.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from pathlib import Path
from typing import Generic, Optional, TypeVar

from tofu import _core
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.problem import Counting

from .limits import Fit, check_fits, fit_within, held_bytes, keep_what_fits
from .recomputation import Recomputation, fit_with_recomputation
from .search import Searched, refined, search
from .wish import Wish

__all__ = ["Decision", "Plans", "Programs", "decide", "plan_problem"]

Made = TypeVar("Made")


class Programs(abc.ABC, Generic[Made]):
    """The front end's part: makes a program of a plan, and knows its memory on a worker."""

    def search(self, problem: Problem, options: SearchOptions) -> Searched:
        """Search a plan; a front end may report progress meanwhile."""
        return search(problem, options)

    @abc.abstractmethod
    def make(self, searched: Searched, keep_fetched_bytes: int) -> Made:
        """Make the program of a plan; its peak may grow by these bytes for fetched regions."""

    @abc.abstractmethod
    def held_bytes(self, made: Made) -> int:
        """Bytes that the fullest worker holds."""


@dataclasses.dataclass(frozen=True)
class Decision(Generic[Made]):
    """A plan, with its program.

    Attributes:
        searched: the plan, and the graph that it is for.
        made: its program.
        fits: whether it fits in the room.
        recomputation: the part of the forward pass that runs again; None: nothing does.
    """

    searched: Searched
    made: Made
    fits: bool = True
    recomputation: Optional[Recomputation] = None


def decide(
    problem: Problem,
    wish: Wish,
    programs: Programs[Made],
    *,
    room_bytes: Optional[int] = None,
) -> Decision[Made]:
    """The cheapest program found that fits; if none does, the one that holds least.

    Args:
        problem: what to plan.
        wish: how to plan; its limit counts only through `room_bytes`.
        programs: makes programs of plans.
        room_bytes: bytes that a worker can hold of this graph; None: any number.

    Raises:
        ConfigError: there is no such machine, or it has too few devices.
        PlanError: an option does not fit the graph.
    """
    options = problem.front_end.adapted(wish.options)
    mode = "none" if problem.saved is not None else wish.recompute

    def attempt(graph: Problem, changed: SearchOptions) -> Decision[Made]:
        searched = programs.search(graph, changed)
        return Decision(searched, programs.make(searched, changed.keep_fetched_bytes or 0))

    def keeping(decision: Decision[Made], size: int) -> Decision[Made]:
        return dataclasses.replace(decision, made=programs.make(decision.searched, size))

    def held(decision: Decision[Made]) -> int:
        return programs.held_bytes(decision.made)

    def fit_graph(table: _core.StrategyTable, repeats: bool) -> Fit[Decision[Made]]:
        graph = problem.replaced(table) if repeats else problem
        room, share = room_bytes, None if graph.saved is not None else wish.whole_share

        @functools.cache
        def cut() -> Decision[Made]:
            return attempt(graph, dataclasses.replace(options, allow_replication=False))

        if share is not None:
            own = int((1 + share) * held(cut()))
            room = own if room is None else min(room, own)
        if room is None:
            found = attempt(graph, options)
            return Fit(found, held(found) if mode == "all" else 0, True)
        if graph.saved is not None:
            fit = Fit.of(attempt(graph, options), held, room)
        else:
            fit = fit_within(
                lambda tiles: attempt(
                    graph, dataclasses.replace(options, memory_limit_bytes=tiles)
                ),
                held,
                room,
                # Whole tensors may take more than the limit of tiles counts.
                cut if options.allow_replication else None,
            )
        if options.keep_fetched_bytes is not None or not wish.exact or room_bytes is None:
            return fit
        return keep_what_fits(fit, lambda size: keeping(fit.found, size), held, room_bytes)

    def refine() -> _core.StrategyTable:
        return refined(problem, options, programs.search).table

    best = fit_with_recomputation(problem.table, fit_graph, mode, room_bytes, refine)
    return dataclasses.replace(best.fit.found, fits=best.fit.fits, recomputation=best.recomputation)


class Plans(Programs[Plan]):
    """Plans for people, with the memory that the framework will allocate if it is to be counted.

    Args:
        wish: how to plan.
        counted: whether to count memory exactly.
    """

    def __init__(self, wish: Wish, *, counted: bool) -> None:
        self._wish = wish
        self._counted = counted

    def search(self, problem: Problem, options: SearchOptions) -> Searched:
        """Search a plan as a run of the wish would."""
        dump_dir: Optional[Path] = self._wish.dump_dir
        return search(problem, options, fetch=self._wish.fetch, dump_dir=dump_dir)

    def make(self, searched: Searched, keep_fetched_bytes: int) -> Plan:
        """The plan for people."""
        plan = searched.read()
        if not self._counted:
            return plan
        counting = Counting(self._wish.fetch, keep_fetched_bytes)
        return searched.problem.front_end.begin_memory(searched.problem, plan, counting)()

    def held_bytes(self, made: Plan) -> int:
        """Bytes that the fullest worker holds."""
        return held_bytes(made)


def plan_problem(
    problem: Problem, wish: Optional[Wish] = None, *, taken_bytes: int = 0
) -> tuple[Problem, Plan]:
    """The best plan found, in a limit if there is one, and the graph that it is for.

    Args:
        problem: what to plan.
        wish: how to plan; None: the defaults.
        taken_bytes: the part of the limit that other graphs hold.

    Raises:
        MemoryLimitError: no plan was found that fits. The message says how little would do.
        ConfigError, PlanError: as ``decide``.
    """
    wish = wish or Wish()
    limit = wish.limit_bytes
    room = None if limit is None else limit - taken_bytes
    plans = Plans(wish, counted=wish.exact and wish.weighs_memory)
    decision = decide(problem, wish, plans, room_bytes=room)
    plan, recomputation = decision.made, decision.recomputation
    if limit is not None:
        name = problem.name or "the graph"
        check_fits(name, plan, limit, taken_bytes=taken_bytes, recompute=wish.recompute)
    return decision.searched.problem, plan if recomputation is None else recomputation.note(plan)
