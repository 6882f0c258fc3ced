"""The plan with the least cost whose workers stay within a memory limit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional

from tofu import _core
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.recompute import fit_with_recomputation
from tofu.plans.within import Fit, check_fits, fit_within, held_bytes, keep_what_fits
from tofu.simulate.choose import plan_fastest

from .memory import with_memory

__all__ = ["held_bytes", "plan_within", "planned"]


def plan_within(
    problem: Problem,
    limit_bytes: int,
    options: Optional[SearchOptions] = None,
    *,
    exact: bool = True,
) -> Plan:
    """The best plan found within a limit, with its memory, that computes nothing again.

    Args:
        problem: what to plan.
        limit_bytes: what a worker can hold.
        options: how to search; tensors may stay whole only if they allow it.
        exact: whether to count what MXNet will allocate; else a quick estimate.

    Raises:
        MemoryLimitError: no plan was found that fits. The message says how little would do.
        PlanError: an option does not fit the graph.
    """
    chosen = options or SearchOptions()
    return planned(problem, chosen, limit_bytes=limit_bytes, recompute="none", exact=exact)[1]


def planned(
    problem: Problem,
    options: SearchOptions,
    *,
    limit_bytes: Optional[int] = None,
    recompute: str = "auto",
    exact: bool = True,
    fetch: Optional[str] = None,
    taken_bytes: int = 0,
    dump_dir: Optional[Path] = None,
) -> tuple[Problem, Plan]:
    """The best plan found, in a limit if there is one, and the graph that it is for.

    Args:
        problem: what to plan.
        options: how to search.
        limit_bytes: what a worker can hold; None: any number of bytes.
        recompute: which activations are computed again, one of config.RECOMPUTES; "auto": as
            few as the limit needs.
        exact: within a limit, whether to count what MXNet will allocate; else a quick estimate.
        fetch: one of config.FETCHES; None: the default of a run.
        taken_bytes: what other graphs hold of the limit.
        dump_dir: where every pass writes a readable file, or None.

    Raises:
        MemoryLimitError: no plan was found that fits.
        ConfigError, PlanError: as plan_fastest.
    """

    def search(graph: Problem, changed: SearchOptions) -> tuple[Problem, Plan]:
        graph, plan = plan_fastest(graph, changed, fetch=fetch, dump_dir=dump_dir)
        counted = exact and limit_bytes is not None
        if not counted:
            return graph, plan
        return keeping(graph, plan, changed.keep_fetched_bytes or 0)

    def keeping(graph: Problem, plan: Plan, size: int) -> tuple[Problem, Plan]:
        return graph, with_memory(graph, plan, fetch, keep_fetched_bytes=size)

    def held(found: tuple[Problem, Plan]) -> int:
        return held_bytes(found[1])

    def fit_graph(table: _core.StrategyTable, repeats: bool) -> Fit[tuple[Problem, Plan]]:
        graph = problem.replaced(table) if repeats else problem
        if limit_bytes is None:
            return Fit(search(graph, options), 0, True)
        cut = dataclasses.replace(options, allow_replication=False)
        room = limit_bytes - taken_bytes
        fit = fit_within(
            lambda tiles: search(graph, dataclasses.replace(options, memory_limit_bytes=tiles)),
            held,
            room,
            # Whole tensors may take more than the limit of tiles counts.
            (lambda: search(graph, cut)) if options.allow_replication else None,
        )
        if options.keep_fetched_bytes is not None or not exact:
            return fit
        return keep_what_fits(fit, lambda size: keeping(*fit.found, size), held, room)

    room = None if limit_bytes is None else limit_bytes - taken_bytes
    found = fit_with_recomputation(problem.table, fit_graph, recompute, room)
    (graph, plan), own = found.fit.found, found.recomputation
    if limit_bytes is not None:
        name = problem.name or "the graph"
        check_fits(name, plan, limit_bytes, taken_bytes=taken_bytes, recompute=recompute)
    return graph, plan if own is None else own.note(plan)
