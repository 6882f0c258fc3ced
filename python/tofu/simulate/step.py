"""Simulates the training step of a plan: what MXNet would run, on a machine that is described.

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
from tofu.errors import GraphError
from tofu.mx.memory.planner import DEFAULT_MATCH_RANGE, operator_rules
from tofu.mx.run.executor import planner_settings
from tofu.mx.run.extension import MATCH_RANGE
from tofu.plan.layout import heads_of
from tofu.plan.progress import stage

__all__ = [
    "Simulation",
    "WorkRecord",
    "node_work",
    "simulate_graph",
    "simulate_plan",
    "step_graph",
]

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
        memory_bytes: what a device of the machine has.
        workers: time and memory of each worker.
        links: time and bytes of each group of links that was used.
        critical_path: the operations, each waiting for the one before, that took the whole step.
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

    @property
    def fits(self) -> bool:
        """Whether every worker's memory fits its device."""
        return all(worker["allocated_bytes"] <= self.memory_bytes for worker in self.workers)


def simulate_plan(plan: _core.Plan, machine: _core.Machine, *, fetch: str) -> Simulation:
    """Simulate a training step under a plan.

    Args:
        plan: of a training graph; if that has updates, they are simulated, too.
        machine: with at least one device per worker.
        fetch: one of config.FETCHES.

    Raises:
        ConfigError: the machine has too few devices.
        GraphError: MXNet refuses an operator, or two executors run the step.
    """
    with stage("simulating a step"):
        graph, updates = step_graph(plan, machine, fetch=fetch)
        return simulate_graph(graph, updates, machine, workers=plan.workers, fetch=fetch)


def step_graph(
    plan: _core.Plan, machine: _core.Machine, *, fetch: str
) -> tuple[_core.Graph, list[int]]:
    """The graph of a training step as one executor runs it, and which heads are updates.

    Random numbers are drawn before, by a graph of their own, which is left out.

    Raises:
        GraphError: two executors run the step.
    """
    roles = list(plan.table.graph.head_roles)
    crossing = "tiles" if machine.is_gpu else "plain_tiles"
    partitioned = _core.partition(plan, fetch=fetch, crossing=crossing, heads=roles)
    step = _core.schedule(partitioned, joint=True)
    if step.backward_heads and not step.is_joint:
        raise GraphError(
            "simulate: found random numbers drawn from a computed distribution, expected a step "
            "that one executor runs; take the distribution's parameters from inputs"
        )
    graph = step.graphs[-1]
    updates = [
        number
        for head in heads_of(step.backward_heads)
        if head.role.startswith(_UPDATE)
        for number in head.numbers
    ]
    return graph, updates


def simulate_graph(
    graph: _core.Graph,
    updates: Sequence[int],
    machine: _core.Machine,
    *,
    workers: int,
    fetch: str,
) -> Simulation:
    """Simulate a graph whose nodes are placed on workers; `updates` are heads kept outside."""
    uses = _core.OperatorUses(graph)
    calls = _core.OperatorCalls(graph)
    context = mx.gpu if machine.is_gpu else mx.cpu
    settings = planner_settings(graph, [context(worker) for worker in range(workers)])
    match_range = settings.get(MATCH_RANGE)
    found = _core.simulate(
        uses,
        operator_rules(uses),
        calls,
        [node_work(node) for node in calls.nodes],
        machine,
        workers=workers,
        match_range=DEFAULT_MATCH_RANGE if match_range is None else int(match_range),
        search_match_range=match_range is None,
        external_heads=list(updates),
    )
    return Simulation(
        **{**found, "critical_path": _shortened(found["critical_path"])},
        machine=machine.name,
        measured=machine.measured,
        fetch=fetch,
        memory_bytes=machine.memory_bytes,
    )


def _shortened(path: Mapping[str, Any]) -> dict[str, Any]:
    """The critical path with the operators that took longest, instead of all."""
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
