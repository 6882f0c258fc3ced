"""``tofu check MODULE:FUNCTION --mesh 2,2``: trains a PyTorch module whole and on a mesh."""

from __future__ import annotations

from typing import Any, Optional

from tofu.cli.model import parse_mesh, torch_module
from tofu.errors import ConfigError
from tofu.plans.progress import stage

__all__ = ["trained"]


def trained(target: str, mesh: Optional[str], steps: int, plan: Optional[str]) -> Any:
    """Train a module for some steps, whole and on a mesh; returns a `module_check.Runs`.

    Raises:
        ConfigError: torch is not installed, no mesh is given, the target is no module, or it does
            not run.
    """
    if mesh is None:
        raise ConfigError(f"tofu check {target}: give the devices, such as --mesh 2,2")
    sizes = parse_mesh(mesh)
    module_check = torch_module("module_check", "tofu check --mesh")
    with stage(f"training on a mesh of {' x '.join(map(str, sizes))} processes"):
        return module_check.trained(target, sizes, steps, plan)
