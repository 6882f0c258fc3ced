"""Calls the C++ passes in order, from a training graph to the graphs that MXNet binds.

``compile_graph`` plans, partitions and schedules; ``plan_graph`` and ``plan_refined`` only plan a
``Problem``.
Graph, table, plan and partitioned graph stay in C++. If there is a dump directory, every
pass writes a readable file there, numbered in the order in which the passes ran.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from tofu import _core
from tofu.errors import PlanError

from .layout import Variable, variables_of
from .objective import time_model
from .options import Pins, SearchOptions, check_pins
from .plan import Plan
from .progress import following

__all__ = [
    "Compiled",
    "PlanFrontier",
    "Problem",
    "Refine",
    "compile_graph",
    "intercept",
    "observe",
    "plan_frontier",
    "plan_graph",
    "plan_refined",
]

OnPass = Callable[[str, str], None]
# Looks at the plan that was found, and returns the table of a graph that computes the same
# faster if it is planned alike, or None.
Refine = Callable[[_core.Plan], Optional[_core.StrategyTable]]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A partitioned training graph and its cost.

    Attributes:
        searched: its plan.
        step: its forward and backward graphs, to be bound.
        variables: how each variable of the training graph is divided, by name.
        fetch: how tiles are fetched, one of config.FETCHES.
        bytes_per_worker: bytes of all tensors on each worker, including fetched regions.
        fetched_bytes: bytes that workers fetch from each other per step.
        shared_bytes: bytes that they would fetch as well if operators did not share fetches.
        relayed_bytes: of the fetched bytes, those that small regions add on their way through
            one worker.
    """

    searched: _core.Plan
    step: _core.TrainingStep
    variables: Mapping[str, Variable]
    fetch: str
    bytes_per_worker: tuple[int, ...]
    fetched_bytes: int
    shared_bytes: int
    relayed_bytes: int

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan for people, made on first use."""
        return Plan.from_json(self.searched.to_json())

    @property
    def has_backward(self) -> bool:
        """Whether there is a backward half."""
        return bool(self.step.backward_heads)

    @property
    def serial_bytes(self) -> int:
        """Bytes of all tensors of the training graph."""
        return self.searched.table.graph.tensor_bytes

    def summary(self) -> dict[str, Any]:
        """The numbers that a run reports, as JSON values."""
        return {
            "workers": self.searched.workers,
            "parts": list(self.searched.parts),
            "bytes_per_step": self.fetched_bytes,
            "shared_bytes": self.shared_bytes,
            "relayed_bytes": self.relayed_bytes,
            "bytes_per_worker": list(self.bytes_per_worker),
            "serial_bytes": self.serial_bytes,
            "search_seconds": self.searched.search_seconds,
            "status": self.searched.status,
        }


@dataclasses.dataclass(frozen=True)
class Problem:
    """A graph to plan.

    Attributes:
        name: its name for readers.
        table: the strategy table of its training graph, which it contains.
        workers: number of workers.
        refine: the graph that a run would take after a look at the plan; None: this one.
        origin: the graph that a run makes first, if this one replaces it; else None.
    """

    name: str
    table: _core.StrategyTable
    workers: int
    refine: Optional[Refine] = dataclasses.field(default=None, repr=False, compare=False)
    origin: Optional[_core.Graph] = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def graph(self) -> _core.Graph:
        """The training graph."""
        return self.table.graph

    def replaced(self, table: _core.StrategyTable) -> Problem:
        """The same with a final graph, which computes what this one does."""
        origin = self.origin or (self.graph if table is not self.table else None)
        return dataclasses.replace(self, table=table, refine=None, origin=origin)


def compile_graph(
    table: _core.StrategyTable,
    *,
    workers: int,
    pins: Optional[Pins] = None,
    options: Optional[SearchOptions] = None,
    saved: Optional[_core.Plan] = None,
    refine: Optional[Refine] = None,
    fetch: str = "plain",
    crossing: str = "plain_tiles",
    apart: Collection[tuple[int, int]] = (),
    relays: bool = True,
    joint: bool = False,
    dump_dir: Optional[Path] = None,
) -> Compiled:
    """Plan, partition and schedule a training graph.

    Args:
        table: strategy table of the graph.
        workers: number of workers, at least 1.
        pins: tensor to the dimension that each step must cut; those of `options` apply
            to the other tensors.
        options: how to search; None: the defaults.
        saved: the plan to use instead of a search, or None.
        refine: what may replace the graph after a look at its plan. That graph is used if its
            plan communicates no more.
        fetch: one of config.FETCHES.
        crossing: what MultiFetch reads of other workers, see _core.partition.
        apart: pairs (reader, owner) of workers that cannot use MultiFetch.
        relays: whether fetched regions are relayed, which serves CPU contexts only.
        joint: whether one executor may run both halves, which takes less memory. The step is
            still split if its forward half could not run again for a second backward pass:
            if an operator is unknown, or draws random numbers that depend on its inputs.
        dump_dir: where every pass writes a readable file, or None.

    Raises:
        GraphError: the table leaves out some of an operator's output.
        PlanError: a pin does not fit the graph.
    """
    for interceptor in _interceptors:
        interceptor(table, workers, refine)
    on_pass = _dumper(dump_dir)
    options = options or SearchOptions()
    search = functools.partial(
        search_plan,
        workers=workers,
        pins=pins or {},
        options=options,
        on_pass=on_pass,
    )
    plan = saved or _refined(search(table), search, refine)
    partitioned = _core.partition(
        plan,
        fetch=fetch,
        crossing=crossing,
        apart=set(apart),
        spare_bytes=options.keep_fetched_bytes or 0,
        on_pass=on_pass,
    )
    step = _core.schedule(partitioned, joint=joint, relays=relays, on_pass=on_pass)
    compiled = Compiled(
        searched=plan,
        step=step,
        variables=variables_of(step),
        fetch=fetch,
        bytes_per_worker=tuple(partitioned.bytes_per_worker),
        fetched_bytes=partitioned.fetched_bytes + plan.update_bytes,
        shared_bytes=partitioned.shared_bytes,
        relayed_bytes=partitioned.relayed_bytes,
    )
    for observer in _observers:
        observer(compiled)
    return compiled


def _refined(
    plan: _core.Plan,
    search: Callable[[_core.StrategyTable], _core.Plan],
    refine: Optional[Refine],
) -> _core.Plan:
    """A plan, or that of the graph that `refine` makes if it communicates no more."""
    better = refine(plan) if refine is not None else None
    if better is None:
        return plan
    try:
        return min(search(better), plan, key=lambda found: found.total_bytes)
    except PlanError:  # it lacks a tensor that is pinned, or does not fit in the memory limit
        return plan


def plan_refined(
    problem: Problem,
    options: Optional[SearchOptions] = None,
    *,
    dump_dir: Optional[Path] = None,
) -> tuple[Problem, Plan]:
    """The graph that a run would use, and its plan; nothing is prepared to run.

    Raises:
        PlanError: an option does not fit the graph.
    """
    chosen = options or SearchOptions()
    on_pass = _dumper(dump_dir)

    def search(table: _core.StrategyTable) -> _core.Plan:
        return search_plan(table, problem.workers, {}, chosen, on_pass)

    plan = _refined(search(problem.table), search, problem.refine)
    found = problem.replaced(plan.table)
    return found, read_plan(found, plan, chosen)


def plan_graph(
    problem: Problem,
    options: Optional[SearchOptions] = None,
    *,
    dump_dir: Optional[Path] = None,
) -> Plan:
    """Plan a training graph itself, without preparing to run it.

    Raises:
        PlanError: an option does not fit the graph.
    """
    chosen = options or SearchOptions()
    plan = search_plan(problem.table, problem.workers, {}, chosen, _dumper(dump_dir))
    return read_plan(problem, plan, chosen)


@dataclasses.dataclass(frozen=True)
class PlanFrontier:
    """Plans that trade cost, which the search minimises, against the memory of tiles.

    Attributes:
        plans: those that no other one found beats in both, by ascending memory, each with its
            graph, which is the one that a run would use.
        tile_bytes: what the tiles of a worker take at most, of each.
        is_complete: whether these are proven to be all there are.
    """

    plans: tuple[tuple[Problem, Plan], ...]
    tile_bytes: tuple[int, ...]
    is_complete: bool


def plan_frontier(problem: Problem, options: SearchOptions, *, searches: int) -> PlanFrontier:
    """Search the plans that trade cost against memory; tensors may stay whole.

    Args:
        problem: what to plan.
        options: how to search; the time limit is for all searches together.
        searches: number of memory limits to search within.

    Raises:
        PlanError: an option does not fit the graph.
    """
    with _searching(problem.table, options) as (model, arguments):
        found = _core.plan_frontier(
            problem.table,
            workers=problem.workers,
            pins=_fixed(problem.table, {}, options),
            mode=options.mode,
            parts=options.parts,
            tie_updates=options.tie_updates,
            searches=searches,
            time_limit_s=options.limit_s,
            **arguments,
        )
    plans = []
    for plan, tiles in zip(found["plans"], found["tile_bytes"]):
        within = dataclasses.replace(options, allow_replication=True, memory_limit_bytes=tiles)

        def search(table: _core.StrategyTable, chosen: SearchOptions = within) -> _core.Plan:
            return search_plan(table, problem.workers, {}, chosen, None)

        refined = _refined(_predicted(plan, model, options), search, problem.refine)
        own = problem.replaced(refined.table)
        plans.append((own, read_plan(own, refined, options)))
    return PlanFrontier(tuple(plans), tuple(found["tile_bytes"]), found["complete"])


def read_plan(problem: Problem, plan: _core.Plan, options: SearchOptions, **notes: Any) -> Plan:
    """A plan that a search of `problem` found, for readers.

    notes: more of the document.
    """
    document = {"model": problem.name, **json.loads(plan.to_json()), **notes}
    return Plan.from_json(json.dumps({**document, "stopped": _stopped(plan, options)}))


Interceptor = Callable[[_core.StrategyTable, int, Optional[Refine]], None]
Observer = Callable[[Compiled], None]
_interceptors: list[Interceptor] = []
_observers: list[Observer] = []


@contextlib.contextmanager
def intercept(interceptor: Interceptor) -> Iterator[None]:
    """Call `interceptor` with compile_graph's table, workers and `refine` before it plans.

    An exception from it ends compile_graph; ``tofu plan`` stops a script this way.
    """
    _interceptors.append(interceptor)
    try:
        yield
    finally:
        _interceptors.remove(interceptor)


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call `observer` with everything that compile_graph makes in this context."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def search_plan(
    table: _core.StrategyTable,
    workers: int,
    pins: Pins,
    options: SearchOptions,
    on_pass: Optional[OnPass],
) -> _core.Plan:
    """Search a plan of a graph.

    Args:
        table: strategy table of the graph.
        workers: number of workers.
        pins: exact names and their cuts; those of `options` apply to other tensors.
        options: how to search.
        on_pass: called after every pass, or None.

    Raises:
        ConfigError: there is no such machine.
        PlanError: an option does not fit the graph.
    """
    with _searching(table, options) as (model, arguments):
        plan = _core.plan(
            table,
            workers=workers,
            pins=_fixed(table, pins, options),
            on_pass=on_pass,
            **arguments,
            **options.arguments(),
        )
    return _predicted(plan, model, options)


def _fixed(table: _core.StrategyTable, pins: Pins, options: SearchOptions) -> dict[str, list[int]]:
    """The cuts of every tensor that pins, or those of the options, fix."""
    fixed = {name: list(cuts) for name, cuts in pins.items()}
    if not options.pins:
        return fixed
    given = check_pins(options.pins, dict.fromkeys(table.graph.tensor_names))
    return {**{name: list(cuts) for name, cuts in given.items()}, **fixed}


@contextlib.contextmanager
def _searching(
    table: _core.StrategyTable, options: SearchOptions
) -> Iterator[tuple[Optional[_core.TimeModel], dict[str, Any]]]:
    """The machine's model, and the objective and progress as arguments of a search."""
    model = time_model(table, options.machine) if options.machine else None
    is_time = options.objective == "time"
    if is_time and model is None:
        raise PlanError("plan: the objective time needs a machine; give its file or name")
    with following(options.limit_s, of_time=is_time) as heard:
        yield model, {"on_progress": heard, "time": model if is_time else None}


def _predicted(
    plan: _core.Plan, model: Optional[_core.TimeModel], options: SearchOptions
) -> _core.Plan:
    """A plan for bytes with its time, if there is a machine."""
    if model is None or options.objective == "time":
        return plan
    return plan.with_prediction(model)


def _stopped(plan: _core.Plan, options: SearchOptions) -> str:
    """Why a search ended, one of plan.STOPPED."""
    if plan.cost <= plan.lower_bound:
        return "proven"
    return "time limit" if plan.search_seconds >= options.limit_s else "nothing left to try"


def _dumper(directory: Optional[Path]) -> Optional[OnPass]:
    if directory is None:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    taken = (int(path.name.split("-", 1)[0]) for path in directory.glob("[0-9]*-*.txt"))
    count = max(taken, default=0)

    def on_pass(name: str, text: str) -> None:
        nonlocal count
        count += 1
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        (directory / f"{count:03d}-{slug}.txt").write_text(text, encoding="utf-8")

    return on_pass
