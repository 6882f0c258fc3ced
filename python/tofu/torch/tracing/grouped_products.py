"""Products of the rows of each group with the group's own matrix, as experts compute them.

torch's operator, and Hugging Face's, give the groups by where each one ends, so that a group's
rows depend on the group before it. Here each group says where it begins and ends: workers can share
the groups.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["GroupedProducts"]

Tensor = Any  # torch.Tensor, whose methods are untyped
_GROUPED = "(Tensor data, Tensor weight, Tensor starts, Tensor ends) -> Tensor"
_WEIGHT = "(Tensor data, Tensor grad, Tensor starts, Tensor ends) -> Tensor"


def _grouped_mm(data: Tensor, weight: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Rows (row, in) times the matrices (group, in, out) of their groups: (row, out).

    Rows without a group, or whose group is on another worker, are zero.
    """
    result = data.new_zeros((len(data), weight.shape[2]))
    for each, low, high in zip(weight, starts.tolist(), ends.tolist()):
        if low < high:
            torch.mm(data[low:high], each, out=result[low:high])
    return result


def _grouped_mm_shape(data: Tensor, weight: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    return data.new_empty((len(data), weight.shape[2]))


def _grouped_mm_weight(data: Tensor, grad: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """The gradient (group, in, out) of the matrices: of data (row, in) and grad (row, out)."""
    result = data.new_zeros((len(starts), data.shape[1], grad.shape[1]))
    for each, low, high in zip(result, starts.tolist(), ends.tolist()):
        if low < high:
            torch.mm(data[low:high].T, grad[low:high], out=each)
    return result


def _grouped_mm_weight_shape(data: Tensor, grad: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    return data.new_empty((len(starts), data.shape[1], grad.shape[1]))


for _name, _function, _shape, _schema in (
    ("tofu::grouped_mm", _grouped_mm, _grouped_mm_shape, _GROUPED),
    ("tofu::grouped_mm_weight", _grouped_mm_weight, _grouped_mm_weight_shape, _WEIGHT),
):
    torch.library.custom_op(_name, _function, mutates_args=(), schema=_schema)
    torch.library.register_fake(_name, _shape)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _grouped_mm_gradients(ctx: Any, grad: Tensor) -> Any:
    data, weight, *places = ctx.saved_tensors
    by_data = torch.ops.tofu.grouped_mm(grad, weight.transpose(1, 2), *places)
    return by_data, torch.ops.tofu.grouped_mm_weight(data, grad, *places), None, None


def _grouped_mm_weight_gradients(ctx: Any, grad: Tensor) -> Any:
    data, other, *places = ctx.saved_tensors
    by_data = torch.ops.tofu.grouped_mm(other, grad.transpose(1, 2), *places)
    return by_data, torch.ops.tofu.grouped_mm(data, grad, *places), None, None


for _name, _gradients in (
    ("tofu::grouped_mm", _grouped_mm_gradients),
    ("tofu::grouped_mm_weight", _grouped_mm_weight_gradients),
):
    torch.library.register_autograd(_name, _gradients, setup_context=_keep)


def _starts(ends: Tensor) -> Tensor:
    first = torch.zeros(1, dtype=ends.dtype, device=ends.device)
    return torch.cat([first, ends[:-1]])


def _fallback(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """The operator of Hugging Face, with its arguments' names."""
    return torch.ops.tofu.grouped_mm(input, weight, _starts(offs), offs)


def _torchs(
    left: Tensor,
    right: Tensor,
    *,
    offs: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """The operator of torch: groups are rows, columns or terms; one side may have three axes."""
    if bias is not None:  # torch refuses it, too
        raise NotImplementedError("a grouped product with a bias")
    if offs is None:
        result = torch.bmm(left, right)
    elif left.ndim == right.ndim:
        result = torch.ops.tofu.grouped_mm_weight(left.T, right, _starts(offs), offs)
    elif right.ndim > left.ndim:
        result = _fallback(left, right, offs)
    else:
        result = _fallback(right.T, left.transpose(1, 2), offs).T
    return result.to(out_dtype or result.dtype)


class GroupedProducts(TorchFunctionMode):
    """Calls these in place of torch's operator, and of Hugging Face's, while the mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced: dict[Any, Any] = {torch._grouped_mm: _torchs}
        theirs = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
        if theirs is not None:  # the script has imported it
            self._replaced.update({theirs: _fallback, theirs.default: _fallback})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._replaced.get(func, func)(*args, **(kwargs or {}))
