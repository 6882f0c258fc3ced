"""Keeps a trace free of what a type of device has in place of an operator, so that plans fit all.

torch takes other operators on a GPU than on a CPU for some of a module's calls. A trace takes the
same everywhere; each rank then calls whichever kernel its device has for them.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

import torch
from torch.nn.functional import linear

from tofu.torch.tiles.attention_kernels import attention
from tofu.torch.tiles.private_names import scoped_library
from tofu.torch.tracing.recurrent_layers import LAYERS
from tofu.torch.tracing.value_guards import unchecked

__all__ = ["as_on_any_device", "traced_device"]

Tensor = Any  # torch.Tensor, whose methods are untyped


def traced_device(device: str) -> str:
    """The type of device that a trace's tensors have: the CPU if the device is not there.

    Gradients of tensors without data ask the device's driver, which ends a process without one.
    """
    there = device == "cpu" or torch.get_device_module(device).is_available()
    return device if there else "cpu"


@contextlib.contextmanager
def as_on_any_device(device: str, in_timesteps: bool) -> Iterator[None]:
    """Makes a trace on a type of device one of operators that all devices have.

    Args:
        device: the type.
        in_timesteps: whether recurrent layers are taken apart.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without(torch.backends.cudnn))
        # Its LSTM keeps tensors for its backward pass that a trace does not see.
        stack.enter_context(_without(torch.backends.mkldnn))
        # Autocast casts what a layer computes, step by step.
        apart = in_timesteps or torch.is_autocast_enabled(device)
        stack.enter_context(_replaced(_ON_ANY if apart else {**_ON_ANY, **LAYERS}, device))
        yield


@contextlib.contextmanager
def _replaced(functions: Mapping[str, Callable[..., Any]], device: str) -> Iterator[None]:
    """Have functions called in place of operators."""
    operators = [_overload(name) for name in functions]
    with scoped_library("aten", "IMPL") as library:
        for name, function in functions.items():
            library.impl(name, function, f"Autograd{device.upper()}")
        _forget(operators)
        yield
    _forget(operators)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _forget(operators: Sequence[Any]) -> None:
    """Have torch look up again which functions run operators."""
    for operator in operators:
        operator._dispatch_cache.clear()


@contextlib.contextmanager
def _without(backend: Any) -> Iterator[None]:
    """Disable a library of kernels."""
    with warnings.catch_warnings():  # of switches that are restored
        warnings.simplefilter("ignore")
        flags = backend.flags(enabled=False)
        flags.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags.__exit__(None, None, None)


def _lstm_cell(
    data: Tensor, state: Sequence[Tensor], weight: Tensor, own_weight: Tensor,
    bias: Optional[Tensor] = None, own_bias: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Torch's LSTM cell: the new state, and the new memory."""
    before, memory = state
    gates = linear(before, own_weight, own_bias) + linear(data, weight, bias)
    entry, keep, new, out = gates.chunk(4, 1)
    memory = keep.sigmoid() * memory + entry.sigmoid() * new.tanh()
    return out.sigmoid() * memory.tanh(), memory


def _gru_cell(
    data: Tensor, state: Tensor, weight: Tensor, own_weight: Tensor,
    bias: Optional[Tensor] = None, own_bias: Optional[Tensor] = None,
) -> Tensor:  # fmt: skip
    """Torch's GRU cell: the new state."""
    reset, keep, new = linear(data, weight, bias).chunk(3, 1)
    own_reset, own_keep, own_new = linear(state, own_weight, own_bias).chunk(3, 1)
    new = (new + (own_reset + reset).sigmoid() * own_new).tanh()
    return (state - new) * (own_keep + keep).sigmoid() + new


def _rms_norm(
    data: Tensor, shape: Sequence[int], weight: Optional[Tensor] = None, eps: Optional[float] = None
) -> Tensor:
    """The norm by the root of the mean square, as torch computes it on CPUs."""
    precise = data.float() if data.dtype in (torch.float16, torch.bfloat16) else data
    least = torch.finfo(precise.dtype).eps if eps is None else eps
    axes = list(range(-len(shape), 0))
    result = precise * (precise.pow(2).mean(axes, keepdim=True) + least).rsqrt()
    return (result if weight is None else result * weight).to(data.dtype)


# Operators that torch takes apart, or has kernels for, by the type of their tensors' device.
_ON_ANY: Mapping[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention,
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
    "rms_norm": _rms_norm,
    "_linalg_check_errors": unchecked,  # which reads values
}
