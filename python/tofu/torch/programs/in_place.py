"""Lets calls write over a tile that they read last, so that a step allocates less memory.

A tile may be written over if the call that made it allocated it, no other step of this rank reads
it as a view, sends it or keeps it, and the result has its shape and type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from tofu.torch.graphs.calls import is_input
from tofu.torch.tiles.cut_lines import log_softmax_backward_, scatter_add_

__all__ = ["in_place"]

aten: Any = torch.ops.aten
tofu: Any = torch.ops.tofu

# Operators that may write into their first argument.
_VARIANTS = {
    aten.scatter.src: aten.scatter_.src, aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    tofu.scatter_add.default: scatter_add_,
    tofu.log_softmax_backward.default: log_softmax_backward_,
    aten.index_put.default: aten.index_put_.default,
    aten.add.Tensor: aten.add_.Tensor, aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor, aten.div.Tensor: aten.div_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar, aten.div.Scalar: aten.div_.Scalar,
    aten.add.Scalar: aten.add_.Scalar, aten.neg.default: aten.neg_.default,
    aten.relu.default: aten.relu_.default, aten.exp.default: aten.exp_.default,
    aten.sqrt.default: aten.sqrt_.default, aten.rsqrt.default: aten.rsqrt_.default,
}  # fmt: skip
# Other operators whose result always has its own memory.
_ALLOCATE = {
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.zeros_like.default,
    aten.matmul.default, aten.linear.default, aten.tensordot.default,
    aten.full.default, aten.zeros.default, aten.convolution.default, aten.sum.dim_IntList,
    aten.pow.Tensor_Scalar, aten.where.self, aten.silu.default, aten.silu_backward.default,
    aten.gelu.default, aten.gelu_backward.default, aten.threshold_backward.default,
    aten._softmax.default, aten._softmax_backward_data.default, aten.native_layer_norm.default,
    tofu.log_sum_exp.default, tofu.difference.default, tofu.gather.default,
}  # fmt: skip


def in_place(calls: Sequence[Any], steps: Sequence[Any], form: Callable[[Any], Any]) -> list[Any]:
    """Replaces calls by those that write over their first argument.

    Args:
        calls: the calls among the steps.
        steps: calls and exchanges of a pass in order, with what each drops.
        form: returns the shape and the type of a tile.
    """
    own = {id(call) for call in calls}
    fresh: set[Any] = set()  # tiles that share their memory with no other tensor
    done = []
    for step in steps:
        allocates = id(step) in own and step.function in _FRESH
        if allocates:
            tile = _overwritten(step, form)
            if tile in fresh:
                step = dataclasses.replace(step, function=_VARIANTS[step.function])
            fresh -= set(step.drops)
            fresh |= {made for made, _ in step.makes}
        else:
            fresh -= set(step.reads)
        done.append(step)
    return done


def _overwritten(call: Any, form: Callable[[Any], Any]) -> Optional[Any]:
    """The tile that a call may write its result into, if nothing else has the tile's memory."""
    first: Any = call.positional[0] if call.positional else None
    if call.function not in _VARIANTS or call.seed is not None or len(call.makes) != 1:
        return None
    if not is_input(first) or call.reads.count(call.reads[first.number]) > 1:
        return None
    tile, ((made, _),) = call.reads[first.number], call.makes
    return tile if tile in call.drops and form(tile) == form(made) else None


_FRESH = {*_VARIANTS, *_ALLOCATE}
