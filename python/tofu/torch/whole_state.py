"""Has a library's own ``save_pretrained`` write the whole tensors of a distributed module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from tofu.torch.graphs.module_state import Attached

__all__ = ["SavePretrained", "whole_state"]


class SavePretrained(Attached):
    """The ``save_pretrained`` of a distributed module: all ranks call it, rank 0 writes.

    Args:
        model: a module that has this method, such as those of Hugging Face's libraries.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def __call__(
        self, *args: Any, state_dict: Optional[Mapping[str, Any]] = None, **kwargs: Any
    ) -> Any:
        """Save as the module's class does, with whole tensors in the place of DTensors."""
        whole = whole_state(self._model.state_dict() if state_dict is None else state_dict)
        own: Any = type(self._model)
        result = None
        try:
            if whole is not None:
                result = own.save_pretrained(self._model, *args, state_dict=whole, **kwargs)
        finally:
            dist.barrier()
        return result


def whole_state(tensors: Mapping[str, Any]) -> Optional[dict[str, Any]]:
    """Tensors by name with whole ones in the place of DTensors, on rank 0; None on other ranks.

    All ranks must call it. Tensors that are one DTensor stay one.
    """
    keeps = dist.get_rank() == 0
    made: dict[Any, Any] = {}
    result: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            key = tensor._local_tensor.untyped_storage()._cdata
            if key not in made:
                whole = tensor.detach().full_tensor()
                made[key] = whole.cpu() if keeps else None
            tensor = made[key]
        result[name] = tensor
    return result if keeps else None
