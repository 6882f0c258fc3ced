"""Makes initial values for parameters and buffers on the device ``meta``, a few at a time.

The module's own initialisers set them: ``reset_parameters``, ``_init_weights`` of Hugging Face's
models, or a function of the script's. A first run on ``meta`` tells which tensors each of them
touches, so that only those of one group need to be whole at once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from tofu.errors import ConfigError
from tofu.torch.tiles.private_names import TorchDispatchMode, pytree

__all__ = ["Initialise", "initial_values"]

Initialise = Optional[Callable[[torch.nn.Module], Any]]


@dataclass
class _Slot:
    """A place in a module that holds a tensor without data."""

    group: dict[str, Any]
    key: str
    name: str
    tensor: Any


@dataclass
class _Run:
    """A call of an initialiser, and the numbers of the tensors that it touches."""

    function: Callable[[], Any]
    touched: set[int]


def initial_values(model: torch.nn.Module, init: Initialise) -> Iterator[tuple[Any, Any]]:
    """Yields every tensor without data of a module, and a whole one with its initial values.

    Args:
        model: the module.
        init: a function to call with every submodule after its own initialiser, or None.

    Raises:
        ConfigError: no initialiser sets some of the tensors; the message names them.
    """
    slots = _slots(model)
    tensors = {id(slot.tensor): slot.tensor for slot in slots}
    numbers = {key: k for k, key in enumerate(tensors)}
    runs = []
    for function, inside in _initialisers(model, init, set(tensors)):
        touched = {numbers[key] for key in _touched(function, slots, inside)}
        runs.append(_Run(function, touched))
    never = set(numbers.values()).difference(*(run.touched for run in runs))
    _check_set(model, [s.name for s in slots if numbers[id(s.tensor)] in never])
    for group in _groups(runs, len(tensors)):
        own = [slot for slot in slots if numbers[id(slot.tensor)] in group]
        mine = [run.function for run in runs if run.touched & group]
        yield from _made(model, own, mine)


def _slots(model: torch.nn.Module) -> list[_Slot]:
    return [
        _Slot(group, key, f"{where}.{key}" if where else key, tensor)
        for where, module in model.named_modules()
        for group in (module._parameters, module._buffers)
        for key, tensor in group.items()
        if tensor is not None and tensor.is_meta
    ]


def _initialisers(
    model: torch.nn.Module, init: Initialise, empty: set[int]
) -> Iterator[tuple[Callable[[], Any], set[int]]]:
    """Yields initialisers, those of inner modules first, and the tensors inside their module."""
    for module, owner in _inner_first(model, None, set()):
        inside = {id(t) for t in [*module.parameters(), *module.buffers()]} & empty
        if not inside:
            continue
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
        own = reset if owner is None else functools.partial(owner._init_weights, module)
        given = None if init is None else functools.partial(init, module)
        yield from ((each, inside) for each in (own, given) if each is not None)


def _inner_first(
    module: torch.nn.Module, owner: Any, known: set[int]
) -> Iterator[tuple[torch.nn.Module, Any]]:
    """Yields a module's submodules and itself, each with the model whose initialiser is its own."""
    if id(module) in known:
        return
    known.add(id(module))
    owner = module if hasattr(module, "_init_weights") else owner
    for child in module.children():
        yield from _inner_first(child, owner, known)
    yield module, owner


class _Touching(TorchDispatchMode):
    """Records the storages of the tensors that operators read or write."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in pytree.tree_leaves((args, kwargs)):
            if isinstance(each, torch.Tensor):
                self.places.add(_place(each))
        return func(*args, **(kwargs or {}))


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _touched(function: Callable[[], Any], slots: list[_Slot], inside: set[int]) -> set[int]:
    """The tensors that an initialiser touches, by running it without data."""
    mode = _Touching()
    try:
        with torch.no_grad(), mode, torch.device("meta"):
            function()
    except Exception:  # it needs data, so it may touch all
        return inside
    finally:
        replaced = {id(s.tensor) for s in slots if s.group[s.key] is not s.tensor}
        for slot in slots:
            slot.group[slot.key] = slot.tensor
    return replaced | {id(s.tensor) for s in slots if _place(s.tensor) in mode.places}


def _groups(runs: list[_Run], count: int) -> list[set[int]]:
    """The numbers of tensors that some initialiser touches together."""
    groups = {number: {number} for number in range(count)}
    for run in runs:
        joined: set[int] = set().union(*(groups[number] for number in run.touched))
        for number in joined:
            groups[number] = joined
    return list({id(group): group for group in groups.values()}.values())


def _made(
    model: torch.nn.Module, slots: list[_Slot], functions: list[Callable[[], Any]]
) -> Iterator[tuple[Any, Any]]:
    """Makes the values of a group of tensors."""
    empty = {id(slot.tensor): _poisoned(slot.tensor) for slot in slots}
    for slot in slots:
        slot.group[slot.key] = empty[id(slot.tensor)][0]
    with torch.no_grad():
        for function in functions:
            function()
    values, missing = {}, []
    for slot in slots:
        value, (poisoned, version) = slot.group[slot.key], empty[id(slot.tensor)]
        slot.group[slot.key] = slot.tensor
        if value is poisoned and not _is_set(value, version):
            missing.append(slot.name)
        values[id(slot.tensor)] = slot.tensor, value.detach()
    _check_set(model, missing)
    yield from values.values()


def _poisoned(tensor: Any) -> tuple[Any, int]:
    """A tensor with data that no initialiser makes, and its version."""
    value = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    value.fill_(float("nan") if _has_nan(value) else 0)
    if isinstance(tensor, torch.nn.Parameter):
        value = torch.nn.Parameter(value, requires_grad=tensor.requires_grad)
    return value, int(value._version)


def _has_nan(value: Any) -> bool:
    return bool(value.is_floating_point() or value.is_complex())


def _is_set(value: Any, version: int) -> bool:
    """Whether all elements have been set; integers that are set through `data` to other than 0."""
    if _has_nan(value):
        return not bool(value.isnan().any())
    return int(value._version) != version or bool(value.any())


def _check_set(model: torch.nn.Module, missing: list[str]) -> None:
    if missing:
        raise ConfigError(
            f"{type(model).__name__}: {', '.join(missing)} on the device meta have no initial "
            "values; expected a reset_parameters of their modules that sets them: write it, give "
            "parallelize(..., init=) a function that is called with every submodule, or make the "
            "module on a real device"
        )
