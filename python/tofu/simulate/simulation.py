"""Simulates a plan's training step as MXNet would run it, on a described machine.

    found = simulate_plan(plan, read_machine("p2.8xlarge"), fetch="plain")
    found.step_seconds

The partitioned graph is the one that a run binds, with the optimizer's updates at its end, and the
memory plan is that of MXNet. Nothing runs and nothing is allocated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx

from tofu import _core
from tofu.analysis.work import WorkRecord, node_work
from tofu.mx.extension import MATCH_RANGE
from tofu.mx.memory.executor_memory import DEFAULT_MATCH_RANGE, operator_rules
from tofu.mx.run.executor import planner_settings
from tofu.plans.layout import heads_of
from tofu.plans.progress import stage

__all__ = [
    "Simulation",
    "WorkRecord",
    "node_work",
    "simulate_graph",
    "simulate_plan",
    "step_graph",
    "step_graphs",
]

Timed = tuple[str, str, int, float, float]
_UPDATE = "update:"
_LONGEST = 32  # operators of the critical path that are kept


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A simulated training step. docs/formats.md describes the records.

    Attributes:
        machine: the machine's name.
        measured: whether its figures were measured by ``tofu calibrate``.
        fetch: one of config.FETCHES.
        step_seconds: from the script's first operator to the end of the last.
        script_seconds: when the script's thread had handed over every operator.
        operations: operators, or segments of them, that MXNet's engine ran.
        memory_bytes: memory of the machine's smallest device.
        workers: time and memory of each worker, and the memory of its device.
        links: time and bytes of each group of links that was used.
        critical_path: the operations, each waiting for the one before, that took the whole step.
        timeline: name, operator, worker, begin and end of every operation; empty unless asked for.
    """

    machine: str
    measured: bool
    fetch: str
    step_seconds: float
    script_seconds: float
    operations: int
    memory_bytes: int
    workers: Sequence[Mapping[str, Any]]
    links: Sequence[Mapping[str, Any]]
    critical_path: Mapping[str, Any]
    timeline: Sequence[Timed] = ()

    @property
    def fits(self) -> bool:
        """Whether every worker's memory fits its device."""
        return all(each["allocated_bytes"] <= each["memory_bytes"] for each in self.workers)


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
            "longest": longest[:_LONGEST],
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
    for number, worker in enumerate(result["workers"]):
        worker["memory_bytes"] = machine.memory_of(number)
    return Simulation(
        **{**result, "critical_path": _shortened(result["critical_path"])},
        machine=machine.name,
        measured=machine.measured,
        fetch=fetch,
        memory_bytes=machine.memory_bytes,
    )


def _shortened(path: Mapping[str, Any]) -> dict[str, Any]:
    """The critical path, cut down to the operators that took longest."""
    operators = [
        {"name": name, "op": op, "worker": worker, "begin": begin, "seconds": end - begin}
        for name, op, worker, begin, end in path["operations"]
    ]
    operators.sort(key=lambda operator: -operator["seconds"])
    return {
        "seconds": path["seconds"],
        "length": len(operators),
        "longest": operators[:_LONGEST],
    }
