"""Chooses among plans by simulating a step of each: the last word on the objective time.

The search adds up what operators take by themselves (src/passes/search/time_cost.h); only the
simulator sees what waits for what. So plans for time, with and without operators that all workers
compute, and the plan for bytes are simulated, and the fastest that fits the machine's memory is
chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from tofu import _core
from tofu.errors import ConfigError, PlanError
from tofu.plans import Plan, Problem, SearchOptions, plan_refined
from tofu.plans.compiler import Refine, read_plan, search_plan
from tofu.plans.machine_files import read_machine
from tofu.plans.options import Pins

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["Chosen", "choose_plan", "plan_fastest"]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The fastest plan.

    Attributes:
        plan: the plan.
        objective: what its search minimised, "time" or "bytes".
        simulation: its step.
        simulated_ns: the simulated step of each candidate, by what it was searched for; of those
            that do not fit the machine's memory, negative.
    """

    plan: _core.Plan
    objective: str
    simulation: Simulation
    simulated_ns: Mapping[str, int]


def choose_plan(
    table: _core.StrategyTable,
    workers: int,
    pins: Optional[Pins] = None,
    options: Optional[SearchOptions] = None,
    *,
    fetch: Optional[str] = None,
    refine: Optional[Refine] = None,
) -> Chosen:
    """Search plans for time and for bytes, and take the one whose simulated step is fastest.

    Args:
        table: strategy table of the training graph.
        workers: number of workers.
        pins: exact names and their cuts.
        options: how to search, with a machine.
        fetch: one of config.FETCHES; None: what the machine's devices use by default.
        refine: what may replace the graph after a look at its plan; that graph is used if its
            plan is no slower.

    Raises:
        ConfigError: there is no such machine, or it has too few devices.
        PlanError: an option does not fit the graph.
    """
    options = options or SearchOptions()
    machine = read_machine(options.machine)
    if workers > machine.devices:
        raise ConfigError(
            f"{machine.name} has {machine.devices} devices, expected at least {workers}, one for "
            "each worker"
        )
    kind = fetch or default_fetch(machine)
    chosen = _fastest(table, workers, pins or {}, options, machine, kind)
    # MXNet cannot bind what `refine` makes where it copies between workers.
    better = refine(chosen.plan) if refine is not None and kind != "plain" else None
    if better is None:
        return chosen
    try:
        other = _fastest(better, workers, pins or {}, options, machine, kind)
    except PlanError:  # as in compile_graph
        return chosen
    return min(other, chosen, key=_slowness)


def _fastest(
    table: _core.StrategyTable,
    workers: int,
    pins: Pins,
    options: SearchOptions,
    machine: _core.Machine,
    fetch: str,
) -> Chosen:
    from .simulation import simulate_plan  # which imports mxnet

    found = {}
    for name, wanted in _candidates(options).items():
        plan = search_plan(table, workers, pins, wanted, None)
        simulation = simulate_plan(plan, machine, fetch=fetch)
        found[name] = Chosen(plan, wanted.objective, simulation, {})
    times = {name: _signed_ns(each.simulation) for name, each in found.items()}
    return dataclasses.replace(min(found.values(), key=_slowness), simulated_ns=times)


def _slowness(chosen: Chosen) -> tuple[bool, float]:
    return not chosen.simulation.fits, chosen.simulation.step_seconds


def default_fetch(machine: _core.Machine) -> str:
    """How workers fetch by default on such devices, one of config.FETCHES."""
    return "plain" if machine.is_gpu else "multifetch"


def _candidates(options: SearchOptions) -> dict[str, SearchOptions]:
    """What to search for, by name; of equally fast plans the first is chosen."""
    found = {"time": options}
    if options.allow_replication:
        found["time, all operators split"] = dataclasses.replace(options, allow_replication=False)
    found["bytes"] = dataclasses.replace(options, objective="bytes")
    return found


def _signed_ns(simulation: Simulation) -> int:
    ns = round(simulation.step_seconds * 1e9)
    return ns if simulation.fits else -ns


def plan_fastest(
    problem: Problem,
    options: SearchOptions,
    *,
    fetch: Optional[str] = None,
    dump_dir: Optional[Path] = None,
) -> tuple[Problem, Plan]:
    """The graph that a run would use, and its plan: by simulation if time is the objective.

    Raises:
        ConfigError, PlanError: as choose_plan.
    """
    if options.objective != "time":
        refine = None if fetch == "plain" else problem.refine
        problem = dataclasses.replace(problem, refine=refine)
        return plan_refined(problem, options, dump_dir=dump_dir)
    if not options.machine:
        raise PlanError("plan: the objective time needs a machine; give its file or name")
    chosen = choose_plan(
        problem.table, problem.workers, None, options, fetch=fetch, refine=problem.refine
    )
    found = problem.replaced(chosen.plan.table)
    notes: dict[str, Any] = {
        "objective": "time",
        "chosen": chosen.objective,
        "simulated_ns": dict(chosen.simulated_ns),
    }
    return found, read_plan(found, chosen.plan, options, **notes)
