"""Makes ranks agree on rank 0's values, on one module, and on parameters as DTensors."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Callable, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import empty as empty_dtensor

from tofu.errors import ConnectionLostError, PlanError, TofuError

__all__ = ["agreed", "alike", "check_same_call", "connected", "distribute"]

Value = TypeVar("Value")


def agreed(compute: Callable[[], Value]) -> Value:
    """Computes a value on rank 0 and returns it on all ranks; an error is raised on all, too."""
    result: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            result[0] = compute()
        except TofuError as error:
            result[0] = error
    dist.broadcast_object_list(result, src=0)
    if isinstance(result[0], TofuError):
        raise result[0]
    value: Value = result[0]
    return value


def alike(compute: Callable[[], Value], identity: Callable[[Value], str], name: str) -> Value:
    """Computes a value on every rank; all raise an error unless all values are equal.

    Args:
        compute: computes the value.
        identity: maps equal values to equal texts.
        name: the module's name, for errors.
    """
    value, error, own_identity = None, None, ""
    try:
        value = compute()
        own_identity = identity(value)
    except TofuError as found:
        error = found
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (own_identity, None if error is None else str(error)))
    if error is not None:
        raise error
    failed = [(rank, text) for rank, (_, text) in enumerate(every) if text is not None]
    if failed:
        raise PlanError(f"{name}: rank {failed[0][0]} ended with: {failed[0][1]}")
    different = [rank for rank, (text, _) in enumerate(every) if text != every[0][0]]
    if different:
        raise PlanError(
            f"{name}: rank {different[0]} has another module or inputs of other shapes than rank "
            "0; give all ranks the same module and inputs of the whole batch"
        )
    assert value is not None
    return value


@contextlib.contextmanager
def connected(what: str) -> Iterator[None]:
    """Names the failed exchange if a rank cannot be reached. Raises ConnectionLostError."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ConnectionLostError(
            f"{what} could not be exchanged ({reason}); another rank has ended or made another "
            "call: see the first error among those of all ranks"
        ) from error


def check_same_call(what: str, kind: str, name: str, device: str) -> None:
    """Raise PlanError on all ranks unless all call a module with inputs of the same kind.

    Ranks that ran different programs would wait for each other until torch's time-out.

    Args:
        what: the inputs in words.
        kind: a text that is equal for calls that run the same program.
        name: the module's name.
        device: the type of the mesh's devices.
    """
    digest = hashlib.sha256(f"{what}/{kind}".encode()).digest()
    mine = torch.tensor([int.from_bytes(digest[:7], "big")], device=device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    with connected(f"rank {dist.get_rank()}: the kind of the call"):
        dist.all_gather(every, mine)
    different = [rank for rank, other in enumerate(every) if not torch.equal(other, every[0])]
    if different:
        calls: list[Any] = [None] * len(every)
        dist.all_gather_object(calls, what)
        raise PlanError(
            f"{name}: rank {different[0]} calls it with {calls[different[0]]}, rank 0 with "
            f"{calls[0]}; give all ranks the whole batch, in the same mode"
        )


def distribute(
    model: torch.nn.Module, mesh: DeviceMesh, placed: Mapping[str, tuple[Any, ...]]
) -> dict[str, DTensor]:
    """Replace a module's parameters and buffers by DTensors of rank 0's values.

    Parameters and buffers that are not in `placed` are whole everywhere. On the device ``meta``,
    their modules' ``reset_parameters`` sets their values, tile by tile.

    Returns:
        The DTensors by name.
    """
    distributed: dict[int, Any] = {}
    dtensors: dict[str, DTensor] = {}
    for name, parameter in model.named_parameters():
        local = _distributed(parameter.detach(), mesh, _placements(placed, name, mesh))
        distributed[id(parameter)] = torch.nn.Parameter(
            local, requires_grad=parameter.requires_grad
        )
        dtensors[name] = distributed[id(parameter)]
    for name, buffer in model.named_buffers():
        distributed[id(buffer)] = _distributed(buffer, mesh, _placements(placed, name, mesh))
        dtensors[name] = distributed[id(buffer)]
    empty = {id(tensor) for tensor in [*model.parameters(), *model.buffers()] if tensor.is_meta}
    for module in list(model.modules()):
        own = [
            t for t in [*module._parameters.values(), *module._buffers.values()] if t is not None
        ]
        for group in (module._parameters, module._buffers):
            for name, tensor in group.items():
                if tensor is not None:
                    group[name] = distributed[id(tensor)]
        if any(id(tensor) in empty for tensor in own) and hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return dtensors


def _placements(
    placed: Mapping[str, tuple[Any, ...]], name: str, mesh: DeviceMesh
) -> tuple[Any, ...]:
    return placed.get(name, (Replicate(),) * mesh.ndim)


def _distributed(tensor: Any, mesh: DeviceMesh, placements: tuple[Any, ...]) -> DTensor:
    if tensor.is_meta:
        return empty_dtensor(
            *tensor.shape, dtype=tensor.dtype, device_mesh=mesh, placements=placements
        )
    device = tensor.to(mesh.device_type)
    return distribute_tensor(device, mesh, placements)
