"""``tofu frontier MODULE:FUNCTION --mesh 2,4``: plans of a PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from tofu.cli.plan_torch import parse_mesh, torch_module
from tofu.errors import ConfigError
from tofu.planner.frontier import Point, frontier
from tofu.planner.prediction import step_predictor
from tofu.planner.sweep import Measure
from tofu.plans import Problem, SearchOptions

__all__ = ["frontier_of_module"]


def frontier_of_module(
    target: str,
    mesh: Optional[str],
    options: SearchOptions,
    *,
    optimizer: Optional[str],
    limits: int,
    most_bytes: Optional[int],
    rivals: Mapping[str, SearchOptions],
    exact: bool,
) -> list[Point]:
    """The plans found for a module, rivals included.

    Raises:
        ConfigError: torch is not installed, no mesh is given, or the target is no module.
        GraphError: the module cannot be traced.
    """
    if mesh is None:
        raise ConfigError(f"tofu frontier {target}: give the devices, such as --mesh 2,4")
    sizes = parse_mesh(mesh)
    model, args, kwargs = torch_module("loading", "tofu frontier --mesh").load(target)
    traced = torch_module("module_trace", "tofu frontier --mesh").trace(model, args, kwargs)
    ranks: Any = torch_module("planning", "tofu frontier --mesh").Ranks(traced, sizes, optimizer)
    problem: Problem = ranks.problem(target)
    predict = None
    if options.machine:
        predict = step_predictor(options.machine, problem.workers, None)
    return list(
        frontier(
            problem, options, limits=limits, most_bytes=most_bytes, rivals=rivals,
            measure=Measure(exact, predict),
        )
    )  # fmt: skip
