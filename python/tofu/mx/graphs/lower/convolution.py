"""Gradients of convolutions and poolings as operators whose parts read halos.

MXNet's operator computes all gradients at once. The rows of a part are enough for its share
of the weight's gradient, which is a sum. But its share of the data's gradient needs the head
gradient of neighbouring rows. So the data's gradient becomes a separate operator, a
transposed convolution.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Optional

from tofu.boxes import cuts_evenly, idle_steps
from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape, format_shape

from .registry import AFTER, Builder, flag

__all__: list[str] = []

_SINGLE, _DOUBLE = 0, 1
_LAYOUTS = ("None", "NCW", "NCHW", "NCDHW")


def _numbers(node: Node, name: str, default: int) -> tuple[int, ...]:
    """An attribute with one number per spatial dimension."""
    value = ast.literal_eval(node.attrs.get(name, "()").replace("L", ""))
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    rank = len(ast.literal_eval(node.attrs["kernel"].replace("L", "")))
    return numbers or (default,) * rank


def _space_is_shared(node: Node, workers: int) -> bool:
    """Whether evenly cutting the batch leaves workers idle that could share a spatial dimension."""
    head, data = node.inputs[0].shape, node.inputs[1].shape
    idle, strides = idle_steps(workers, data[0]), _numbers(node, "stride", 1)
    return any(
        size % stride == 0 and cuts_evenly(min(size // stride, out), parts)
        for size, out, stride in zip(data[2:], head[2:], strides)
        for parts in idle
    )


def _is_plain(node: Node) -> bool:
    """Whether MXNet has the transposed convolution that the node needs (1x1 kernels need none)."""
    kernel, dilate = _numbers(node, "kernel", 1), _numbers(node, "dilate", 1)
    stride, pad = _numbers(node, "stride", 1), _numbers(node, "pad", 0)
    if max(kernel) == max(stride) == 1 and not any(pad):
        return False
    groups, layout = node.attrs.get("num_group", "1"), node.attrs.get("layout", "None")
    return _has_transposed(node, kernel, stride, dilate) and groups == "1" and layout in _LAYOUTS


def _has_transposed(
    node: Node, kernel: Sequence[int], stride: Sequence[int], dilate: Sequence[int]
) -> bool:
    """Whether MXNet has a correct transposed convolution of such windows on CPUs."""
    if max(dilate) == 1:
        return len(kernel) < 3 or _is_single(node)
    # In double precision its result is wrong for strides with dilation.
    return len(kernel) < 3 and (max(stride) == 1 or _is_single(node))


def _is_single(node: Node) -> bool:
    return node.inputs[1].dtype == _SINGLE


@AFTER.lowering(
    "_backward_Convolution",
    reason="computes the data's gradient and sums over space at once",
    where=_space_is_shared,
)
def backward_convolution(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The data's gradient by a transposed convolution, the others by the operator itself."""
    gradient, data, weight = node.inputs[:3]
    if data.dtype not in (_SINGLE, _DOUBLE) or not _is_plain(node):
        return None
    # The same operator; only its other gradients are read (tdl/convolution.py).
    attrs = {**node.attrs, "__tofu_gradients__": "parameters"}
    others = build.op(node.op, *node.inputs, **attrs).node
    others.num_outputs = node.num_outputs
    by_data = _transposed(node, build, gradient, weight, data.shape)
    return [by_data, *(Entry(others, i) for i in range(1, node.num_outputs))]


def _transposed(
    node: Node, build: Builder, gradient: Entry, weight: Entry, shape: Shape, groups: int = 1
) -> Entry:
    """The transposed convolution of the head gradient, in the shape of the node's data."""
    kernel, stride = _numbers(node, "kernel", 1), _numbers(node, "stride", 1)
    dilate, pad = _numbers(node, "dilate", 1), _numbers(node, "pad", 0)
    reached = [
        s * (size - 1) + d * (k - 1) + 1 - 2 * p
        for size, k, s, d, p in zip(gradient.shape[2:], kernel, stride, dilate, pad)
    ]
    return build.op(
        "Deconvolution",
        gradient,
        weight,
        kernel=kernel,
        stride=stride,
        dilate=dilate,
        pad=pad,
        adj=tuple(size - end for size, end in zip(shape[2:], reached)),
        num_filter=shape[1],
        num_group=groups,
        no_bias=True,
    )


@AFTER.lowering("_backward_Pooling", reason="it reads no workspace but oneDNN's", essential=True)
def backward_pooling(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The operator without the workspace: it searches the data for the maximum again.

    For means and sums with overlapping windows, if workers should share space: a transposed
    convolution of each channel.
    """
    if len(node.inputs) == 5:
        node.inputs[4] = build.zeros(node.inputs[4].shape, dtype_name(node.inputs[4].dtype))
        _cast_again(node, build)
        return None
    gradient, data = node.inputs[:2]
    kind, kernel = node.attrs.get("pool_type", "max"), node.attrs.get("kernel")
    if kind not in ("avg", "sum") or kernel is None or flag(node, "global_pool"):
        return None
    sizes, pad = _numbers(node, "kernel", 1), _numbers(node, "pad", 0)
    whole_windows = node.attrs.get("pooling_convention", "valid") == "valid" and (
        kind == "sum" or flag(node, "count_include_pad", default=True) or not any(pad)
    )
    strides = _numbers(node, "stride", 1)
    plain = data.dtype in (_SINGLE, _DOUBLE) and node.attrs.get("layout", "None") in _LAYOUTS
    plain = plain and _has_transposed(node, sizes, strides, (1,))
    overlap = sizes != strides or any(pad)
    if not (whole_windows and plain and overlap and _space_is_shared(node, build.workers)):
        return None
    channels, value = data.shape[1], 1.0 if kind == "sum" else 1.0 / math.prod(sizes)
    shape, dtype = (channels, 1, *sizes), dtype_name(data.dtype)
    weight = build.op("_full", shape=shape, dtype=dtype, value=value)
    return [_transposed(node, build, gradient, weight, data.shape, channels)]


def _cast_again(node: Node, build: Builder) -> None:
    """Read the forward operator's tensors in single precision, and cast them again.

    Keeping them in double precision until the backward pass would take twice the memory, and
    the single-precision tensors are often kept anyway. Nothing is lost: the maximum of
    single-precision numbers is one of them.
    """
    data, out = node.inputs[2].node, node.inputs[3].node
    if data.op == "Cast" and data.inputs[0].dtype == _SINGLE:
        node.inputs[2] = build.op("Cast", *data.inputs, **data.attrs)
        if out in build.shared:
            node.inputs[3] = build.op("Cast", *build.shared[out], **data.attrs)


@AFTER.lowering("Cast", reason="the gradient of a maximum reads its result after the cast")
def cast(node: Node, build: Builder) -> None:
    """Unchanged; recorded for the lowering of _backward_Pooling."""
    if node.inputs[0].node.op == "Pooling" and Entry(node).dtype == _SINGLE:
        build.shared[node.inputs[0].node] = [Entry(node)]


@AFTER.lowering(
    "_backward_Deconvolution",
    reason="on CPUs it writes through an array that has no memory yet",
    essential=True,
)
def backward_deconvolution(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """A convolution of the head gradient, the weight's gradient of that convolution, and a sum.

    These are the gradients of data, weight and bias. The convolution of a tensor of the
    output's shape with the same weight has the data's shape, and the transposed convolution
    is its gradient with respect to its data. So its gradient with respect to the weight, with
    head gradient and data swapped, is also that of the transposed convolution.
    """
    if node.attrs.get("layout", "None") not in _LAYOUTS:
        return None
    gradient, data, weight = node.inputs[:3]
    attrs = {key: node.attrs.get(key) for key in _SHARED}
    pad = format_shape(_padding(node, data.shape))
    attrs.update(pad=pad, num_filter=str(data.shape[1]), no_bias="True")
    by_data = build.op("Convolution", gradient, weight, **attrs)
    # With groups, one description covers all gradients.
    read = "parameters" if node.attrs.get("num_group", "1") == "1" else None
    inputs = data, gradient, weight
    others = build.op("_backward_Convolution", *inputs, **attrs, __tofu_gradients__=read).node
    others.num_outputs = 2
    # MXNet infers shapes from the first dependency; the second is the original forward operator.
    others.control_deps.insert(0, by_data.node)
    gradients = [by_data, Entry(others, 1)]
    if not flag(node, "no_bias", default=True):
        axes = (0, *range(2, len(gradient.shape)))
        gradients.append(build.op("sum", gradient, axis=axes, keepdims=False))
    return gradients


_SHARED = (
    *("kernel", "stride", "dilate", "num_group", "layout"),
    *("workspace", "cudnn_tune", "cudnn_off"),
)


def _padding(node: Node, data: Shape) -> tuple[int, ...]:
    """Elements that a transposed convolution crops before its output, per spatial dimension."""
    kernel, stride = _numbers(node, "kernel", 1), _numbers(node, "stride", 1)
    dilate, targets = _numbers(node, "dilate", 1), _numbers(node, "target_shape", 0)
    if not any(targets):
        return _numbers(node, "pad", 0)
    # A target shape replaces padding; an odd element is cropped at the front.
    full = [s * (n - 1) + d * (k - 1) + 1 for s, n, d, k in zip(stride, data[2:], dilate, kernel)]
    return tuple((size - target + 1) // 2 for size, target in zip(full, targets))
