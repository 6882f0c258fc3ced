"""Values of tensors that forward makes of numbers alone, so that they are the same in all calls.

Scripts ask for them, as for whether any word is masked by a mask that they have just made of ones::

    mask = torch.ones(batch, length)
    if (mask == 0).any():
        ...

A trace has no values, but it can compute these.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

from tofu.torch.tiles.distributed_tensor import draws, overloads
from tofu.torch.tiles.private_names import disable_current_modes, pytree

__all__ = ["KnownValues"]

_MAKES = {
    torch.tensor,
    torch.arange,
    torch.ones,
    torch.zeros,
    torch.full,
    torch.eye,
    torch.linspace,
}
_Tensor: Any = torch.Tensor
_LIKE = {torch.ones_like: 1, torch.zeros_like: 0, _Tensor.new_ones: 1, _Tensor.new_zeros: 0}
_NUMBERS: Any = {
    _Tensor.item: lambda x: x, _Tensor.__int__: int, _Tensor.__index__: int,
    _Tensor.__float__: float, _Tensor.__bool__: bool,
}  # fmt: skip
_READS = (_Tensor.__int__, _Tensor.__index__, _Tensor.__invert__)
_MOST = 1 << 24  # elements of a tensor that is computed


class KnownValues(TorchFunctionMode):
    """Computes values of such tensors when forward asks for them while the mode is active."""

    def __init__(self) -> None:
        super().__init__()
        # The function and arguments by the identity of the result, which is kept, too.
        self._made: dict[int, tuple[Any, Any, Any, Any]] = {}
        self._values: dict[int, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one of torch's functions."""
        kwargs = kwargs or {}
        try:
            result = func(*args, **kwargs)
        except Exception as error:  # torch has several kinds for values that are not there
            with torch._C.DisableTorchFunction():
                if not any(map(self._is_number, (*args, *kwargs.values()))):
                    raise
                given = pytree.tree_map_only(torch.Tensor, self._number, (args, kwargs))
            if func in _NUMBERS:
                return _NUMBERS[func](*given[0])
            try:
                result = func(*given[0], **given[1])
            except Exception:
                raise error from None
        with torch._C.DisableTorchFunction():  # other modes notice what is done with a tensor
            self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note how a tensor was made, if only numbers went into it."""
        if _writes(func, args, kwargs):
            self._made.clear()  # the tensor may be a view of any other
            self._values.clear()
            return
        if not isinstance(result, torch.Tensor) or not all(type(n) is int for n in result.shape):
            return
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        if func in _LIKE:
            self._made[id(result)] = result, torch.full, (tuple(result.shape), _LIKE[func]), {}
        elif tensors or func in _MAKES:
            plain = not any(isinstance(x, (torch.SymInt, torch.SymFloat)) for x in leaves)
            if plain and all(id(x) in self._made for x in tensors) and _is_determined(func):
                self._made[id(result)] = result, func, args, kwargs

    def _is_number(self, value: Any) -> bool:
        return id(value) in self._made and value.ndim == 0

    def _number(self, tensor: Any) -> Any:
        if not self._is_number(tensor):
            return tensor
        with disable_current_modes():
            value = self._value(tensor)
            return tensor if value is None else value.item()

    def _value(self, tensor: Any) -> Optional[Any]:
        """The value of a tensor; None if it is too large to compute."""
        if tensor.numel() > _MOST:
            return None
        if id(tensor) not in self._values:
            result, func, args, kwargs = self._made[id(tensor)]
            own = {k: v for k, v in kwargs.items() if k != "device"}
            given = pytree.tree_map_only(torch.Tensor, self._value, (args, own))
            value = func(*given[0], **given[1])
            self._values[id(tensor)] = value.to("cpu", result.dtype)
        return self._values[id(tensor)]


def _writes(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a function may write to a tensor that it is given."""
    name = func.__name__
    if name in ("__setitem__", "__set__") or (name[:3] == "__i" and func not in _READS):
        return True
    in_place = getattr(func, "__module__", "") == "torch.nn.functional" and any(
        x is True for x in args
    )
    return (
        in_place
        or "out" in kwargs
        or bool(kwargs.get("inplace"))
        or name[-2:-1] != "_" == name[-1:]
    )


def _is_determined(func: Any) -> bool:
    """Whether a function computes its result of its arguments alone."""
    name = func.__name__
    return not draws(func) and (name in ("__getitem__", "new_tensor") or bool(overloads(name)))
