"""A plan's simulated step: its time, with and without communication, and its memory."""

from __future__ import annotations

import json
from typing import NamedTuple, Optional

from tofu import _core
from tofu.plans import Plan, Problem
from tofu.plans.machine_files import machine_text, read_machine
from tofu.simulate.simulation import simulate_plan

__all__ = ["WAYS", "Step", "free_links", "simulated_step"]

WAYS = ("multifetch", "plain")  # how workers fetch
_FREE_BYTES_PER_S = 1e18


class Step(NamedTuple):
    """A simulated step.

    Attributes:
        seconds: its time.
        compute_seconds: the same if copies between workers took no time.
        memory_bytes: MXNet's allocations on the fullest device.
    """

    seconds: float
    compute_seconds: float
    memory_bytes: int


def free_links(machine: str) -> _core.Machine:
    """The shipped machine of this name, with copies that take no time."""
    document = json.loads(machine_text(machine))
    for link in document["links"]:
        link.update(latency_s=0.0, port_bytes_per_s=None, group_bytes_per_s=None)
        link["bytes_per_s"] = [[1.0, _FREE_BYTES_PER_S]]
    return _core.Machine(json.dumps(document))


def simulated_step(case: Problem, plan: Plan, machine: str, *, fetch: Optional[str] = None) -> Step:
    """A simulated step.

    fetch: one of WAYS; None: the faster of them.
    """
    searched = plan.in_graph(case.table)
    steps = []
    for way in WAYS if fetch is None else [fetch]:
        machines = (read_machine(machine), free_links(machine))
        step, alone = (simulate_plan(searched, each, fetch=way) for each in machines)
        memory = max(worker["allocated_bytes"] for worker in step.workers)
        steps.append(Step(step.step_seconds, alone.step_seconds, memory))
    return min(steps)
