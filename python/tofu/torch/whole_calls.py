"""Calls of a distributed module that no plan can serve: every rank runs the module's own forward.

It runs in plain torch on whole parameters, as generating text with a cache does. That needs the
memory of the whole module, so it is for calls without gradients alone.
"""

from __future__ import annotations

import contextlib
import enum
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from tofu.torch.graphs.module_state import version_of
from tofu.torch.tiles.private_names import pytree

__all__ = ["WholeCalls", "are_whole", "holds_objects", "say_once"]

_PLAIN = (
    torch.Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device,
    torch.layout, torch.memory_format, enum.Enum, range, slice,
)  # fmt: skip
_whole = False


def are_whole() -> bool:
    """Whether a call of this process runs on whole parameters now."""
    return _whole


def holds_objects(args: Any, kwargs: Any) -> bool:
    """Whether arguments hold objects that a program cannot take, such as a cache."""
    return not all(isinstance(each, _PLAIN) for each in pytree.tree_leaves((args, kwargs)))


@contextlib.contextmanager
def _running_whole() -> Iterator[None]:
    global _whole
    _whole = True
    try:
        yield
    finally:
        _whole = False


class WholeCalls:
    """Runs calls of a module on whole parameters and buffers, kept until a planned call.

    Args:
        model: the distributed module.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._whole: dict[int, Any] = {}  # by the id of the distributed tensor
        self._versions: dict[int, tuple[int, ...]] = {}

    def drop(self) -> None:
        """Free the whole tensors."""
        self._whole, self._versions = {}, {}

    def run(
        self, forward: Callable[..., Any], tensors: Mapping[str, Any], args: Any, kwargs: Any
    ) -> Any:
        """Run the module's own forward.

        Args:
            forward: that forward.
            tensors: the module's parameters and buffers.
            args: the arguments of the call.
            kwargs: those by name.
        """
        self._gather(tensors)
        if any(isinstance(each, DTensor) for each in pytree.tree_leaves((args, kwargs))):
            args, kwargs = pytree.tree_map_only(DTensor, lambda x: x.full_tensor(), (args, kwargs))
        with self._instead(tensors), _running_whole():
            return forward(*args, **kwargs)

    def _gather(self, tensors: Mapping[str, Any]) -> None:
        """Make those tensors whole that have changed."""
        present = {id(tensor) for tensor in tensors.values()}
        self._whole = {key: whole for key, whole in self._whole.items() if key in present}
        for tensor in tensors.values():
            key, version = id(tensor), version_of(tensor)
            if key not in self._whole or self._versions[key] != version:
                whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()
                self._whole[key], self._versions[key] = whole.detach(), version

    @contextlib.contextmanager
    def _instead(self, tensors: Mapping[str, Any]) -> Iterator[None]:
        """Put the whole tensors in their places; new values of buffers are kept."""
        places = [
            (group, name, tensor)
            for module in self._model.modules()
            for group in (module._parameters, module._buffers)
            for name, tensor in group.items()
            if id(tensor) in self._whole
        ]
        before = {key: (whole, version_of(whole)) for key, whole in self._whole.items()}
        values = {  # batch norms write to theirs without a new version
            id(tensor): self._whole[id(tensor)].clone()
            for group, _, tensor in places
            if not isinstance(tensor, torch.nn.Parameter)
        }
        for group, name, tensor in places:
            group[name] = self._whole[id(tensor)]
        try:
            yield
        finally:
            for group, name, tensor in places:
                now, (whole, version), value = (
                    group[name],
                    before[id(tensor)],
                    values.get(id(tensor)),
                )
                group[name] = tensor
                written = now is not whole or version_of(now) != version
                if now is not None and (written or not (value is None or torch.equal(now, value))):
                    _copy(tensor, now)
                    self._whole.pop(id(tensor), None)


def _copy(tensor: Any, whole: Any) -> None:
    if isinstance(tensor, DTensor):
        whole = distribute_tensor(whole, tensor.device_mesh, tensor.placements)
    tensor.copy_(whole)


def say_once(said: set[str], text: str) -> None:
    """Warn of something on rank 0, unless it has been said."""
    if text not in said:
        said.add(text)
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            warnings.warn(text, stacklevel=2)
