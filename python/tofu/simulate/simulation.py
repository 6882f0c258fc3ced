"""Simulates a plan's training step as MXNet would run it, on a described machine.

    simulation = simulate_plan(plan, read_machine("p2.8xlarge"), fetch="plain")
    simulation.step_seconds

The partitioned graph is the one that a run binds, with the optimizer's updates at its end, and the
memory plan is that of MXNet. Nothing runs and nothing is allocated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import mxnet as mx

from tofu import _core
from tofu.analysis.work import WorkRecord, node_work
from tofu.mx.extension import MATCH_RANGE
from tofu.mx.memory.executor_memory import DEFAULT_MATCH_RANGE, operator_rules
from tofu.mx.run.executor import planner_settings
from tofu.plans.layout import heads_of
from tofu.plans.progress import stage
from tofu.plans.simulated_step import LONGEST, Simulation, Timed

__all__ = [
    "WorkRecord",
    "node_work",
    "simulate_graph",
    "simulate_plan",
    "step_graph",
    "step_graphs",
]

_UPDATE = "update:"


def simulate_plan(
    plan: _core.Plan,
    machine: _core.Machine,
    *,
    fetch: str,
    is_stock: bool = False,
    with_timeline: bool = False,
) -> Simulation:
    """Simulate a training step under a plan.

    Args:
        plan: of a training graph; if that has updates, they are simulated, too.
        machine: with at least one device per worker.
        fetch: one of config.FETCHES.
        is_stock: whether MXNet runs it as without tofu: its memory planner keeps its defaults, and
            operators on GPUs run in MXNet's own segments.
        with_timeline: whether to keep the time of every operation.

    Raises:
        ConfigError: the machine has too few devices.
        GraphError: MXNet refuses an operator.
    """
    with stage("simulating a step"):
        *before, last = (
            simulate_graph(
                graph,
                updates,
                machine,
                workers=plan.workers,
                fetch=fetch,
                is_stock=is_stock,
                with_timeline=with_timeline,
            )
            for graph, updates in step_graphs(plan, machine, fetch=fetch)
        )
        simulation = last
        for first in reversed(before):
            simulation = _one_after_the_other(first, simulation)
        return simulation


def step_graph(
    plan: _core.Plan, machine: _core.Machine, *, fetch: str
) -> tuple[_core.Graph, list[int]]:
    """The graph that takes nearly all of a training step, and which of its heads are updates."""
    return step_graphs(plan, machine, fetch=fetch)[-1]


def step_graphs(
    plan: _core.Plan, machine: _core.Machine, *, fetch: str
) -> list[tuple[_core.Graph, list[int]]]:
    """The graphs of a training step, one for each executor, and which heads are updates.

    Nets with random numbers have several: one that draws them comes first, or the forward half.
    """
    roles = list(plan.table.graph.head_roles)
    crossing = "tiles" if machine.is_gpu else "plain_tiles"
    partitioned = _core.partition(plan, fetch=fetch, crossing=crossing, heads=roles)
    step = _core.schedule(partitioned, take=True, joint=True)
    updates = [
        number
        for head in heads_of(step.backward_heads)
        if head.role.startswith(_UPDATE)
        for number in head.numbers
    ]
    *before, last = step.graphs
    return [*((graph, []) for graph in before), (last, updates)]


def _one_after_the_other(first: Simulation, second: Simulation) -> Simulation:
    """Joins two simulations; memory is the second's, whose variables the first computes."""
    workers = [
        {
            **after,
            "busy_seconds": before["busy_seconds"] + after["busy_seconds"],
            "waiting_seconds": before["waiting_seconds"] + after["waiting_seconds"],
            "seconds": _sums(before["seconds"], after["seconds"]),
        }
        for before, after in zip(first.workers, second.workers)
    ]
    links = {(link["name"], *link["devices"]): dict(link) for link in first.links}
    for link in second.links:
        unused = {**link, "busy_seconds": 0.0, "bytes": 0.0}
        same = links.setdefault((link["name"], *link["devices"]), unused)
        same["busy_seconds"] += link["busy_seconds"]
        same["bytes"] += link["bytes"]
    path, rest = first.critical_path, second.critical_path
    later = [{**each, "begin": each["begin"] + first.step_seconds} for each in rest["longest"]]
    longest = sorted([*path["longest"], *later], key=lambda each: -each["seconds"])
    return dataclasses.replace(
        second,
        step_seconds=first.step_seconds + second.step_seconds,
        script_seconds=first.script_seconds + second.script_seconds,
        operations=first.operations + second.operations,
        workers=workers,
        links=list(links.values()),
        critical_path={
            "seconds": _sums(path["seconds"], rest["seconds"]),
            "length": path["length"] + rest["length"],
            "longest": longest[:LONGEST],
        },
        timeline=[*first.timeline, *_later(second.timeline, first.step_seconds)],
    )


def _later(timeline: Sequence[Timed], seconds: float) -> list[Timed]:
    return [
        (name, op, worker, begin + seconds, end + seconds)
        for name, op, worker, begin, end in timeline
    ]


def _sums(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second[name] for name in second}


def simulate_graph(
    graph: _core.Graph,
    updates: Sequence[int],
    machine: _core.Machine,
    *,
    workers: int,
    fetch: str,
    is_stock: bool = False,
    with_timeline: bool = False,
) -> Simulation:
    """Simulate a graph whose nodes are placed on workers.

    Args:
        graph: in the order in which its operators are handed over.
        updates: heads whose memory is not the executor's.
        machine: with at least one device per worker.
        workers: their number.
        fetch: one of config.FETCHES, for the record.
        is_stock: whether MXNet runs it as without tofu: its memory planner keeps its defaults, and
            operators on GPUs run in MXNet's own segments.
        with_timeline: whether to keep the time of every operation.
    """
    uses = _core.OperatorUses(graph)
    calls = _core.OperatorCalls(graph)
    context = mx.gpu if machine.is_gpu else mx.cpu
    contexts = [context(worker) for worker in range(workers)]
    settings = {} if is_stock else planner_settings(graph, contexts)
    match_range = settings.get(MATCH_RANGE)
    result = _core.simulate(
        uses,
        operator_rules(uses),
        calls,
        [node_work(node) for node in calls.nodes],
        machine,
        workers=workers,
        match_range=DEFAULT_MATCH_RANGE if match_range is None else int(match_range),
        search_match_range=match_range is None and not is_stock,
        external_heads=list(updates),
        is_stock=is_stock,
        with_timeline=with_timeline,
    )
    return Simulation.of_record(result, machine, fetch)
