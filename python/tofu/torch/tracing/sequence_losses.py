"""Connectionist temporal classification, whose labels' lengths are values of a tensor.

torch's operator keeps a tensor whose size depends on these lengths, and Hugging Face's models of
speech select the labels that are no padding, whose number depends on values, too. A trace has no
values, so here one operator takes all labels with a mask, and makes the losses of the samples and
their gradients at once. Workers can share the samples.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["SequenceLosses"]

Tensor = Any  # torch.Tensor, whose methods are untyped
_SCHEMA = (
    "(Tensor logs, Tensor labels, Tensor kept, Tensor steps, Tensor counts, int blank, "
    "bool zero_infinity) -> (Tensor, Tensor)"
)


def _ctc_loss(
    logs: Tensor, labels: Tensor, kept: Tensor, steps: Tensor, counts: Tensor, *options: Any
) -> tuple[Tensor, Tensor]:
    """The losses (sample) of logs (step, sample, class), and their gradients, as the logs."""
    given = logs, labels[kept], steps, counts
    losses, alpha = torch.ops.aten._ctc_loss(*given, *options)
    grad = torch.ops.aten._ctc_loss_backward(
        torch.ones_like(losses), *given, losses, alpha, *options
    )
    return losses, grad


def _ctc_loss_shape(logs: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return logs.new_empty(logs.shape[1:2]), torch.empty_like(logs)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, losses: Tensor, _: Any) -> Any:
    (grad,) = ctx.saved_tensors
    return (grad * losses[None, :, None], *(None,) * 6)


torch.library.custom_op("tofu::ctc_loss", _ctc_loss, mutates_args=(), schema=_SCHEMA)
torch.library.register_fake("tofu::ctc_loss", _ctc_loss_shape)
torch.library.register_autograd("tofu::ctc_loss", _gradients, setup_context=_keep)


@dataclasses.dataclass
class _Selected:
    """Stands for the elements that a mask selects from labels; only a loss may take it."""

    labels: Tensor
    kept: Tensor
    error: Exception

    def __getattr__(self, name: str) -> Any:
        raise self.error


def _loss(
    log_probs: Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Optional[Tensor]:
    """``functional.ctc_loss`` of samples; None if its labels are in one line."""
    if isinstance(targets, _Selected):
        labels, kept = targets.labels, targets.kept
    elif log_probs.ndim == 3 and targets.ndim == 2:
        counts = torch.as_tensor(target_lengths, device=targets.device)
        places = torch.arange(targets.shape[1], device=targets.device)
        labels, kept = targets, places < counts[:, None]
    else:
        return None
    steps, counts = (
        torch.as_tensor(each, device=labels.device) for each in (input_lengths, target_lengths)
    )
    losses = torch.ops.tofu.ctc_loss(log_probs, labels, kept, steps, counts, blank, zero_infinity)[
        0
    ]
    if zero_infinity:
        losses = torch.where(losses == float("inf"), torch.zeros_like(losses), losses)
    if reduction == "mean":
        return (losses / counts.clamp_min(1).to(losses.dtype)).mean()
    return losses.sum() if reduction == "sum" else losses


class SequenceLosses(TorchFunctionMode):
    """Calls the operator in place of torch's while the mode is active."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one of torch's functions."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.ctc_loss:
            loss = _loss(*args, **kwargs)
            if loss is not None:
                return loss
        try:
            return func(*args, **kwargs)
        except Exception as error:  # of a size that depends on values
            labels, kept = (*args, None)[:2]
            if func in _SELECTS and _are_labels(labels, kept):
                return _Selected(labels, kept, error)
            raise


_SELECTS: Any = (torch.Tensor.masked_select, torch.masked_select, torch.Tensor.__getitem__)


def _are_labels(labels: Any, kept: Any) -> bool:
    """Whether a mask selects from a table of integers."""
    mask = isinstance(kept, torch.Tensor) and kept.dtype == torch.bool
    return mask and labels.ndim == 2 and labels.shape == kept.shape and not _is_real(labels)


def _is_real(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())
