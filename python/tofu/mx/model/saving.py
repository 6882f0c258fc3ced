"""Saves plans for runs (TOFU_PLAN), with the keys by which a run finds a plan's graph."""

from __future__ import annotations

from pathlib import Path

from tofu.plans import Plan, Problem
from tofu.plans import file as plan_file

__all__ = ["save_plan"]


def save_plan(path: Path, problem: Problem, plan: Plan) -> None:
    """Add a plan of a problem to a file, which keeps its plans for other graphs.

    Raises:
        ConfigError: the file exists and is not a plan file, or cannot be written.
    """
    if problem.origin is None:
        plan_file.save(path, plan, problem.graph)
        return
    from tofu.mx.graphs.lower.fused_norm import kept_whole

    names = kept_whole(problem.origin, problem.graph)
    plan_file.save(path, plan, problem.graph, origin=problem.origin, kept_whole=names)
