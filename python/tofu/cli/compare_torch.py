"""``tofu compare MODULE:FUNCTION --mesh 2,4``: searches of a PyTorch module's plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from tofu.cli.plan_torch import parse_mesh, torch_module
from tofu.errors import ConfigError
from tofu.planner.comparison import Alternative
from tofu.plans import SearchOptions

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
    frontiers: Any = torch_module("module_frontier", _WHO)
    model, args, kwargs = torch_module("loading", _WHO).load(target)
    traced = torch_module("module_trace", _WHO).trace(model, args, kwargs)
    alternatives: list[Alternative] = []
    for mesh in sizes:
        prepared = planning.planning_of(
            traced, mesh, optimizer=optimizer, options=options, name=target
        )
        alternatives += frontiers.compared(prepared, modes, objectives, exact=exact)
    return alternatives
