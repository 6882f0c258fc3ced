"""Searches the plan of a problem: the candidates of an objective, and the graph that a run uses.

For bytes there is one candidate. For time, the search adds up the times of operators by themselves
(passes/search/cost/time_cost.h), and only the simulator sees which waits for which: plans for time,
with and without operators that all workers compute, the plan for bytes, and those plans of other
modes that are predicted to be about as fast are simulated, and the fastest that fits the machine's
memory is taken.

Graph, table and plan stay in C++. If there is a dump directory, every pass writes a readable file
there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from tofu import _core, file_cache
from tofu.analysis.strategy_table import table_digest
from tofu.config import caches
from tofu.errors import ConfigError, PlanError
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.machine_files import read_machine
from tofu.plans.options import check_pins
from tofu.plans.parts import Parts
from tofu.plans.problem import Cuts, FrontEnd, Start
from tofu.plans.progress import SearchProgress, shown
from tofu.plans.simulated_step import Simulation

from .dumps import OnPass, dumper
from .rivals import candidates, cuts_of, fast_rivals
from .shares import Shares, device_speeds, refined_shares
from .time_model import time_model

__all__ = [
    "BY_SPEED",
    "Frontier",
    "Searched",
    "begin_search",
    "default_fetch",
    "is_kept",
    "plan_frontier",
    "plan_graph",
    "plan_refined",
    "refined",
    "search",
    "search_plan",
    "with_shares",
]


_KIND = "plan"  # of texts in the cache of files
_WORTH_KEEPING_S = 0.1
_kept_plans: weakref.WeakSet[_core.Plan] = weakref.WeakSet()
_BALANCED = "time, balanced"
BY_SPEED = "tiles by speed"


@dataclasses.dataclass(frozen=True)
class Searched:
    """A plan, as the search found it.

    Attributes:
        problem: the graph that it is for, which is the one that a run would use.
        plan: the plan.
        options: the options of the search.
        simulation: its simulated step, if that decided.
        simulated_ns: the simulated step of each candidate, by name; negative if the candidate does
            not fit the machine's memory.
    """

    problem: Problem
    plan: _core.Plan
    options: SearchOptions
    simulation: Optional[Simulation] = None
    simulated_ns: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def slowness(self) -> tuple[bool, float]:
        """The cost by which candidates are compared: the search's, or a simulated step's time."""
        if self.simulation is None:
            return False, self.plan.cost
        return not self.simulation.fits, self.simulation.step_seconds

    def final(self, problem: Problem) -> Searched:
        """Return the result for `problem`, whose graph needs no further refinement."""
        return dataclasses.replace(self, problem=problem.replaced(self.plan.table))

    def read(self) -> Plan:
        """The plan for readers."""
        notes: dict[str, Any] = {"bytes_per_worker": self.plan.estimate_memory()}
        if self.simulation is not None:
            notes.update(
                objective="time",
                chosen=self.options.objective,
                simulated_ns=dict(self.simulated_ns),
            )
        if self.options.allow_replication:
            notes["replication"] = True
        stopped = _stopped(self.plan, self.options)
        return Plan.of(self.plan, model=self.problem.name, **notes, stopped=stopped)


def search(
    problem: Problem,
    options: Optional[SearchOptions] = None,
    *,
    fetch: Optional[str] = None,
    simulated: bool = True,
    dump_dir: Optional[Path] = None,
) -> Searched:
    """Search the plan that a run would use, and the graph that it is for.

    Args:
        problem: what to plan.
        options: how to search; None: the defaults.
        fetch: one of config.FETCHES; None: the default of the machine's devices.
        simulated: whether the objective time is decided by simulation, if the problem's front end
            simulates; else by the search's own prediction.
        dump_dir: where every pass writes a readable file, or None.

    Raises:
        ConfigError: there is no such machine, or it has too few devices.
        PlanError: an option does not fit the graph.
    """
    chosen = problem.front_end.adapted(options or SearchOptions())
    if problem.saved is not None:
        return Searched(problem.replaced(problem.saved.table), problem.saved, chosen)
    judge = problem.front_end if simulated and problem.front_end.simulates else None
    contest = _Contest(chosen, fetch, judge, dumper(dump_dir))
    for wish in problem.wishes:
        with contextlib.suppress(PlanError):
            return contest.refined(_with_cuts(problem, wish))
    return contest.refined(problem)


def begin_search(
    problem: Problem, options: SearchOptions, *, start: Start
) -> Callable[[], Searched]:
    """Begin what ``search`` does without simulation; the function returned waits for the result.

    start: starts the search of the problem's graph. The refined graph, which MXNet makes, is
        searched by the function returned.
    """
    if problem.saved is not None or problem.wishes:
        return lambda: search(problem, options, simulated=False)
    contest = _Contest(problem.front_end.adapted(options), None, judge=None, on_pass=None)
    contest.begin(problem, start)
    return lambda: contest.refined(problem)


def plan_refined(problem: Problem, options: Optional[SearchOptions] = None) -> tuple[Problem, Plan]:
    """Return the graph that a run would use, and its plan, without a simulation.

    Raises:
        PlanError: an option does not fit the graph.
    """
    searched = search(problem, options, simulated=False)
    return searched.problem, searched.read()


def refined(
    problem: Problem,
    options: Optional[SearchOptions] = None,
    find: Callable[[Problem, SearchOptions], Searched] = functools.partial(search, simulated=False),
) -> Problem:
    """The problem with the graph that a run of its plan would use, which may keep norms whole.

    Raises:
        PlanError: an option does not fit the graph.
    """
    if problem.refine is None:
        return problem
    return find(problem, options or SearchOptions()).problem


def plan_graph(problem: Problem, options: Optional[SearchOptions] = None) -> Plan:
    """Plan a training graph itself, without the changes that a run would make.

    Raises:
        PlanError: an option does not fit the graph.
    """
    return plan_refined(dataclasses.replace(problem, refine=None), options)[1]


def search_plan(
    table: _core.StrategyTable,
    workers: int,
    cuts: Optional[Cuts] = None,
    options: Optional[SearchOptions] = None,
    on_pass: Optional[OnPass] = None,
    progress: Optional[SearchProgress] = None,
) -> _core.Plan:
    """Search one plan of a graph: a call of the C++ search.

    Args:
        table: strategy table of the graph.
        workers: number of workers.
        cuts: the cuts of tensors that are cut already; pins of `options` apply to the others.
        options: how to search.
        on_pass: called after every pass, or None.
        progress: hears of the search, and is shown by the caller; None: it is shown here.

    Raises:
        ConfigError: there is no such machine.
        PlanError: an option does not fit the graph.
    """
    chosen = options or SearchOptions()
    pins = _fixed(table, cuts or {}, chosen)
    # A cached plan has no passes to watch, and a machine's file may have changed since.
    is_new = on_pass is not None or chosen.machine or not caches()
    key = None if is_new else _key(table, workers, pins, chosen)
    plan = None if key is None else _kept_plan(table, key)
    if plan is not None:
        return _divided(plan, None, chosen)
    with _searching(table, chosen, progress) as (model, arguments):
        plan = _core.plan(
            table, workers=workers, pins=pins, on_pass=on_pass, **arguments, **chosen.arguments()
        )
    is_slow = plan.search_seconds >= _WORTH_KEEPING_S
    if key is not None and is_slow and _stopped(plan, chosen) != "time limit":
        file_cache.keep(_KIND, key, plan.to_json())
    return _predicted(_divided(plan, model, chosen), model, chosen)


def is_kept(plan: _core.Plan) -> bool:
    """Whether a search of an earlier process found this plan."""
    return plan in _kept_plans


def default_fetch(machine: _core.Machine) -> str:
    """The default way to fetch on such devices, one of config.FETCHES."""
    return "plain" if machine.is_gpu else "multifetch"


class _Contest:
    """Searches the candidates of an objective and takes the best.

    Args:
        options: how to search.
        fetch: one of config.FETCHES; None: the default of the devices.
        judge: simulates plans for time; None: the search's own prediction decides.
        on_pass: called after every pass, or None.
    """

    def __init__(
        self,
        options: SearchOptions,
        fetch: Optional[str],
        judge: Optional[FrontEnd],
        on_pass: Optional[OnPass],
    ) -> None:
        self._options = options
        self._on_pass = on_pass
        self._machine: Optional[_core.Machine] = None
        self._candidates = {options.objective: options}
        self._judge = judge
        if judge is not None and options.objective == "time":
            _check_machine(options)
            self._machine = read_machine(options.machine)
            self._candidates = candidates(options)
            fetch = fetch or default_fetch(self._machine)
        self._fetch = fetch
        self._begun: Optional[Callable[[], _core.Plan]] = None

    def begin(self, problem: Problem, start: Start) -> None:
        """Begin the first search that ``refined`` waits for; nothing may be simulated."""
        options = self._options
        progress = SearchProgress(options.limit_s, options.objective)
        wait = start(
            lambda: search_plan(
                problem.table, problem.workers, problem.fixed, options, progress=progress
            )
        )

        def begun() -> _core.Plan:
            with shown(progress):
                return wait()

        self._begun = begun

    def refined(self, problem: Problem) -> Searched:
        """The best plan of the graph, or of its refined graph if that plan is as good."""
        if self._machine is not None and problem.workers > self._machine.devices:
            raise ConfigError(
                f"{self._machine.name} has {self._machine.devices} devices, expected at least "
                f"{problem.workers}, one for each worker"
            )
        # MXNet cannot bind the refined graph if it copies between workers.
        refine = None if self._fetch == "plain" else problem.refine
        # Either graph may lack a tensor that is pinned, or exceed the limit of the tiles.
        try:
            best = self._best(problem)
        except PlanError:
            table = None if refine is None else refine(None)
            if table is None:
                raise
            return self._best(problem.replaced(table)).final(problem)
        table = None if refine is None else refine(best.plan)
        if table is not None:
            with contextlib.suppress(PlanError):
                best = _better(problem, best, self._best(problem.replaced(table)))
        return best.final(problem)

    def _best(self, problem: Problem) -> Searched:
        results: dict[str, Searched] = {}
        for name, options in self._candidates.items():
            plan = self._plan(problem, options)
            results[name] = Searched(problem, plan, options, self._simulated(plan))
        if self._machine is not None:
            plans = [each.plan for each in results.values()]

            def plan_of(rival: SearchOptions) -> _core.Plan:
                return search_plan(problem.table, problem.workers, problem.fixed, rival)

            for name, (plan, options) in fast_rivals(self._options, plans, plan_of).items():
                results[name] = Searched(problem, plan, options, self._simulated(plan))
        times = {name: _signed_ns(each) for name, each in results.items() if each.simulation}
        best = min(results.values(), key=_slowness)
        if self._machine is not None and _may_share(self._options):
            balanced = dataclasses.replace(self._options, is_balanced=True)
            plan = search_plan(problem.table, problem.workers, problem.fixed, balanced)
            even = Searched(problem, plan, balanced, self._simulated(plan))
            results[_BALANCED] = even
            for base in {cuts_of(each.plan): each for each in (even, best)}.values():
                name = _BALANCED if base is even else best.options.objective
                shared = with_shares(base, self._fetch)
                if shared is not None:
                    results[f"{name}, {BY_SPEED}"] = shared
            times = {name: _signed_ns(each) for name, each in results.items()}
            best = min(results.values(), key=_slowness)
        return dataclasses.replace(best, simulated_ns=times)

    def _plan(self, problem: Problem, options: SearchOptions) -> _core.Plan:
        begun, self._begun = self._begun, None
        if begun is not None:
            return begun()
        on_pass = self._on_pass if self._machine is None else None
        return search_plan(problem.table, problem.workers, problem.fixed, options, on_pass)

    def _simulated(self, plan: _core.Plan) -> Optional[Simulation]:
        if self._machine is None or self._fetch is None or self._judge is None:
            return None
        return self._judge.simulate(plan, self._machine, fetch=self._fetch)


def with_shares(equal: Searched, fetch: Optional[str] = None) -> Optional[Searched]:
    """The same cuts with the shares that make the simulated step on a mixed machine fastest.

    Args:
        equal: a plan.
        fetch: one of config.FETCHES; None: the default of the machine's devices.

    Returns:
        None where tiles must be equal, or all devices are alike.
    """
    if not _may_share(equal.options) or not equal.problem.front_end.simulates:
        return None
    machine, table = read_machine(equal.options.machine), equal.problem.table
    model = time_model(table, equal.options.machine)
    simulated: list[Searched] = []

    def simulate(shares: Shares) -> Simulation:
        multiple = equal.plan.tile_multiple
        plan = equal.plan.with_shares(shares=shares, multiple=multiple, time=model)
        kind = fetch or default_fetch(machine)
        simulation = equal.problem.front_end.simulate(plan, machine, fetch=kind)
        simulated.append(dataclasses.replace(equal, plan=plan, simulation=simulation))
        return simulation

    workers = equal.problem.workers
    kinds = [machine.kind_of(worker) for worker in range(workers)]
    speeds = device_speeds(table, machine, workers)
    for _ in refined_shares(equal.plan.parts, kinds, speeds, simulate):
        pass
    return min(simulated, key=_slowness, default=None)


def _may_share(options: SearchOptions) -> bool:
    """Whether devices may have unlike shares; earlier graphs may have decided them."""
    is_decided = bool(options.parts) and isinstance(options.parts, Parts)
    if not options.machine or options.equal_tiles or is_decided:
        return False
    return read_machine(options.machine).is_mixed


def _slowness(searched: Searched) -> tuple[bool, float]:
    return searched.slowness


def _better(problem: Problem, first: Searched, refined: Searched) -> Searched:
    """The plan of the graph that a run would take."""
    pair = (first, refined) if problem.must_gain else (refined, first)
    return min(pair, key=_slowness)


def _signed_ns(searched: Searched) -> int:
    ns = round(searched.slowness[1] * 1e9)
    return -ns if searched.slowness[0] else ns


def _with_cuts(problem: Problem, cuts: Cuts) -> Problem:
    return dataclasses.replace(problem, fixed={**problem.fixed, **cuts})


# --- frontiers ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frontier:
    """Plans that trade cost, which the search minimises, against the memory of tiles.

    Attributes:
        plans: plans that no other plan found beats in both, by ascending memory.
        tile_bytes: for each plan, the most bytes of tiles on a worker, before any bounds are moved.
        is_complete: whether it is proven that there are no others. Proofs are of equal tiles.
    """

    plans: tuple[Searched, ...]
    tile_bytes: tuple[int, ...]
    is_complete: bool


def plan_frontier(problem: Problem, options: SearchOptions, *, searches: int) -> Frontier:
    """Search the plans that trade cost against memory; tensors may stay whole.

    Args:
        problem: what to plan.
        options: how to search; the time limit is for all searches together.
        searches: number of memory limits to search within.

    Raises:
        PlanError: an option does not fit the graph.
    """
    options = problem.front_end.adapted(options)
    with _searching(problem.table, options) as (model, arguments):
        frontier = _core.plan_frontier(
            problem.table,
            workers=problem.workers,
            pins=_fixed(problem.table, {}, options),
            mode=options.mode,
            parts=options.parts,
            tie_updates=options.tie_updates,
            equal_tiles=options.equal_tiles,
            searches=searches,
            time_limit_s=options.limit_s,
            **arguments,
        )
    plans = []
    for plan, tiles in zip(frontier["plans"], frontier["tile_bytes"]):
        divided = _divided(plan, model, options)
        best = Searched(problem, _predicted(divided, model, options), options)
        table = problem.refine(best.plan) if problem.refine is not None else None
        if table is not None:
            within = dataclasses.replace(options, allow_replication=True, memory_limit_bytes=tiles)
            with contextlib.suppress(PlanError):
                refined_plan = search_plan(table, problem.workers, {}, within)
                refined = Searched(problem.replaced(table), refined_plan, options)
                best = _better(problem, best, refined)
        plans.append(best.final(problem))
    is_equal = all(plan.plan.tile_multiple == 1 for plan in plans) and not _may_share(options)
    is_complete = frontier["complete"] and is_equal
    return Frontier(tuple(plans), tuple(frontier["tile_bytes"]), is_complete)


# --- calls of C++ -------------------------------------------------------------------------------


def _key(
    table: _core.StrategyTable, workers: int, pins: Cuts, options: SearchOptions
) -> Optional[tuple[str, ...]]:
    """All that a plan depends on, to find it again; None if the table is not known by a digest."""
    digest = table_digest(table)
    if digest is None:
        return None
    arguments = {key: value for key, value in options.arguments().items() if key != "time_limit_s"}
    request = json.dumps([workers, sorted(pins.items()), sorted(arguments.items())])
    return file_cache.version(), table.graph.hash, digest, request


def _kept_plan(table: _core.StrategyTable, key: tuple[str, ...]) -> Optional[_core.Plan]:
    text = file_cache.find(_KIND, key)
    if text is None:
        return None
    plan = _core.Plan(text, table)
    _kept_plans.add(plan)
    return plan


def _fixed(table: _core.StrategyTable, cuts: Cuts, options: SearchOptions) -> dict[str, list[int]]:
    """The cuts of every tensor that is cut already, or pinned by the options."""
    fixed = {name: list(each) for name, each in cuts.items()}
    if not options.pins:
        return fixed
    pins = check_pins(options.pins, dict.fromkeys(table.graph.tensor_names))
    return {**{name: list(each) for name, each in pins.items()}, **fixed}


@contextlib.contextmanager
def _searching(
    table: _core.StrategyTable, options: SearchOptions, progress: Optional[SearchProgress] = None
) -> Iterator[tuple[Optional[_core.TimeModel], dict[str, Any]]]:
    """The machine's model, and the objective and progress as arguments of a search."""
    objective = options.objective
    if objective == "time":
        _check_machine(options)
    model = None
    if options.machine:
        model = time_model(table, options.machine, is_balanced=options.is_balanced)
    heard = progress or SearchProgress(options.limit_s, objective)
    with contextlib.nullcontext() if progress else shown(heard):
        arguments: dict[str, Any] = {"on_progress": heard.heard, "objective": objective}
        yield model, {**arguments, "time": model if objective == "time" else None}


def _check_machine(options: SearchOptions) -> None:
    if not options.machine:
        raise PlanError("plan: the objective time needs a machine; give its file or name")


def _divided(
    plan: _core.Plan, model: Optional[_core.TimeModel], options: SearchOptions
) -> _core.Plan:
    """The plan with the shares of earlier graphs, and bounds where the machine likes them."""
    parts = Parts(options.parts)
    if not parts and options.machine and not options.equal_tiles:
        parts = Parts((), multiple=read_machine(options.machine).tile_multiple)
    if parts.are_equal and parts.multiple == 1:
        return plan
    is_timed = options.objective == "time"
    return plan.with_shares(
        shares=parts.shares, multiple=parts.multiple, time=model if is_timed else None
    )


def _predicted(
    plan: _core.Plan, model: Optional[_core.TimeModel], options: SearchOptions
) -> _core.Plan:
    """A plan with its predicted time, if there is a machine."""
    if model is None or options.objective == "time":
        return plan
    return plan.with_prediction(model)


def _stopped(plan: _core.Plan, options: SearchOptions) -> str:
    """The reason why a search ended, one of plan.STOPPED."""
    if plan.cost <= plan.lower_bound:
        return "proven"
    return "time limit" if plan.search_seconds >= options.limit_s else "nothing left to try"
