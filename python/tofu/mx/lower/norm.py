"""Normalizations as sums, so that a split batch or image means the same as a whole one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tofu.mx.infer import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape

from .registry import BEFORE, Builder, flag, number

__all__: list[str] = []

_FLOAT16 = 2


@BEFORE.lowering(
    "BatchNorm",
    "_contrib_SyncBatchNorm",
    reason="its statistics are sums over batch and space, which a tile sees only part of",
)
def batch_norm(node: Node, build: Builder) -> Sequence[Entry]:
    """MXNet's BatchNorm, with the running statistics as new values of its states."""
    out, mean, variance, inverse_std = _batch_norm(node, build)
    # MXNet passes no gradient back from these two; SyncBatchNorm's is the variance itself.
    spread = inverse_std if node.op == "BatchNorm" else variance
    return [out, build.op("BlockGrad", mean), build.op("BlockGrad", spread)]


@BEFORE.lowering(
    "_contrib_BatchNormWithReLU",
    reason="its statistics are sums over batch and space, which a tile sees only part of",
)
def batch_norm_with_relu(node: Node, build: Builder) -> Sequence[Entry]:
    """BatchNorm followed by relu; the workspace output is nobody's."""
    out, mean, _, inverse_std = _batch_norm(node, build)
    return [
        build.op("relu", out),
        build.op("BlockGrad", mean),
        build.op("BlockGrad", inverse_std),
    ]


@BEFORE.lowering(
    "InstanceNorm", reason="its backward operator needs the state of the forward operator"
)
def instance_norm(node: Node, build: Builder) -> Sequence[Entry]:
    """InstanceNorm over everything behind the first two dimensions."""
    data, gamma, beta = node.inputs
    shape = data.shape
    axes = tuple(range(2, len(shape)))
    per_channel = (1, shape[1]) + (1,) * len(axes)
    mean = _mean(build, data, axes, shape)
    centered = build.op("broadcast_sub", data, mean)
    variance = _mean(build, build.op("square", centered), axes, shape)
    inverse_std = _inverse_std(build, variance, number(node, "eps", 1e-3))
    normal = build.op("broadcast_mul", centered, inverse_std)
    scaled = build.op("broadcast_mul", normal, build.reshape(gamma, per_channel))
    out = build.op("broadcast_add", scaled, build.reshape(beta, per_channel))
    return [out, mean, variance]


@BEFORE.lowering(
    "L2Normalization", reason="its backward operator needs the state of the forward operator"
)
def l2_normalization(node: Node, build: Builder) -> Sequence[Entry]:
    """L2Normalization over the instance, the channels or the space."""
    (data,) = node.inputs
    rank = len(data.shape)
    axes = {
        "instance": tuple(range(1, rank)),
        "channel": (1,),
        "spatial": tuple(range(2, rank)),
    }[node.attrs.get("mode", "instance")]
    squares = build.op("sum", build.op("square", data), axis=axes, keepdims=True)
    norm = build.op(
        "sqrt",
        build.op("_plus_scalar", squares, scalar=number(node, "eps", float(np.float32(1e-10)))),
    )
    return [build.op("broadcast_div", data, norm), norm]


def _batch_norm(node: Node, build: Builder) -> tuple[Entry, Entry, Entry, Entry]:
    """Output, mean, variance and inverse standard deviation, the last three a vector."""
    data, gamma, beta, running_mean, running_variance = node.inputs
    shape = data.shape
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    if node.op == "_contrib_SyncBatchNorm":
        axis = 1
    others = tuple(i for i in range(len(shape)) if i != axis)
    broadcast = tuple(dim if i == axis else 1 for i, dim in enumerate(shape))
    half = data.dtype == _FLOAT16
    if half:  # as MXNet does: statistics in single precision
        data = build.op("Cast", data, dtype="float32")
    use_batch = build.train and not flag(node, "use_global_stats")
    mean = _mean(build, data, others, shape, keepdims=False) if use_batch else running_mean
    centered = build.op("broadcast_sub", data, build.reshape(mean, broadcast))
    variance = running_variance
    if use_batch:
        variance = _mean(build, build.op("square", centered), others, shape, keepdims=False)
        _update_running(node, build, mean, variance)
    inverse_std = _inverse_std(build, variance, number(node, "eps", float(np.float32(1e-3))))
    # fix_gamma: gamma counts as one and gets no gradient, since nothing reads it.
    fixed = flag(node, "fix_gamma", default=True)
    scale = inverse_std if fixed else build.op("elemwise_mul", inverse_std, gamma)
    out = build.op("broadcast_mul", centered, build.reshape(scale, broadcast))
    out = build.op("broadcast_add", out, build.reshape(beta, broadcast))
    if half:
        out = build.op("Cast", out, dtype=dtype_name(_FLOAT16))
    return out, mean, variance, inverse_std


def _update_running(node: Node, build: Builder, mean: Entry, variance: Entry) -> None:
    """Momentum times the running value plus the rest of the batch's; biased variance."""
    # MXNet keeps the momentum in single precision.
    momentum = float(np.float32(number(node, "momentum", 0.9)))
    for running, batch in ((node.inputs[3], mean), (node.inputs[4], variance)):
        build.aux_updates[running.node.name] = build.op(
            "elemwise_add",
            build.op("_mul_scalar", running, scalar=momentum),
            build.op("_mul_scalar", batch, scalar=1.0 - momentum),
        )


def _mean(
    build: Builder,
    entry: Entry,
    axes: tuple[int, ...],
    shape: Shape,
    *,
    keepdims: Optional[bool] = True,
) -> Entry:
    total = build.op("sum", entry, axis=axes, keepdims=keepdims)
    return build.op("_mul_scalar", total, scalar=1.0 / math.prod(shape[i] for i in axes))


def _inverse_std(build: Builder, variance: Entry, eps: float) -> Entry:
    return build.op("rsqrt", build.op("_plus_scalar", variance, scalar=eps))
