"""``tofu compare MODULE:FUNCTION --mesh 2,4``: searches of a PyTorch module's plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Callable, Optional

from tofu.cli.plan_torch import parse_mesh, torch_module
from tofu.errors import ConfigError
from tofu.planner.comparison import Alternative, compare
from tofu.planner.prediction import step_predictor
from tofu.planner.sweep import Measure
from tofu.plans import Problem, SearchOptions

__all__ = ["compare_module"]

_WHO = "tofu compare --mesh"


def compare_module(
    target: str,
    meshes: Sequence[str],
    modes: Sequence[str],
    objectives: Sequence[str],
    options: SearchOptions,
    *,
    optimizer: Optional[str],
    exact: bool,
) -> list[Alternative]:
    """The plans of a module on every mesh, in every mode, with and without whole tensors.

    Raises:
        ConfigError: torch is not installed, no mesh is given, or the target is no module.
        GraphError: the module cannot be traced.
    """
    if not meshes:
        raise ConfigError(f"tofu compare {target}: give meshes, such as --mesh 2 --mesh 2,4")
    sizes = [parse_mesh(mesh) for mesh in meshes]
    planning: Any = torch_module("planning", _WHO)
    model, args, kwargs = torch_module("loading", _WHO).load(target)
    traced = torch_module("module_trace", _WHO).trace(model, args, kwargs)
    alternatives: list[Alternative] = []
    for mesh in sizes:
        problem: Problem = planning.Ranks(traced, mesh, optimizer).problem(target)
        predict = None
        if options.machine:
            predict = step_predictor(options.machine, problem.workers, None)
        problem_for: Callable[[int], Problem] = {problem.workers: problem}.__getitem__
        found = compare(
            problem_for, workers=(problem.workers,), modes=modes, objectives=objectives,
            options=options, measure=Measure(exact, predict),
        )  # fmt: skip
        alternatives += (dataclasses.replace(each, mesh=mesh) for each in found)
    return alternatives
