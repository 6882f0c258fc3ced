"""Lets a module that names GPUs be planned on a machine without any.

with without_gpus():
    model = Net().to("cuda")        # on the CPU
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["without_gpus"]

_CPU = torch.device("cpu")


def without_gpus() -> contextlib.AbstractContextManager[object]:
    """A context in which the CPU stands for GPUs, unless there are some."""
    return contextlib.nullcontext() if torch.cuda.is_available() else _CpuForGpus()


class _CpuForGpus(TorchFunctionMode):
    """Replaces GPUs among the arguments of torch's functions."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.device and any(map(_is_gpu, (*args, *(kwargs or {}).values()))):
            return _CPU
        given = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        return function(*map(_on_cpu, args), **given)


def _on_cpu(value: Any) -> Any:
    return _CPU if _is_gpu(value) else value


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and value.partition(":")[0] == "cuda"
