"""A plan's simulated step: its time, with and without communication, and its memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple, Optional

from tofu import _core
from tofu.plans import Plan, Problem
from tofu.plans.machine_files import machine_text, read_machine, without_segments
from tofu.simulate.simulation import simulate_plan

__all__ = ["WAYS", "Step", "free_links", "simulated_step"]

# How workers fetch, and the machine: MXNet's segments wait for all copies that they need, so with
# copies they are switched off (MXNET_EXEC_BULK_EXEC_INFERENCE=0).
WAYS: dict[str, Callable[[str], _core.Machine]] = {
    "multifetch": read_machine,
    "plain": without_segments,
}
_FREE_BYTES_PER_S = 1e18


class Step(NamedTuple):
    """A simulated step.

    Attributes:
        seconds: its time.
        compute_seconds: the same if copies between workers took no time.
        memory_bytes: what MXNet allocates on the fullest device.
    """

    seconds: float
    compute_seconds: float
    memory_bytes: int


def free_links(machine: str, *, fetch: str = "multifetch") -> _core.Machine:
    """The shipped machine of this name, with copies that take no time."""
    document = json.loads(machine_text(machine))
    for device in document.get("devices", [document.get("device")]):
        device["segments"] = device["segments"] and fetch != "plain"
    for link in document["links"]:
        link.update(latency_s=0.0, port_bytes_per_s=None, group_bytes_per_s=None)
        link["bytes_per_s"] = [[1.0, _FREE_BYTES_PER_S]]
    return _core.Machine(json.dumps(document))


def simulated_step(case: Problem, plan: Plan, machine: str, *, fetch: Optional[str] = None) -> Step:
    """A simulated step.

    fetch: one of WAYS; None: the fastest.
    """
    searched = plan.in_graph(case.table)
    found = []
    for way in WAYS if fetch is None else [fetch]:
        machines = (WAYS[way](machine), free_links(machine, fetch=way))
        step, alone = (simulate_plan(searched, each, fetch=way) for each in machines)
        memory = max(worker["allocated_bytes"] for worker in step.workers)
        found.append(Step(step.step_seconds, alone.step_seconds, memory))
    return min(found)
