"""Normalizations as sums, so that a split batch or image gives the same result as a whole one."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape

from . import fused_norm
from .registry import AFTER, BEFORE, Builder, flag, number, single

__all__: list[str] = []

_FLOAT16 = 2
_EPS = float(np.float32(1e-3))  # BatchNorm's default


_STATISTICS = "its statistics are sums over batch and space, and a tile sees only part of them"


@BEFORE.lowering("_contrib_SyncBatchNorm", reason=_STATISTICS, essential=True)
def sync_batch_norm(node: Node, build: Builder) -> Sequence[Entry]:
    """BatchNorm, which is synchronized here anyway; its last output is the variance."""
    out = _plain_batch_norm(node, build, axis="1")
    squares = build.op("square", build.op("BlockGrad", Entry(out, 2)))
    eps = number(node, "eps", _EPS)
    variance = build.op("_plus_scalar", build.op("reciprocal", squares), scalar=-eps)
    return [Entry(out), build.op("BlockGrad", Entry(out, 1)), variance]


@BEFORE.lowering("_contrib_BatchNormWithReLU", reason=_STATISTICS, essential=True)
def batch_norm_with_relu(node: Node, build: Builder) -> Sequence[Entry]:
    """BatchNorm followed by relu; nothing reads the workspace output."""
    out = _plain_batch_norm(node, build)
    return [build.op("relu", Entry(out)), *(Entry(out, i) for i in (1, 2))]


@AFTER.lowering("BatchNorm", reason=_STATISTICS, essential=True)
def batch_norm(node: Node, build: Builder) -> Sequence[Entry]:
    """BatchNorm as sums, or as MXNet's operator if no part of the data needs another part.

    The running statistics become new values of its states.
    """
    use_batch = _uses_batch(node, build)
    if build.is_fused and use_batch:
        return _fused_batch_norm(node, build)
    if build.may_fuse and not build.train and not build.is_differentiated:
        fused = fused_norm.predict(node, build)
        return [Entry(fused, output) for output in range(3)]
    data, gamma, beta, running_mean, running_variance = node.inputs
    per_channel = _PerChannel(node, data, build)
    centered, mean, variance = data, running_mean, running_variance
    if data.dtype == _FLOAT16:  # statistics in single precision, as in MXNet
        centered = build.op("Cast", data, dtype="float32")
    if use_batch:
        with build.stage("mean"):
            mean = per_channel.mean(centered)
    with build.stage("centered"):
        centered = per_channel.scale(centered, None, build.op("negative", mean))
    if use_batch:
        with build.stage("variance"):
            variance = per_channel.mean_square(centered)
        if build.updates_statistics:
            _update_running(node, build, mean, variance)
    inverse_std = _inverse_std(build, variance, number(node, "eps", _EPS))
    # With fix_gamma, gamma counts as one.
    fixed = flag(node, "fix_gamma", default=True)
    with build.stage("scale"):
        scale = inverse_std if fixed else build.op("elemwise_mul", inverse_std, gamma)
    with build.stage("scaled"):
        out = per_channel.scale(centered, scale, beta)
    build.shared[node] = centered, inverse_std, scale, out
    if data.dtype == _FLOAT16:
        out = build.op("Cast", out, dtype=dtype_name(_FLOAT16))
    return [out, mean, inverse_std]


@AFTER.lowering(
    "_backward_BatchNorm", reason="its sums are over the whole batch as well", essential=True
)
def backward_batch_norm(node: Node, build: Builder) -> Sequence[Entry]:
    """The gradients with respect to data, gamma and beta.

    With the centered data x, the head gradient g and the scale s = gamma / std, the data's
    gradient is s * (g - mean(g) - x * mean(g * x) / std^2).
    """
    gradient, data, gamma = node.inputs[0], node.inputs[3], node.inputs[4]
    forward = node.inputs[1].node
    shared = build.shared[forward]
    fixed = flag(node, "fix_gamma", default=True)
    if fixed and 1 in build.read:  # MXNet writes ones, and weight decay moves them until then
        build.aux_updates[gamma] = lambda _: fused_norm.ones_like(gamma, build)
    if len(shared) == 1:  # MXNet's own operator
        return _fused_gradients(node, shared[0].node, build)
    centered, inverse_std, scale, out = shared
    node.control_deps[:] = [out.node]  # the forward operator of this one
    per_channel = _PerChannel(node, data, build)
    if data.dtype == _FLOAT16:
        gradient = build.op("Cast", gradient, dtype="float32")
    with build.stage("products"):
        by_scaled, product, total = per_channel.gradients(gradient, centered, scale, out.node)
    with build.stage("gamma"):
        by_gamma = build.op("elemwise_mul", product, inverse_std)
        if fixed:
            by_gamma = build.zeros(gamma.shape, dtype_name(gamma.dtype))
    if _uses_batch(node, build):
        # Divide last: the shift then rounds like the scaled gradients that it cancels.
        with build.stage("mean"):
            shift = build.op("elemwise_mul", scale, total)
            shift = build.op("_div_scalar", shift, scalar=-per_channel.count)
        with build.stage("slope"):
            slope = build.op("elemwise_mul", scale, build.op("square", inverse_std))
            slope = build.op("elemwise_mul", slope, product)
            slope = build.op("_div_scalar", slope, scalar=-per_channel.count)
        with build.stage("data"):
            by_data = build.op("elemwise_add", by_scaled, per_channel.scale(centered, slope, shift))
    else:
        by_data = by_scaled
    if data.dtype == _FLOAT16:
        by_data = build.op("Cast", by_data, dtype=dtype_name(_FLOAT16))
    return [by_data, by_gamma, total]


@BEFORE.lowering(
    "InstanceNorm", reason="its backward operator needs the state of the forward operator"
)
def instance_norm(node: Node, build: Builder) -> Sequence[Entry]:
    """InstanceNorm over all dimensions after the first two."""
    data, gamma, beta = node.inputs
    shape = data.shape
    axes = tuple(range(2, len(shape)))
    per_channel = (1, shape[1]) + (1,) * len(axes)
    with build.stage("mean"):
        mean = _mean(build, data, axes, shape)
    with build.stage("centered"):
        centered = build.op("broadcast_sub", data, mean)
    with build.stage("variance"):
        variance = _mean(build, build.op("square", centered), axes, shape)
    inverse_std = _inverse_std(build, variance, single(node, "eps", 1e-3))
    with build.stage("scaled"):
        normal = build.op("broadcast_mul", centered, inverse_std)
        scaled = build.op("broadcast_mul", normal, build.reshape(gamma, per_channel))
        out = build.op("broadcast_add", scaled, build.reshape(beta, per_channel))
    return [out, mean, variance]


@AFTER.lowering("L2Normalization", reason="its norm is a sum, and a tile sees only part of it")
def l2_normalization(node: Node, build: Builder) -> Sequence[Entry]:
    """L2Normalization over the instance, the channels or the space."""
    (data,) = node.inputs
    with build.stage("norm"):
        squares = build.op("square", data)
        squares = build.op("sum", squares, axis=_normalized(node, data), keepdims=True)
        squares = build.op("_plus_scalar", squares, scalar=single(node, "eps", 1e-10))
        norm = build.op("sqrt", squares)
    with build.stage("scaled"):
        out = build.op("broadcast_div", data, norm)
    build.shared[node] = out, norm
    return [out, norm]


@AFTER.lowering(
    "_backward_L2Normalization", reason="its sum of products is over the same dimensions"
)
def backward_l2_normalization(node: Node, build: Builder) -> Sequence[Entry]:
    """The gradient as MXNet computes it, which is 0 where one value is all that is normalized.

    The gradient of `broadcast_div` would leave a rounding there.
    """
    gradient, forward = node.inputs[0], node.inputs[1].node
    out, norm = build.shared[forward]
    node.control_deps[:] = [out.node]  # the forward operator of this one
    with build.stage("products"):
        products = build.op("elemwise_mul", gradient, out)
        axes = _normalized(forward, forward.inputs[0])
        along = build.op("sum", products, axis=axes, keepdims=True)
    with build.stage("data"):
        across = build.op("elemwise_sub", gradient, build.op("broadcast_mul", out, along))
        return [build.op("broadcast_div", across, norm)]


def _normalized(node: Node, data: Entry) -> tuple[int, ...]:
    """The dimensions over which an L2Normalization takes a norm."""
    rank = len(data.shape)
    return {
        "instance": tuple(range(1, rank)),
        "channel": (1,),
        "spatial": tuple(range(2, rank)),
    }[node.attrs.get("mode", "instance")]


class _PerChannel:
    """Operations between a tensor and a vector with one element per channel.

    MXNet's own operators for them, sum and broadcast_mul, take five to twenty times as long
    on a CPU as reading the tensor does. So for images, means use average pooling. Scaling is
    a depthwise convolution of a single pixel; its gradient with respect to the scale is a sum
    of products. Both work on oneDNN's own layout, in which its other operators leave tensors.

    On GPUs, MXNet's operators read a tensor about as fast as the memory can, but cuDNN computes a
    depthwise convolution as one small convolution for each channel.
    """

    def __init__(self, node: Node, data: Entry, build: Builder) -> None:
        shape = data.shape
        axis = int(node.attrs.get("axis", 1)) % len(shape)
        self._build = build
        self._norm = node.name
        self._others = tuple(i for i in range(len(shape)) if i != axis)
        self._broadcast = tuple(dim if i == axis else 1 for i, dim in enumerate(shape))
        self._channels = shape[axis]
        self._image = len(shape) == 4 and axis == 1 and not build.on_gpus
        self._width = shape[-1]
        self._dtype = "float32" if data.dtype == _FLOAT16 else dtype_name(data.dtype)
        self.count = math.prod(shape[i] for i in self._others)

    def total(self, entry: Entry) -> Entry:
        """The sum of each channel."""
        return self._build.op("sum", entry, axis=self._others, keepdims=False)

    def mean(self, entry: Entry) -> Entry:
        """The mean of each channel."""
        count = self.count
        if self._image:
            # oneDNN pools averages, but not sums. Pooling only rows leaves the height splittable.
            kernel, count = (1, self._width), count // self._width
            entry = self._build.op("Pooling", entry, kernel=kernel, stride=(1, 1), pool_type="avg")
        total = self.total(entry)
        total.node.attrs[fused_norm.STATISTICS] = self._norm
        return self._build.op("_div_scalar", total, scalar=count)

    def mean_square(self, centered: Entry) -> Entry:
        """The mean square of each channel of a tensor that ``scale`` has centered."""
        if self._image and centered.node.op == "Convolution":
            _, total, _ = self._convolution_gradients(centered, centered, centered.node)
            return self._build.op("_div_scalar", total, scalar=self.count)
        return self.mean(self._build.op("square", centered))

    def gradients(
        self, gradient: Entry, entry: Entry, factor: Entry, scaled: Node
    ) -> tuple[Entry, Entry, Entry]:
        """The three gradients of ``scale(entry, factor, offset)``, which made the node `scaled`."""
        if self._image:
            return self._convolution_gradients(gradient, entry, scaled)
        product = self.total(self._build.op("elemwise_mul", gradient, entry))
        return self.scale(gradient, factor), product, self.total(gradient)

    def _convolution_gradients(
        self, gradient: Entry, entry: Entry, forward: Node
    ) -> tuple[Entry, Entry, Entry]:
        node = self._build.op(
            "_backward_Convolution", gradient, entry, *forward.inputs[1:], **forward.attrs
        ).node
        node.num_outputs = 3
        # MXNet infers the shapes from it.
        node.control_deps = [forward]
        by_factor = self._build.reshape(Entry(node, 1), (self._channels,))
        return Entry(node), by_factor, Entry(node, 2)

    def scale(self, entry: Entry, factor: Optional[Entry], offset: Optional[Entry] = None) -> Entry:
        """Channels times a factor (None: 1) plus an offset (None: 0)."""
        build = self._build
        if self._image:
            shape = (self._channels, 1, 1, 1)
            if factor is None:
                factor = build.op("_ones", shape=shape, dtype=self._dtype)
            else:
                factor = build.reshape(factor, shape)
            return build.op(
                "Convolution",
                *(each for each in (entry, factor, offset) if each is not None),
                kernel=(1, 1),
                num_filter=self._channels,
                num_group=self._channels,
                no_bias=offset is None,
            )
        if factor is not None:
            entry = build.op("broadcast_mul", entry, build.reshape(factor, self._broadcast))
        if offset is not None:
            entry = build.op("broadcast_add", entry, build.reshape(offset, self._broadcast))
        return entry


def _fused_batch_norm(node: Node, build: Builder) -> Sequence[Entry]:
    out, mean, inverse_std, fused = fused_norm.forward(node, build)
    build.shared[node] = (Entry(fused),)
    if build.updates_statistics:
        squares = build.op("reciprocal", build.op("square", inverse_std))
        variance = build.op("_plus_scalar", squares, scalar=-number(node, "eps", _EPS))
        _update_running(node, build, mean, variance)
    return [out, mean, inverse_std]


def _fused_gradients(node: Node, fused: Node, build: Builder) -> Sequence[Entry]:
    by_data, by_gamma, by_beta = fused_norm.backward(node, fused, build)
    gamma = node.inputs[4]
    if flag(node, "fix_gamma", default=True):
        by_gamma = build.zeros(gamma.shape, dtype_name(gamma.dtype))
    return [by_data, by_gamma, by_beta]


def _plain_batch_norm(node: Node, build: Builder, **attrs: str) -> Node:
    """BatchNorm in place of a variant of it, with the same attributes."""
    names = ("eps", "momentum", "fix_gamma", "use_global_stats", "axis")
    shared_attrs = {name: node.attrs.get(name) for name in names}
    plain = build.op("BatchNorm", *node.inputs, **{**shared_attrs, **attrs}).node
    plain.num_outputs = 3
    return plain


def _uses_batch(node: Node, build: Builder) -> bool:
    return build.train and not flag(node, "use_global_stats")


def _update_running(node: Node, build: Builder, mean: Entry, variance: Entry) -> None:
    """Momentum m times the running value, plus 1 - m times the batch's; variances are biased."""
    momentum = single(node, "momentum", 0.9)

    def update(name: str, batch: Entry, running: Entry) -> Entry:
        with build.stage(name):
            return build.op(
                "elemwise_add",
                build.op("_mul_scalar", running, scalar=momentum),
                build.op("_mul_scalar", batch, scalar=1.0 - momentum),
            )

    build.aux_updates[node.inputs[3]] = functools.partial(update, "running_mean", mean)
    build.aux_updates[node.inputs[4]] = functools.partial(update, "running_variance", variance)


def _mean(
    build: Builder,
    entry: Entry,
    axes: tuple[int, ...],
    shape: Shape,
    *,
    keepdims: Optional[bool] = True,
) -> Entry:
    total = build.op("sum", entry, axis=axes, keepdims=keepdims)
    return build.op("_div_scalar", total, scalar=math.prod(shape[i] for i in axes))


def _inverse_std(build: Builder, variance: Entry, eps: float) -> Entry:
    with build.stage("deviation"):
        return build.op("rsqrt", build.op("_plus_scalar", variance, scalar=eps))
