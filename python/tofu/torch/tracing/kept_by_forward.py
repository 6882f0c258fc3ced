"""Finds what a traced forward leaves behind besides its outputs: in buffers, lists and objects.

New values of buffers become part of the graph. Tensors that forward leaves in attributes, lists and
dicts become outputs of the graph, and every planned call puts them there. The rest is refused.
"""

from __future__ import annotations

import enum
from typing import Any, Callable

import torch
from torch.overrides import TorchFunctionMode

from tofu.errors import GraphError
from tofu.torch.graphs.module_state import ALL, END, SYMBOLS, Path, Reading, named
from tofu.torch.graphs.watched_code import is_watched
from tofu.torch.tiles.private_names import pytree
from tofu.torch.tracing.left_by_forward import Kept, Left, differs, restore

__all__ = ["DataWrites", "KeptByForward", "computed_before"]

_HOOKED = ("name", "_tensor_name")  # attributes of hooks that name what they compute
_TENSORS = ("_parameters", "_buffers", "_modules")  # a module's mappings that are no attributes
_CONSTANTS = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, enum.Enum,
)  # fmt: skip


class KeptByForward:
    """Compares a module before and after its forward runs.

    Args:
        module: the module.

    Attributes:
        left: the values that the last forward has left.
        tensors: the tensors among them.
        computed: the numbers of those that torch's hooks compute of parameters.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.left: Left = {}
        self.tensors: list[Any] = []
        self.computed: set[int] = set()
        self._numbers: dict[int, int] = {}  # of tensors, by identity
        self._module = module
        self._name = type(module).__name__
        self._containers: list[tuple[Path, Any, Any]] = []  # a saved program's forward has none
        self._skipped: dict[int, Callable[[str], bool]] = {
            id(vars(each)): _set_by_torch(each) for each in module.modules()
        }
        self._hooked = {id(vars(each)): computed_before(each) for each in module.modules()}

    def begin(self) -> None:
        """Note what there is before forward runs."""
        modules = list(self._module.modules())
        groups = [group for each in modules for group in (each._parameters, each._buffers)]
        self._groups = [(group, dict(group)) for group in groups]
        self._parameters = {id(each) for each in self._module.parameters()}
        self._reading = Reading([*self._module.parameters(), *self._module.buffers()], set())
        self._reading.frozen(self._module, 0)
        self._misses = [cache.cache_info().misses for cache in self._reading.caches]
        known = {id(vars(each)[name]) for each in modules for name in _TENSORS}
        self._containers = [
            (path, each, each.copy())
            for path, each in self._reading.containers.items()
            if id(each) not in known
        ]

    def end(self) -> None:
        """Note what forward has left, write new buffers into old ones, and restore the module.

        Raises:
            GraphError: forward leaves something that a planned call cannot.
        """
        for group, before in self._groups:
            now = dict(group)
            for name in now.keys() - before.keys():
                del group[name]  # torch runs forward again
            group.update(before)
            for name, tensor in now.items():
                if tensor is not before.get(name):
                    self._write(name, before.get(name), tensor)
        self.tensors, self._numbers, self.computed = [], {}, set()
        left = {}
        for path, container, before in self._containers:
            new = self._new(path, container, before)
            if differs(container, before):
                restore(container, before)
            if new is None:
                self._refuse(path, "removes or reorders values there")
            for key, value in new.items():
                left[path, key] = pytree.tree_map(
                    lambda x, path=path, key=key: self.keep((path, key), x), value
                )
            hooked = self._hooked.get(id(container), set()) & new.keys()
            self.computed |= {self._numbers[id(new[key])] for key in hooked}
        self.left = left
        for cache, misses in zip(self._reading.caches, self._misses):
            if cache.cache_info().misses != misses:
                cache.cache_clear()  # of tensors without data
        changed = self._reading.changed()
        if changed is not None:
            self._refuse(changed, "changes it in place")

    def _new(self, path: Path, container: Any, before: Any) -> Any:
        """The values that a container has got by their keys; None if it has lost any."""
        if isinstance(container, dict):
            is_skipped = self._skipped.get(id(container), _never)
            if before.keys() - container.keys():
                return None
            return {
                key: value
                for key, value in container.items()
                if not is_skipped(key) and not (key in before and _same(before[key], value))
            }
        now, count = list(container), len(before)
        if len(now) >= count and all(map(_same, now, before)):
            return {END: now[count:]} if len(now) > count else {}
        return None if any(x is y for x in now for y in before) else {ALL: now}

    def keep(self, place: tuple[Path, Any], value: Any) -> Any:
        """Stands for a value at a place; tensors become outputs of the graph.

        Raises:
            GraphError: a planned call cannot leave it.
        """
        if isinstance(value, torch.Tensor):
            if isinstance(value, torch.nn.Parameter) or id(value) in self._parameters:
                self._refuse(place, "keeps a parameter there")
            if value.retains_grad:
                self._refuse(place, "asks for the gradient of a tensor inside")
            number = self._numbers.setdefault(id(value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(value)
            return Kept(number, tuple(value.shape), value.dtype, value.requires_grad)
        if not isinstance(value, (*_CONSTANTS, *SYMBOLS)) and not _is_hook(place, value):
            self._refuse(place, f"keeps a {type(value).__name__} there")
        return value

    def name_of(self, tensor: Any) -> str:
        """The name of a plain tensor that the module reaches; "" if it reaches it in no known way.

        Of globals, it is that of the function that names them: "Model.forward.TABLE".
        """
        path = self._reading.path_of(tensor)
        return "" if path is None else named(path)

    def check(self) -> None:
        """Raise GraphError if the backward pass has left values, as hooks of tensors do."""
        for path, container, before in self._containers:
            if self._new(path, container, before) != {}:
                restore(container, before)
                self._refuse(path, "changes it in the backward pass")

    def _refuse(self, path: Path, does: str) -> None:
        raise GraphError(
            f"{self._name}: forward changes {named(path)!r} in a way that a planned call cannot "
            f"repeat: it {does}; expected new tensors, numbers and texts in attributes and dicts, "
            "and at the ends of lists: return the rest with the outputs"
        )

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


def _is_hook(place: tuple[Path, Any], value: Any) -> bool:
    """Whether a value is a hook without state that forward registers, for good."""
    return place[0][-1:] == ("_forward_hooks",) and is_watched(value)


def computed_before(module: torch.nn.Module) -> set[str]:
    """The attributes that torch's hooks compute before forward, as for a weight norm or pruning."""
    hooks = module._forward_pre_hooks.values()
    return {str(getattr(hook, n)) for hook in hooks for n in _HOOKED if hasattr(hook, n)}


def _set_by_torch(module: torch.nn.Module) -> Callable[[str], bool]:
    """Tells attributes that torch sets for itself in forward, as those of parameters of LSTMs."""
    bases = [base for base in type(module).__mro__ if base not in (object, torch.nn.Module)]
    private = any(base.__module__.startswith("torch.nn.") for base in bases)
    return lambda name: private and name[:1] == "_"


def _never(_: str) -> bool:
    return False


def _same(one: Any, other: Any) -> bool:
    plain = isinstance(one, _CONSTANTS) and type(one) is type(other)
    return one is other or (plain and repr(one) == repr(other))  # a watched number notices ==


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
