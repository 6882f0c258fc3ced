"""Makes ranks agree on rank 0's values, on one module, and on parameters as DTensors."""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.utils.weak import WeakIdKeyDictionary

from tofu.errors import ConfigError, ConnectionLostError, PlanError, TofuError
from tofu.torch.tiles.distributed_tensor import owned
from tofu.torch.tiles.handed_over import hand_over
from tofu.torch.tiles.private_names import pytree
from tofu.torch.tiles.start_values import Initialise, initial_values

__all__ = [
    "agreed", "alike", "check_same_call", "checksum", "connected", "distribute", "rejoin",
    "whole_batch",
]  # fmt: skip

Value = TypeVar("Value")


def agreed(compute: Callable[[], Value]) -> Value:
    """Computes a value on rank 0 and returns it on all ranks; an error is raised on all, too."""
    result: list[Any] = [None]
    own: Optional[Exception] = None
    if dist.get_rank() == 0:
        try:
            result[0] = compute()
        except TofuError as error:
            result[0] = own = error
        except Exception as error:  # it may not travel, but the others must not wait for it
            result[0], own = PlanError(f"rank 0 ended with: {_told(error)}"), error
    dist.broadcast_object_list(result, src=0)
    if own is not None:
        raise own
    if isinstance(result[0], TofuError):
        raise result[0]
    value: Value = result[0]
    return value


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, TofuError) else f"{type(error).__name__}: {error}"


def alike(compute: Callable[[], Value], identity: Callable[[Value], str], name: str) -> Value:
    """Computes a value on every rank; all raise an error unless all values are equal.

    Args:
        compute: computes the value.
        identity: maps equal values to equal texts.
        name: the module's name, for errors.
    """
    value: Any = None
    own_identity = ""
    error: Optional[Exception] = None
    try:
        value = compute()
        own_identity = identity(value)
    except Exception as found:  # the others must not wait for this rank
        error = found
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (own_identity, None if error is None else _told(error)))
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
    result: Value = value
    return result


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


def check_same_call(
    what: str, kind: str, name: str, tensors: Sequence[Any], draw: int, device: str
) -> int:
    """Raise PlanError on all ranks unless all make the same call.

    Ranks that ran different programs would wait for each other until torch's time-out.

    Args:
        what: the inputs in words.
        kind: a text that is equal for calls that run the same program.
        name: the module's name.
        tensors: inputs that have the same values on all ranks.
        draw: a random number.
        device: the type of the mesh's devices.

    Returns:
        The number that rank 0 has drawn.
    """
    digest = hashlib.sha256(f"{what}/{kind}".encode()).digest()
    values = [checksum(tensor) for tensor in tensors]
    joined = zlib.crc32(repr(values).encode())
    mine = torch.tensor([int.from_bytes(digest[:7], "big"), joined, draw], device=device)
    given = mine.repeat(dist.get_world_size(), 1)
    gathered = torch.empty_like(given)
    with connected(f"rank {dist.get_rank()}: the kind of the call"):
        dist.all_to_all_single(gathered, given)  # gloo gathers in a ring, which takes longer
    every = gathered.tolist()
    different = [rank for rank, other in enumerate(every) if other[:2] != every[0][:2]]
    if different:
        calls: list[Any] = [None] * len(every)
        dist.all_gather_object(calls, (what, values))
        raise PlanError(f"{name}: {_difference(different[0], calls)}")
    return int(every[0][2])


def _difference(rank: int, calls: Sequence[tuple[str, list[int]]]) -> str:
    """Says how a rank's call differs from rank 0's."""
    (what, values), (first, others) = calls[rank], calls[0]
    if what != first:
        return (
            f"rank {rank} calls it with {what}, rank 0 with {first}; give all ranks the whole "
            "batch, in the same mode"
        )
    if values != others:
        number = [one != other for one, other in zip(values, others)].index(True)
        return (
            f"tensor {number} of the call ({what}) has other values on rank {rank} than on rank "
            "0; give all ranks the same whole batch: join the ranks' own batches with "
            "tofu.torch.whole_batch, or load data alike, without a DistributedSampler"
        )
    return (
        f"rank {rank} calls it with other arguments that are no tensors, or its attributes, "
        f"parameters or hooks have changed otherwise than rank 0's ({what}); make the same "
        "calls and changes on all ranks"
    )


def checksum(tensor: Any) -> int:
    """A number that differs for other values."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(flat.view(torch.uint8).numpy()) if flat.numel() else 0


def whole_batch(batch: Any) -> Any:
    """Joins the ranks' own batches along the first dimension, on all ranks.

    For loaders that give each rank a part of the batch, as a DistributedSampler does::

        for batch in loader:
            loss = model(**tofu.torch.whole_batch(batch))

    Args:
        batch: a tensor, or lists, tuples and dicts of tensors, nested alike on all ranks. Other
            values, and tensors without dimensions, stay as they are.
    """
    return pytree.tree_map(_joined, batch)


def _joined(part: Any) -> Any:
    if not isinstance(part, torch.Tensor) or part.ndim == 0:
        return part
    shapes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, (tuple(part.shape), part.dtype))
    if any((shape[1:], kind) != (tuple(part.shape[1:]), part.dtype) for shape, kind in shapes):
        raise PlanError(
            f"tofu.torch.whole_batch: ranks have parts of the shapes and types {shapes}; expected "
            "the same type and shape besides the first dimension"
        )
    parts = []
    for rank, (shape, _) in enumerate(shapes):
        mine = rank == dist.get_rank()
        parts.append(part.detach().contiguous() if mine else part.new_empty(shape))
        with connected(f"rank {dist.get_rank()}: the batch of rank {rank}"):
            dist.broadcast(parts[-1], src=rank)
    return torch.cat(parts)


def distribute(
    model: torch.nn.Module,
    mesh: DeviceMesh,
    placed: Mapping[str, tuple[Any, ...]],
    init: Initialise = None,
) -> None:
    """Replace a module's parameters and buffers by DTensors of rank 0's values.

    Args:
        model: the module.
        mesh: the mesh.
        placed: placements by name; other parameters and buffers are whole everywhere.
        init: a function that sets values of parameters on the device ``meta``, see
            `initial_values`.

    Raises:
        ConfigError: nothing sets the values of parameters or buffers on the device ``meta``.
    """
    values: dict[int, Any] = {}
    names = {id(tensor): name for name, tensor in _named_tensors(model)}
    for tensor, value in initial_values(model, init):
        values[id(tensor)] = _distributed(value, mesh, _placements(placed, names[id(tensor)], mesh))
    for name, tensor in _named_tensors(model):
        if isinstance(tensor, DTensor):  # another module's
            values[id(tensor)] = tensor
            continue
        if id(tensor) not in values:
            placements = _placements(placed, name, mesh)
            values[id(tensor)] = _distributed(tensor.detach(), mesh, placements)
        if isinstance(tensor, torch.nn.Parameter):
            values[id(tensor)] = torch.nn.Parameter(
                values[id(tensor)], requires_grad=tensor.requires_grad
            )
    whole = [tensor for _, tensor in _named_tensors(model) if not isinstance(tensor, DTensor)]
    hand_over([(tensor, values[id(tensor)]) for tensor in whole])
    for module in model.modules():
        for group in (module._parameters, module._buffers):
            for name, tensor in group.items():
                if tensor is not None:
                    group[name] = _DISTRIBUTED[tensor] = values[id(tensor)]


# The DTensors that modules have got in the place of parameters and buffers.
_DISTRIBUTED = WeakIdKeyDictionary()


def rejoin(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Give a module the DTensors that another one has got for tensors which both share.

    An embedding and a head that share a weight then share it distributed, too.

    Raises:
        ConfigError: the other module is on another mesh.
    """
    for module in model.modules():
        for group in (module._parameters, module._buffers):
            for name, tensor in group.items():
                known = None if tensor is None else _DISTRIBUTED.get(tensor)
                if known is not None and known.device_mesh != mesh:
                    raise ConfigError(
                        f"{type(model).__name__}: another module, on another mesh, shares the "
                        f"tensor {name!r}; give parallelize the same mesh for both"
                    )
                group[name] = tensor if known is None else known


def _named_tensors(model: torch.nn.Module) -> list[tuple[str, Any]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _placements(
    placed: Mapping[str, tuple[Any, ...]], name: str, mesh: DeviceMesh
) -> tuple[Any, ...]:
    return placed.get(name, (Replicate(),) * mesh.ndim)


def _distributed(tensor: Any, mesh: DeviceMesh, placements: tuple[Any, ...]) -> DTensor:
    device = tensor.to(mesh.device_type)
    return owned(distribute_tensor(device, mesh, placements))
