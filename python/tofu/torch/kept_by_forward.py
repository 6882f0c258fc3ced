"""Finds what a traced forward leaves behind besides its outputs: in buffers, lists and objects.

New values of buffers become part of the graph. Nothing else does, so what forward leaves in lists,
dicts and objects is refused if it has gradients, and otherwise warned of.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, MutableSequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tofu.errors import GraphError
from tofu.torch.module_state import containers

__all__ = ["DataWrites", "KeptByForward"]

_OWN = frozenset(vars(torch.nn.Module()))  # the mappings of every module


class KeptByForward:
    """What a module has before its forward runs.

    Args:
        module: the module, whose containers hold what they held before any trace.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._name = type(module).__name__
        own = [vars(each) for each in module.modules()]
        known = {id(each) for each in own}
        known |= {id(value) for each in own for name, value in each.items() if name in _OWN}
        self._containers = [
            (each, each.copy()) for each in containers(module) if id(each) not in known
        ]
        self._before: list[tuple[Any, dict[str, Any]]] = []

    def begin(self) -> None:
        """Note the parameters and buffers with which forward starts."""
        groups = [g for each in self._module.modules() for g in (each._parameters, each._buffers)]
        self._before = [(group, dict(group)) for group in groups]

    def end(self) -> None:
        """Write new buffers into those that forward has replaced, and restore containers.

        Raises:
            GraphError: forward leaves something that a planned call would not.
        """
        for group, before in self._before:
            now = dict(group)
            for name in now.keys() - before.keys():
                del group[name]  # torch runs forward again
            group.update(before)
            for name, tensor in now.items():
                if tensor is not before.get(name):
                    self._write(name, before.get(name), tensor)
        for container, before in self._containers:
            left = _new_values(container, before)
            if left:
                _restore(container, before)
                self._tell(left)

    def _write(self, name: str, before: Any, now: Any) -> None:
        alike = before is not None and now is not None and before.shape == now.shape
        if not alike or before.dtype != now.dtype or now.requires_grad:
            raise GraphError(
                f"{self._name}: forward gives the parameter or buffer {name!r} a tensor that it "
                "cannot keep in a planned call; expected one without gradients, of the shape and "
                "type that it has: register it in __init__, and detach what forward assigns"
            )
        with torch.no_grad():
            before.copy_(now)

    def _tell(self, left: list[Any]) -> None:
        where = f"{self._name}: forward leaves values in a list, a dict or an object"
        if any(isinstance(x, torch.Tensor) and x.requires_grad for x in left):
            raise GraphError(
                f"{where}, among them a tensor with gradients, where later code would not find "
                "it; return it with the outputs instead"
            )
        warnings.warn(
            f"{where}, which planned calls do not do; return with the "
            "outputs what other code reads",
            stacklevel=2,
        )


def _new_values(container: Any, before: Any) -> list[Any]:
    """The values that a container has got, or has in another place."""
    known = dict(_places(before))
    return [v for k, v in _places(container) if k not in known or not _same(known[k], v)]


def _places(container: Any) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _same(one: Any, other: Any) -> bool:
    plain = isinstance(one, (bool, int, float, str)) and type(one) is type(other)
    return one is other or (plain and bool(one == other))


def _restore(container: Any, before: Any) -> None:
    container.clear()
    if isinstance(container, MutableSequence):
        container.extend(before)
    else:
        container.update(before)


class DataWrites(TorchFunctionMode):
    """Writes what forward assigns to ``tensor.data`` into the tensor, as a graph can tell it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func != torch.Tensor.data.__set__:
            return func(*args, **(kwargs or {}))
        tensor, value = args
        if tensor.shape != value.shape or tensor.dtype != value.dtype:
            raise GraphError(
                f"forward assigns a tensor of the shape {tuple(value.shape)} and the type "
                f"{value.dtype} to the data of one of {tuple(tensor.shape)} and {tensor.dtype}; "
                "expected the same"
            )
        with torch.no_grad():
            tensor.copy_(value)
        return None
