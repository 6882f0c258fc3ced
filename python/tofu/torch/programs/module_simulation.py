"""Simulates a module's training step on a machine.

    found = simulate_module(plan, read_machine("8xh100"))
    found.step_seconds

Each rank takes its operators in the order in which they become ready, and a fetch takes its
messages one after the other. Ranks that run have an order of their own, and send neighbouring
fetches together, so that they may take less time where latency counts. The optimizer is not
simulated.
"""

from __future__ import annotations

import math

from tofu import _core
from tofu.analysis.work import node_work
from tofu.plans.simulated_step import Simulation
from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.programs.rank_memory import held_bytes

__all__ = ["simulate_module"]


def simulate_module(
    plan: TorchPlan, machine: _core.Machine, *, with_timeline: bool = False
) -> Simulation:
    """Simulate a step of a plan that counts a rank's memory.

    Args:
        plan: the plan.
        machine: with at least one device per rank.
        with_timeline: whether to keep the time of every operation.

    Raises:
        ConfigError: the machine has too few devices.
    """
    graph = plan.partitioned.graph
    uses, calls = _core.OperatorUses(graph), _core.OperatorCalls(graph)
    result = _core.simulate(
        uses,
        [([], [])] * len(uses.nodes),  # memory is counted by the rank's own program
        calls,
        [node_work(node) for node in calls.nodes],
        machine,
        workers=math.prod(plan.mesh),
        with_timeline=with_timeline,
    )
    equal = sum(plan.memory.values())
    held = [equal] * len(result["workers"]) if plan.details.parts.are_equal else held_bytes(plan)
    workers = [
        {**worker, "static_bytes": own, "allocated_bytes": own, "live_bytes": []}
        for worker, own in zip(result["workers"], held)
    ]
    return Simulation.of_record({**result, "workers": workers}, machine, "multifetch")
