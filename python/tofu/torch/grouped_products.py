"""Products of the rows of each group with the group's own matrix, as experts compute them.

torch's operator, and Hugging Face's, give the groups by where each one ends, so that a group's
rows depend on the group before it. Here each group says where it begins and ends: workers can share
the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch

__all__ = ["decompositions"]

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


def _starts(ends: Tensor) -> Tensor:
    first = torch.zeros(1, dtype=ends.dtype, device=ends.device)
    return torch.cat([first, ends[:-1]])


def _fallback(data: Tensor, weight: Tensor, ends: Tensor) -> Any:
    return torch.ops.tofu.grouped_mm(data, weight, _starts(ends), ends)


def _fallback_backward(data: Tensor, weight: Tensor, ends: Tensor, grad: Tensor) -> Any:
    starts = _starts(ends)
    return (
        torch.ops.tofu.grouped_mm(grad, weight.transpose(1, 2), starts, ends),
        torch.ops.tofu.grouped_mm_weight(data, grad, starts, ends),
    )


def _torchs(
    left: Tensor,
    right: Tensor,
    ends: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """The operator of torch: groups are rows, columns or terms; one side may have three axes."""
    if ends is None:
        result = torch.bmm(left, right)
    elif left.ndim == right.ndim:  # groups of terms, in torch's gradient of the matrices
        result = torch.ops.tofu.grouped_mm_weight(left.T, right, _starts(ends), ends)
    elif right.ndim > left.ndim:
        result = torch.ops.tofu.grouped_mm(left, right, _starts(ends), ends)
    else:
        result = torch.ops.tofu.grouped_mm(right.T, left.transpose(1, 2), _starts(ends), ends).T
    if bias is not None:  # torch refuses it, too
        raise NotImplementedError("a grouped product with a bias")
    return result.to(out_dtype or result.dtype)


_REPLACED = {
    ("aten", "_grouped_mm"): _torchs,
    ("transformers", "grouped_mm_fallback"): _fallback,
    ("transformers", "grouped_mm_fallback_backward"): _fallback_backward,
}


def decompositions() -> Mapping[Any, Any]:
    """Other operators -> these; Hugging Face's, once the script has imported them."""
    return {
        getattr(getattr(torch.ops, library), name).default: made
        for (library, name), made in _REPLACED.items()
        if hasattr(getattr(torch.ops, library), name)
    }
