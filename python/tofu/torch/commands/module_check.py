"""Trains a module whole and on a mesh of processes, from the same values, to compare both."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import ProcessException, start_processes
from torch.nn.modules import dropout

from tofu.errors import ConfigError
from tofu.plans.runs import Runs
from tofu.torch.commands.loading import load
from tofu.torch.parallelize import parallelize, program_of
from tofu.torch.tiles.private_names import pytree
from tofu.verify.script.compare_runs import read_arrays

__all__ = ["trained"]

_TYPES = {"single": torch.float32, "double": torch.float64}
_RATE = 0.01
# Newer versions of torch run no autograd in a process that was forked after a trace.
_START = "forkserver"
_DROPOUTS = tuple(getattr(dropout, name) for name in dropout.__all__)
_RANDOM = "random"  # a fact that is recorded besides tensors


def trained(target: str, mesh: tuple[int, ...], steps: int, plan: Optional[str] = None) -> Runs:
    """Train a module by SGD, with the mean of its outputs as the loss, on gloo processes.

    Args:
        target: as for `load`.
        mesh: the sizes of the mesh's dimensions.
        steps: number of steps.
        plan: the file of a plan for float32; None: plans are searched.

    Raises:
        ConfigError: it does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        count = math.prod(mesh)
        multiprocessing.get_context(_START).set_forkserver_preload([__name__])
        given = count, folder, target, mesh, steps, plan
        try:
            start_processes(_rank, given, nprocs=count, start_method=_START)
        except ProcessException as error:
            last = str(error).strip().splitlines()[-1]
            raise ConfigError(f"tofu check {target}: it does not run: {last}") from error
        runs = [[read_arrays(Path(folder) / f"{name}{k}.npz") for k in range(2)] for name in _TYPES]
    drawn = [bool(each.pop(_RANDOM)) for both in runs for each in both]
    (single, double) = runs
    return Runs((single[0], single[1]), (double[0], double[1]), any(drawn))


def _rank(
    number: int, count: int, folder: str, target: str, mesh: Any, steps: int, plan: Optional[str]
) -> None:
    os.environ.setdefault("TOFU_LOG", "quiet")  # the command tells the result
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=count
    )
    try:
        for name, dtype in _TYPES.items():
            torch.manual_seed(0)
            model, args, kwargs = load(target)
            model = _without_dropout(model).to(dtype)
            given = pytree.tree_map(lambda each, to=dtype: _typed(each, to), (args, kwargs))
            whole = copy.deepcopy(model)
            file = plan if dtype is torch.float32 else None
            parts = parallelize(model, mesh, *given, plan=file)
            is_random = program_of(parts).is_random
            for k, each in enumerate((whole, parts)):
                arrays = {_RANDOM: np.array(is_random), **dict(_recorded(each, given, steps))}
                if number == 0:
                    np.savez(f"{folder}/{name}{k}.npz", **arrays)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _typed(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


def _without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        if isinstance(module, _DROPOUTS):
            module.p = 0.0
    return model


def _recorded(model: torch.nn.Module, given: Any, steps: int) -> Iterator[tuple[str, Any]]:
    """The outputs, gradients and new parameters of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
    args, kwargs = given
    for step in range(1, steps + 1):
        outputs = [x for x in pytree.tree_leaves(model(*args, **kwargs)) if _is_float(x)]
        losses = [each.mean() for each in outputs if each.requires_grad]
        if not losses:
            raise ConfigError(f"{type(model).__name__}: returns no tensor that can be trained")
        torch.stack(losses).sum().backward()
        for k, each in enumerate(outputs):
            yield f"{step}/output/output{k}", _array(each)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                yield f"{step}/gradient/{name}", _array(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        for name, parameter in model.named_parameters():
            yield f"{step}/weight/{name}", _array(parameter)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _array(tensor: Any) -> Any:
    tensor = tensor.detach()
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.cpu().numpy().copy()
