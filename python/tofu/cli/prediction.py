"""Predicts the time of a step on the machine that ``--machine`` names."""

from __future__ import annotations

from typing import Callable, Optional

from tofu.cli.options import check_devices
from tofu.plans import Plan, Problem

__all__ = ["step_predictor"]


def step_predictor(
    machine: str, workers: int, fetch: Optional[str]
) -> Callable[[Problem, Plan], float]:
    """Simulates plans; the result is in seconds.

    Args:
        machine: a machine's file or name.
        workers: the most workers of a plan.
        fetch: one of config.FETCHES; None: the default on such a machine.

    Raises:
        ConfigError: there is no such machine, or it has fewer devices.
    """
    from tofu.plans.machine_files import read_machine
    from tofu.simulate.simulation import simulate_plan

    described = read_machine(machine)
    check_devices(workers, described)
    kind = fetch or ("plain" if described.is_gpu else "multifetch")

    def predict(problem: Problem, plan: Plan) -> float:
        fitted = plan.in_graph(problem.table)
        return simulate_plan(fitted, described, fetch=kind).step_seconds

    return predict
