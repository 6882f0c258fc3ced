"""MXNet, as the planner needs it: its memory, and the time of a step that it schedules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.plans import Plan, Problem
from tofu.plans.problem import Counting, FrontEnd
from tofu.plans.simulated_step import Simulation

from .memory import begin_memory
from .saving import save_plan

__all__ = ["MXNET"]


class _MXNet(FrontEnd):
    simulates = True

    def begin_memory(self, problem: Problem, plan: Plan, counting: Counting) -> Callable[[], Plan]:
        return begin_memory(problem, plan, counting)

    def warned(self, problem: Problem) -> Mapping[str, str]:
        return strategy_table(problem.graph)[1] if problem.table.undescribed else {}

    def save(self, path: Path, problem: Problem, plan: Plan) -> None:
        save_plan(path, problem, plan)

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
