"""MXNet, as the planner needs it: its memory, and the time of a step that it schedules."""

from __future__ import annotations

from typing import Callable, Optional

from tofu import _core
from tofu.plans import Plan, Problem
from tofu.plans.problem import FrontEnd, Start, in_turn
from tofu.plans.simulated_step import Simulation

from .memory import begin_memory

__all__ = ["MXNET"]


class _MXNet(FrontEnd):
    simulates = True

    def begin_memory(
        self,
        problem: Problem,
        plan: Plan,
        *,
        fetch: Optional[str] = None,
        keep_fetched_bytes: int = 0,
        start: Start = in_turn,
    ) -> Callable[[], Plan]:
        return begin_memory(
            problem, plan, fetch, keep_fetched_bytes=keep_fetched_bytes, start=start
        )

    def simulate(
        self,
        plan: _core.Plan,
        machine: _core.Machine,
        *,
        fetch: str,
        with_timeline: bool = False,
    ) -> Simulation:
        from tofu.simulate.simulation import simulate_plan  # which imports mxnet

        return simulate_plan(plan, machine, fetch=fetch, with_timeline=with_timeline)


MXNET = _MXNet()
