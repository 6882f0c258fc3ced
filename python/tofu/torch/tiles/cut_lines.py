"""Operators along a dimension that ranks may cut: log-sum-exp, and elements that an index chooses.

torch's own operators need the whole dimension: a part of it has another sum, and another number for
each of its elements. These give what parts have in common: logarithms of sums combine, and a part
that is told where it begins finds the elements that are its own. So a vocabulary may be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

__all__ = ["log_softmax_backward_", "scatter_add_"]

Tensor = Any  # torch.Tensor, whose methods are untyped
_HALVES = (torch.float16, torch.bfloat16)
_CPU_BLOCK, _GPU_BLOCK = 1 << 18, 1 << 24  # elements whose exponentials exist at a time


def _rows(data: Tensor, reduced: Sequence[int]) -> tuple[int, int]:
    """A dimension that is not reduced, or 0, and how many of its elements are a block."""
    axis = next((d for d in range(data.ndim) if d not in reduced), 0)
    most = _CPU_BLOCK if data.device.type == "cpu" else _GPU_BLOCK
    rows = max(most * data.shape[axis] // max(data.numel(), 1), 1)
    return axis, data.shape[axis] if axis in reduced else rows


# --- Sums of exponentials -----------------------------------------------------------------------


def _log_sum_exp(data: Tensor, dim: Sequence[int]) -> Tensor:
    """Logarithms of the sums of exponentials along some dimensions, which stay with size 1.

    In single precision or better, as other parts' sums are added to them.
    """
    axis, rows = _rows(data, dim)
    precise = _precise(data.dtype)
    blocks = (block.to(precise) for block in data.split(rows, axis))
    return torch.cat([torch.logsumexp(block, dim, keepdim=True) for block in blocks], axis)


def _log_sum_exp_shape(data: Tensor, dim: Sequence[int]) -> Tensor:
    shape = [1 if d in dim else size for d, size in enumerate(data.shape)]
    return data.new_empty(shape, dtype=_precise(data.dtype))


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALVES else dtype


def _difference(data: Tensor, logs: Tensor) -> Tensor:
    """Data of half precision less numbers of single precision, rounded once."""
    return torch.sub(data, logs, out=torch.empty_like(data))


def _alike(data: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(data)


def _log_softmax_backward(grad: Tensor, output: Tensor, total: Tensor) -> Tensor:
    """The gradient of the data, of the sums `total` of `grad` along the softmax's dimension."""
    return log_softmax_backward_(grad.clone(), output, total)


def log_softmax_backward_(grad: Tensor, output: Tensor, total: Tensor) -> Tensor:
    """Compute the gradient of the data in place of the output's; no more than a block is held."""
    reduced = [d for d, size in enumerate(total.shape) if size == 1]
    axis, rows = _rows(grad, reduced)
    sums = total.split(rows if axis not in reduced else 1, axis)
    for mine, out, each in zip(grad.split(rows, axis), output.split(rows, axis), sums):
        mine.sub_(out.to(each.dtype, copy=True).exp_().mul_(each))
    return grad


# --- Elements that an index chooses -------------------------------------------------------------


def _gather(data: Tensor, index: Tensor, dim: int, begin: Optional[int]) -> Tensor:
    """Elements along a dimension; zero for those of other parts.

    Args:
        data: the tensor, or a part of it along `dim`.
        index: the place of each element in the whole dimension.
        dim: the dimension.
        begin: the place of the part's first element; None: the data are whole.
    """
    if begin is None:
        return data.gather(dim, index)
    place, is_own = _own_places(index, begin, data.shape[dim])
    return data.gather(dim, place).masked_fill_(~is_own, 0)


def _gather_shape(data: Tensor, index: Tensor, dim: int, begin: Optional[int]) -> Tensor:
    return data.new_empty(index.shape)


def _scatter_add(
    data: Tensor, index: Tensor, source: Tensor, dim: int, begin: Optional[int]
) -> Tensor:
    """The data, with elements of `source` added at places along a dimension, as `_gather` has."""
    return scatter_add_(data.clone(), index, source, dim, begin)


def scatter_add_(
    data: Tensor, index: Tensor, source: Tensor, dim: int, begin: Optional[int]
) -> Tensor:
    """Add elements of `source` to the data, in place; see ``tofu::scatter_add``."""
    if begin is not None:
        index, is_own = _own_places(index, begin, data.shape[dim])
        source = source.masked_fill(~is_own, 0)
    return data.scatter_add_(dim, index, source)


def _own_places(index: Tensor, begin: int, size: int) -> tuple[Tensor, Tensor]:
    """The places within a part, and which of them it has."""
    place = index - begin
    return place.clamp(0, size - 1), (place >= 0) & (place < size)


for _name, _function, _shape, _schema in (
    ("log_sum_exp", _log_sum_exp, _log_sum_exp_shape, "(Tensor data, int[] dim) -> Tensor"),
    ("difference", _difference, _alike, "(Tensor data, Tensor logs) -> Tensor"),
    (
        *("log_softmax_backward", _log_softmax_backward, _alike),
        "(Tensor grad, Tensor output, Tensor total) -> Tensor",
    ),
    (
        *("gather", _gather, _gather_shape),
        "(Tensor data, Tensor index, int dim, int? begin) -> Tensor",
    ),
    (
        *("scatter_add", _scatter_add, _alike),
        "(Tensor data, Tensor index, Tensor source, int dim, int? begin) -> Tensor",
    ),
):
    torch.library.custom_op(f"tofu::{_name}", _function, mutates_args=(), schema=_schema)
    torch.library.register_fake(f"tofu::{_name}", _shape)
