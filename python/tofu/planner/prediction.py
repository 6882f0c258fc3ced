"""Predicts the time of a step on the machine that ``--machine`` names."""

from __future__ import annotations

from typing import Callable, Optional

from tofu import _core
from tofu.errors import ConfigError, InternalError
from tofu.plans import Plan, Problem
from tofu.plans.machine_files import read_machine

from .search import default_fetch

__all__ = ["check_devices", "step_predictor"]


def check_devices(workers: int, machine: _core.Machine) -> None:
    """Raise ConfigError if a machine has fewer devices than there are workers."""
    if workers > machine.devices:
        raise ConfigError(
            f"--workers {workers}: {machine.name} has {machine.devices} devices; "
            "expected at most one worker for each"
        )


def step_predictor(
    machine: str, workers: int, fetch: Optional[str]
) -> Callable[[Problem, Plan], float]:
    """Predicts the seconds of a plan's step: simulated, where the front end simulates.

    Args:
        machine: a machine's file or name.
        workers: the most workers of a plan.
        fetch: one of config.FETCHES; None: the default on such a machine.

    Raises:
        ConfigError: there is no such machine, or it has fewer devices.
    """
    described = read_machine(machine)
    check_devices(workers, described)
    kind = fetch or default_fetch(described)

    def predict(problem: Problem, plan: Plan) -> float:
        if problem.front_end.simulates:
            fitted = plan.in_graph(problem.table)
            return problem.front_end.simulate(fitted, described, fetch=kind).step_seconds
        if plan.predicted is None:
            raise InternalError("a plan without a prediction, with a machine")
        return float(plan.predicted["step_ns"]) / 1e9

    return predict
