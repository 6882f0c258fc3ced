"""Decomposes operators that workers could not share before a module is planned.

A mean divides by the number of elements, and a batch norm needs statistics of the whole batch;
written as sums, workers can share both. Everything else is planned as torch runs it: where torch's
compiler takes apart what tofu describes, such as an interpolation, that is withheld.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import torch

import tofu.torch.tiles.cut_lines  # noqa: F401 registers operators
from tofu.lang.description import registered
from tofu.torch.tiles.private_names import DispatchKey, get_decompositions

__all__ = ["as_described", "table"]

aten: Any = torch.ops.aten
Tensor = Any  # torch.Tensor, whose methods are untyped


def table() -> dict[Any, Callable[..., Any]]:
    """Returns operator -> decomposition."""
    return {**get_decompositions(_TORCHS), **_OURS}


@contextlib.contextmanager
def as_described() -> Iterator[None]:
    """Withhold what torch has in Python in place of an operator that tofu describes."""
    withheld = []
    for operator in _described():
        own = operator.py_kernels
        kernels = {key: own.pop(key) for key in _IN_PYTHON if key in own}
        if kernels:
            operator._dispatch_cache.clear()
            withheld.append((operator, kernels))
    try:
        yield
    finally:
        for operator, kernels in withheld:
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()


def _described() -> Iterator[Any]:
    """All overloads of the operators that tofu describes."""
    for name in {each.split(".")[1] for each in registered() if each.startswith("aten.")}:
        packet = getattr(aten, name, None)
        for overload in () if packet is None else packet.overloads():
            yield getattr(packet, overload)


_IN_PYTHON = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


# torch's own decompositions, into sums, element-wise operators, and tensors that are made from
# their shape alone: a rank would fetch the tensor whose type and device they take.
_TORCHS = (
    aten.nll_loss_forward, aten.nll_loss2d_forward, aten.mse_loss, aten.mse_loss_backward,
    aten.smooth_l1_loss, aten.smooth_l1_loss_backward, aten.huber_loss, aten.huber_loss_backward,
    aten.binary_cross_entropy, aten.binary_cross_entropy_backward, aten.soft_margin_loss,
    aten.native_batch_norm_backward, aten.glu, aten.glu_backward,
    aten.linalg_vector_norm, aten.log_sigmoid_forward, aten.log_sigmoid_backward,
    aten.binary_cross_entropy_with_logits, aten.rsub, aten.addcmul, aten.addcdiv,
    aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty,
    aten.trace, aten.renorm, aten.soft_margin_loss_backward, aten.block_diag,
    aten._chunk_cat, aten.squeeze_copy.default, aten._unsafe_masked_index,
    aten._unsafe_masked_index_put_accumulate,
)  # fmt: skip


def _axes(data: Tensor, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(data.ndim))
    given = [dim] if isinstance(dim, int) else list(dim)
    return [d % max(data.ndim, 1) for d in given]


def _mean(
    data: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Optional[torch.dtype] = None
) -> Tensor:
    axes = _axes(data, dim)
    count = math.prod(data.shape[d] for d in axes)
    return aten.sum.dim_IntList(data, axes, keepdim, dtype=dtype) / count


def _var_mean(
    data: Tensor, dim: Any = None, *, correction: Optional[float] = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    axes = _axes(data, dim)
    count = math.prod(data.shape[d] for d in axes)
    rest = count - (1 if correction is None else correction)
    mean = _mean(data, axes, True)
    centred = data - mean
    total = aten.sum.dim_IntList(centred * centred, axes, keepdim)
    if not keepdim:
        mean = aten.view(mean, total.shape)
    return total / max(rest, 0), mean


def _var(data: Tensor, dim: Any = None, **options: Any) -> Tensor:
    return _var_mean(data, dim, **options)[0]


def _std(data: Tensor, dim: Any = None, **options: Any) -> Tensor:
    return aten.sqrt(_var(data, dim, **options))


def _distance(data: Tensor, other: Tensor, p: float = 2) -> Tensor:
    return aten.linalg_vector_norm(aten.sub(data, other), p)


def _empty(data: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor without values; strides of another order stay, for views by strides."""
    if [*stride] != [math.prod(size[d + 1 :]) for d in range(len(size))]:
        return NotImplemented
    return aten.new_empty(data, size, **options)


def _squeeze(data: Tensor) -> Tensor:
    return aten.view(data, [size for size in data.shape if size != 1])


def _per_channel(values: Tensor, ndim: int) -> Tensor:
    return aten.view(values, [1, -1, *[1] * (ndim - 2)])


def _batch_norm(
    data: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    running_mean: Optional[Tensor],
    running_var: Optional[Tensor],
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Output, mean, inverse deviation, and new running statistics."""
    ndim = data.ndim
    new_mean, new_var = running_mean, running_var
    if training:
        axes = [0, *range(2, ndim)]
        count = data.numel() // data.shape[1]
        mean = aten.sum.dim_IntList(data, axes, False) / count
        centred = data - _per_channel(mean, ndim)
        variance = aten.sum.dim_IntList(centred * centred, axes, False) / count
        if running_mean is not None and running_var is not None:
            new_mean = momentum * mean + (1 - momentum) * running_mean
            unbiased = variance * (count / max(count - 1, 1))
            new_var = momentum * unbiased + (1 - momentum) * running_var
    else:
        assert running_mean is not None and running_var is not None
        mean, variance = running_mean, running_var
        centred = data - _per_channel(mean, ndim)
    rstd = aten.rsqrt(variance + eps)
    out = centred * _per_channel(rstd, ndim)
    if weight is not None:
        out = out * _per_channel(weight, ndim)
    if bias is not None:
        out = out + _per_channel(bias, ndim)
    if not training:
        mean, rstd = data.new_zeros((0,)), data.new_zeros((0,))
    return out, mean, rstd, new_mean, new_var


def _batch_norm_evaluated(
    data: Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(data, weight, bias, mean, var, False, momentum, eps)[:3]


def _batch_norm_without_statistics(
    data: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(data, weight, bias, None, None, training, momentum, eps)[:3]


def _nll_loss_backward(
    grad: Tensor,
    data: Tensor,
    target: Tensor,
    weight: Optional[Tensor],
    reduction: int,
    ignored: int,
    total_weight: Tensor,
) -> Tensor:
    """Zeros but for the targets. torch's own also multiplies all classes by the gradient."""
    axis = 0 if data.ndim < 2 else 1
    if reduction == _MEAN:
        grad = grad / total_weight
    target = aten.unsqueeze(target, axis)
    counts = aten.ne(target, ignored)
    place = aten.where(counts, target, 0)
    if 0 < grad.ndim < data.ndim:  # a gradient for each sample
        grad = aten.unsqueeze(grad, axis)
    value = aten.where(counts, -grad, 0.0)
    if weight is not None:
        value = value * aten.view(aten.index(weight, [aten.view(place, [-1])]), place.shape)
    return torch.ops.tofu.scatter_add(aten.zeros_like(data), place, value, axis, None)


def _log_sum_exp(data: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    if not data.ndim:
        return NotImplemented
    axes = _axes(data, dim)
    logs = torch.ops.tofu.log_sum_exp(data, axes).to(data.dtype)
    kept = [size for d, size in enumerate(data.shape) if d not in axes]
    return logs if keepdim else aten.view(logs, kept)


def _log_softmax(data: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """The data less the logarithms of their sums, which ranks that cut the dimension share."""
    if not data.ndim:
        return NotImplemented
    logs = torch.ops.tofu.log_sum_exp(data, _axes(data, dim))
    if logs.dtype == data.dtype or half_to_float:
        return aten.sub(data, logs)
    return torch.ops.tofu.difference(data, logs)


def _log_softmax_backward(
    grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    if not output.ndim:
        return NotImplemented
    is_half = grad.dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if is_half else None
    total = aten.sum.dim_IntList(grad, _axes(grad, dim), True, dtype=dtype)
    return torch.ops.tofu.log_softmax_backward(grad, output, total).to(input_dtype)


def _gather(data: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    return torch.ops.tofu.gather(data, index, dim, None) if data.ndim else NotImplemented


def _scatter_add(data: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    sizes = [*data.shape]
    if not data.ndim or index.shape != source.shape:
        return NotImplemented
    sizes[dim] = index.shape[dim]
    if sizes != [*index.shape]:
        return NotImplemented
    return torch.ops.tofu.scatter_add(data, index, source, dim, None)


def _convolution_backward(
    grad: Tensor, data: Tensor, weight: Tensor, _: Any, *settings: Any
) -> Any:
    """Each gradient of few images by itself, so that workers can share space.

    Not with groups or transposed. Gradients of many images stay one call, which fetches what both
    read once: over 8 workers, ResNet-50's step for 32 images fetches a tenth less so.
    """
    *window, transposed, padding, groups, wanted = settings
    if (
        len(grad) >= _MANY_IMAGES
        or groups > 1
        or transposed
        or wanted in ([True, False, False], [False, True, False])
    ):
        return NotImplemented
    found: list[Optional[Tensor]] = [None, None, None]
    for k in (0, 1):
        if wanted[k]:
            alone = [each == k for each in range(3)]
            found[k] = aten.convolution_backward(
                grad, data, weight, None, *window, transposed, padding, groups, alone
            )[k]
    if wanted[2]:
        found[2] = aten.sum.dim_IntList(grad, [0, *range(2, grad.ndim)])
    return tuple(found)


_MEAN = 1  # of torch's numbers of reductions
_MANY_IMAGES = 8  # enough for workers to share them
_OURS: dict[Any, Callable[..., Any]] = {
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
    aten.std.correction: _std,
    aten.dist.default: _distance,
    aten.new_empty_strided.default: _empty,
    aten.squeeze.default: _squeeze,
    aten.logsumexp.default: _log_sum_exp,
    aten._log_softmax.default: _log_softmax,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
    aten.gather.default: _gather,
    aten.scatter_add.default: _scatter_add,
    aten.convolution_backward.default: _convolution_backward,
    aten.nll_loss_backward.default: _nll_loss_backward,
    aten.nll_loss2d_backward.default: _nll_loss_backward,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_evaluated,
    aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
}
