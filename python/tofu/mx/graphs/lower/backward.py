"""Stateless replacements for backward operators that read their forward operator's state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape, format_shape

from .registry import AFTER, Builder, flag, number

__all__: list[str] = []


@AFTER.lowering("_backward_Dropout", reason="remembers whether the forward passed through")
def dropout(node: Node, build: Builder) -> Sequence[Entry]:
    """The head gradient times the mask, which already carries 1 / (1 - p)."""
    gradient, mask = node.inputs
    shared = build.shared.get(mask.node)
    if shared is not None:
        return [_dropped(gradient, shared[0], mask.node, build)]
    return [_times_mask(gradient, mask, mask.shape, build)]


@AFTER.lowering(
    "Dropout", reason="a mask that depends on no data can be drawn before the forward half"
)
def forward_dropout(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The data times a mask that no data decides.

    A mask of the data's shape waits for the backward pass in half precision, as zeros and ones, but
    is drawn in single precision, in which CPUs are three times as fast. MXNet's planner reuses
    memory by the number of elements. What is drawn and compared here takes one block, which is free
    only after the mask is made; the two outputs of Dropout would leave each mask a wider block.
    """
    (data,) = node.inputs
    if not build.train:
        return None
    shape, drop = Entry(node, 1).shape, number(node, "p", 0.5)
    if shape == data.shape and drop < 1:
        drawn = build.op("_random_uniform", shape=shape, dtype="float32")
        kept = build.op("_lesser_scalar", drawn, scalar=1 - drop)
        binary_mask = build.op("Cast", kept, dtype="float16", **{_core.once_attribute: True})
        build.shared[node] = [binary_mask]
        return [_dropped(data, binary_mask, node, build), binary_mask]
    ones = build.op("_ones", shape=shape, dtype=dtype_name(data.dtype))
    attrs = {key: value for key, value in node.attrs.items() if key != "axes"}
    mask = build.op("Dropout", ones, **attrs)
    mask.node.num_outputs = node.num_outputs
    return [_times_mask(data, mask, shape, build), mask]


def _dropped(data: Entry, binary_mask: Entry, node: Node, build: Builder) -> Entry:
    """The data where `binary_mask` is 1, times 1 / (1 - p) as MXNet computes it."""
    scale = np.float32(1) / (np.float32(1) - np.float32(number(node, "p", 0.5)))
    ones = build.op("Cast", binary_mask, dtype=dtype_name(data.dtype))
    return build.op("elemwise_mul", data, build.op("_mul_scalar", ones, scalar=float(scale)))


def _times_mask(data: Entry, mask: Entry, shape: Shape, build: Builder) -> Entry:
    return build.op("elemwise_mul" if data.shape == shape else "broadcast_mul", data, mask)


@AFTER.lowering("_backward_SliceChannel", reason="a legacy operator with state")
def slice_channel(node: Node, build: Builder) -> Sequence[Entry]:
    """The head gradients, concatenated."""
    pieces = list(node.inputs)
    axis = int(node.attrs.get("axis", 1)) % len(Entry(node).shape)
    if flag(node, "squeeze_axis"):
        pieces = [build.op("expand_dims", piece, axis=axis) for piece in pieces]
    if len(pieces) == 1:
        return pieces
    return [build.op("Concat", *pieces, dim=axis, num_args=len(pieces))]


@AFTER.lowering("_backward_SwapAxis", reason="a legacy operator with state")
def swap_axis(node: Node, build: Builder) -> Sequence[Entry]:
    """The head gradient with the same axes swapped."""
    attrs = {key: node.attrs.get(key) for key in ("dim1", "dim2")}
    return [build.op("SwapAxis", node.inputs[0], **attrs)]


@AFTER.lowering("_backward_Pad", reason="a legacy operator with state")
def pad(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The inner part of the head gradient. Only constant padding is lowered."""
    if node.attrs.get("mode") != "constant":
        return None
    widths = [int(each) for each in node.attrs["pad_width"].strip("()[] ,").split(",")]
    begin = tuple(widths[::2])
    end = tuple(first + dim for first, dim in zip(begin, Entry(node).shape))
    return [build.op("slice", node.inputs[0], begin=begin, end=end)]


@AFTER.lowering("_backward_SequenceMask", reason="a legacy operator with state")
def sequence_mask(node: Node, build: Builder) -> Sequence[Entry]:
    """The head gradient masked with zeros."""
    return _same_on_gradient(node, build, "SequenceMask", value="0")


@AFTER.lowering("_backward_SequenceReverse", reason="a legacy operator with state")
def sequence_reverse(node: Node, build: Builder) -> Sequence[Entry]:
    """The head gradient reversed."""
    return _same_on_gradient(node, build, "SequenceReverse")


@AFTER.lowering("_backward_MakeLoss", reason="a legacy operator with state")
def make_loss(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """A constant: MakeLoss ignores the head gradient. Not lowered if it counts valid elements."""
    out = Entry(node)
    scale = number(node, "grad_scale", 1.0)
    normalization = node.attrs.get("normalization", "null")
    if normalization == "valid":
        return None
    if normalization == "batch":
        scale /= math.prod(out.shape[:-1])  # MXNet's idea of the batch size
    value = float(np.float32(scale))  # MXNet divides in single precision
    return [build.op("_full", shape=out.shape, dtype=dtype_name(out.dtype), value=value)]


@AFTER.lowering(
    "_backward__contrib_MultiBoxPrior",
    "_backward__contrib_MultiBoxTarget",
    "_backward__contrib_MultiBoxDetection",
    reason="a legacy operator with state, whose gradient is zero",
)
def multi_box(node: Node, build: Builder) -> Sequence[Entry]:
    """Zeros."""
    return [_zeros_like(Entry(node, i), build) for i in range(node.num_outputs)]


@AFTER.lowering(
    "_zeros_without_dtype", reason="its shape and dtype depend on its readers", essential=True
)
def untyped_zeros(node: Node, build: Builder) -> Sequence[Entry]:
    """Zeros with an explicit shape and dtype."""
    return [_zeros_like(Entry(node), build)]


@AFTER.lowering(
    "_zeros", "_ones", "_full", reason="an extent of 0 depends on the readers", essential=True
)
def constant(node: Node, build: Builder) -> None:
    """The same constant with an explicit shape."""
    del build
    node.attrs["shape"] = format_shape(Entry(node).shape)
    node.attrs.pop("ctx", None)


@AFTER.lowering(
    "_backward_Embedding", reason="refuses to compute the gradient of its tokens", essential=True
)
def embedding(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """Zeros for tokens that the net computed; plain MXNet then asks for no gradient of them."""
    if 0 not in build.read:
        return None
    return [_zeros_like(Entry(node), build), Entry(node, 1)]


_UNWRITTEN = "leaves an output unwritten if another one is not read"


@AFTER.lowering("_backward_FullyConnected", reason=_UNWRITTEN, essential=True)
def fully_connected(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The bias's gradient as a sum, if the weight's gradient is not wanted."""
    by_weight, by_bias = 1, 2
    if by_bias not in build.read or by_weight in build.read:
        return None
    gradient = node.inputs[0]
    axes = tuple(range(len(gradient.shape) - 1))
    total = build.op("sum", gradient, axis=axes, keepdims=False)
    return [Entry(node), Entry(node, by_weight), total]


def _same_on_gradient(node: Node, build: Builder, op: str, **changed: str) -> Sequence[Entry]:
    attrs = {**node.attrs, **changed}
    out = build.op(op, *node.inputs, **attrs)
    return [out, *(_zeros_like(Entry(node, i), build) for i in range(1, node.num_outputs))]


def _zeros_like(entry: Entry, build: Builder) -> Entry:
    return build.zeros(entry.shape, dtype_name(entry.dtype))


@AFTER.lowering(
    "_backward_LeakyReLU", reason="writes the gradient of the data where that of the slope reads"
)
def learned_slope(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The gradient of a learned slope: a sum of head gradients times negative data.

    MXNet's operator may write the gradient of the data over the head gradient, and reads it
    again for that of the slope, which then comes out times the slope.
    """
    if node.attrs.get("act_type") != "prelu" or 1 not in build.read:
        return None
    gradient, data, slope = node.inputs[:3]
    negative = build.op("_minimum_scalar", data, scalar=0.0)
    product = build.op("elemwise_mul", gradient, negative)
    channels = () if math.prod(slope.shape) == 1 else (1,)
    summed = tuple(axis for axis in range(len(data.shape)) if axis not in channels)
    total = build.op("sum", product, axis=summed, keepdims=not channels)
    return [Entry(node), build.reshape(total, slope.shape)]
