"""Writes one value to all places of a mask in a trace, with a gradient of the value.

Torch's gradient of ``hidden[mask] = self.word`` collects the places where the mask is true, whose
number depends on values. A choice between both at every place has the same values and gradients.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["MaskedWrites"]


class MaskedWrites(TorchFunctionMode):
    """Makes that choice in place of torch's operator while the mode is active."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one of torch's functions."""
        if func is torch.Tensor.__setitem__:
            written = _chosen(*args)
            if written is not None:
                args[0].copy_(written)
                return None
        return func(*args, **(kwargs or {}))


def _chosen(data: Any, mask: Any, value: Any) -> Optional[Any]:
    """The data with a value where a mask of its first dimensions is true; None if it is not so."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or not mask.ndim:
        return None
    if mask.shape != data.shape[: mask.ndim]:
        return None
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.dtype != data.dtype:
        return None
    rest = data.ndim - mask.ndim
    if value.ndim > rest + 1 or (value.ndim == rest + 1 and value.shape[0] != 1):
        return None
    value = value[0] if value.ndim > rest else value
    return torch.where(mask.reshape(*mask.shape, *[1] * rest), value, data)
