"""Refuses what would distribute a distributed module once more, such as DistributedDataParallel."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor.experimental import register_sharding

from tofu.errors import PlanError

__all__: list[str] = []


@register_sharding(torch.ops.c10d.broadcast_.default)  # type: ignore[untyped-decorator]
def _broadcast(tensors: Any, *_: Any) -> Any:
    """DTensor's rule for a broadcast of parameters, with which such wrappers begin."""
    shapes = ", ".join(str(tuple(each.shape)) for each in tensors[:3])
    raise PlanError(
        f"broadcast of DTensors {shapes}: each rank has other tiles of them, so no rank's can "
        "take the place of the others'. A module from tofu.torch.parallelize is already "
        "distributed, with rank 0's values: do not wrap it in DistributedDataParallel; for "
        "accelerate and Trainer, which wrap it, see docs/tasks/hugging-face.md"
    )
