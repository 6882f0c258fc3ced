"""A plan's simulated step, with and without the time of its communication."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Optional

from tofu import _core
from tofu.plan import Plan, Problem
from tofu.plan.machine_files import machine_text, read_machine, without_segments
from tofu.simulate.step import simulate_plan

__all__ = ["WAYS", "free_links", "step_seconds"]

# How workers fetch, and the machine: MXNet's segments wait for all copies that they need, so with
# copies they are switched off (MXNET_EXEC_BULK_EXEC_TRAIN=0).
WAYS: dict[str, Callable[[str], _core.Machine]] = {
    "multifetch": read_machine,
    "plain": without_segments,
}
_FREE_BYTES_PER_S = 1e18


def free_links(machine: str, *, fetch: str = "multifetch") -> _core.Machine:
    """The shipped machine of this name, with copies that take no time."""
    document = json.loads(machine_text(machine))
    document["device"]["segments"] = document["device"]["segments"] and fetch != "plain"
    for link in document["links"]:
        link.update(latency_s=0.0, port_bytes_per_s=None, group_bytes_per_s=None)
        link["bytes_per_s"] = [[1.0, _FREE_BYTES_PER_S]]
    return _core.Machine(json.dumps(document))


def step_seconds(
    case: Problem, plan: Plan, machine: str, *, fetch: Optional[str] = None
) -> tuple[float, float]:
    """A simulated step, and the same if copies between workers took no time.

    fetch: one of WAYS; None: the fastest.
    """
    searched = _core.Plan(plan.to_json(), case.table)
    found = []
    for way in WAYS if fetch is None else [fetch]:
        machines = (WAYS[way](machine), free_links(machine, fetch=way))
        times = [simulate_plan(searched, each, fetch=way).step_seconds for each in machines]
        found.append((times[0], times[1]))
    return min(found)
