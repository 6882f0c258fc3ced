"""Convolution and pooling over one to three spatial dimensions, and their gradients."""

from __future__ import annotations

import math

import tofu
from tofu.lang import Over, Rewrite, adjoint, apply
from tofu.tdl._shapes import names

_LAYOUTS = (None, "None", "NCW", "NCHW", "NCDHW")


def _check_layout(layout):
    if layout not in _LAYOUTS:
        raise tofu.InconclusiveError(
            f"layout {layout} is not described; expected batch, channel, then space"
        )


def _per_dim(value, ndim, default):
    return tuple(value) if value not in ((), None) else (default,) * ndim


class _Window:
    """How an output position and a position in the window make an input position."""

    def __init__(self, kernel, stride, dilate, pad):
        n = len(kernel)
        self.kernel = kernel
        self.stride, self.pad = _per_dim(stride, n, 1), _per_dim(pad, n, 0)
        self.dilate = _per_dim(dilate, n, 1)

    @property
    def pointwise(self):
        """Whether the window is a single element."""
        return all(k == 1 for k in self.kernel)

    def position(self, y, k):
        """The input position, an index per dimension."""
        return tuple(
            a * s + b * d - p for a, b, s, d, p in zip(y, k, self.stride, self.dilate, self.pad)
        )


def _convolution(data, weight, bias, window, num_group):
    """The output's lambda: over b, co and space."""
    space, taps = names(len(window.kernel), "y"), names(len(window.kernel), "k")
    data = data.padded(0)
    if num_group == 1:
        channel = ["ci"]
    elif weight.shape[0] == num_group and weight.shape[1] == 1:
        channel = []  # depthwise: output channel co reads input channel co
    else:
        raise tofu.InconclusiveError(
            f"convolution of {num_group} groups, {weight.shape[0]} filters: only depthwise "
            "groups are described"
        )
    summed = [*channel, *([] if window.pointwise else taps)]

    def term(b, co, y, v):
        ci = v[0] if channel else co
        k = v[len(channel) :] if not window.pointwise else (0,) * len(taps)
        return data[b, ci, window.position(y, k)] * weight[co, v[0] if channel else 0, k]

    def element(b, co, *y):
        if summed:
            return tofu.Sum(Over(summed, lambda *v: term(b, co, y, v)))
        return term(b, co, y, ())

    if bias is None:
        return Over(["b", "co", *space], element)
    return Over(["b", "co", *space], lambda b, co, *y: element(b, co, *y) + bias[co])


def _convolution_sizes(shapes, kernel, num_group=1, **_):
    n = len(kernel)
    rewrites = [Rewrite("num_filter", {"size": "co"})]
    if num_group > 1:
        rewrites.append(Rewrite("num_group", {"size": "co"}))
    taps = names(n, "k")
    rewrites.append(Rewrite("kernel", {"sizes": taps}))
    return [*rewrites, _no_pad(n, taps)]


def _no_pad(n, taps):
    """The operator's own padding goes where its input comes padded."""
    return Rewrite("pad", {"const": str((0,) * n)}, (*names(n, "y"), *taps))


@tofu.op(name=("Convolution", "Convolution_v1"), rewrites=_convolution_sizes)
def convolution(
    data, weight, bias=None, *, kernel=(), stride=(), dilate=(), pad=(), num_group=1, layout=None
):
    """The sum over input channels and the window; halo along space."""
    _check_layout(layout)
    return _convolution(data, weight, bias, _Window(kernel, stride, dilate, pad), num_group)


@tofu.op(name=("_backward_Convolution", "_backward_Convolution_v1"), rewrites=_convolution_sizes)
def backward_convolution(
    ograd,
    data,
    weight,
    bias=None,
    *,
    kernel=(),
    stride=(),
    dilate=(),
    pad=(),
    num_group=1,
    layout=None,
):
    """The gradients by data, weight and bias, which not all builds read."""
    _check_layout(layout)
    window = _Window(kernel, stride, dilate, pad)
    forward = _convolution(data, weight, None, window, num_group)
    places = ["b", *names(len(window.kernel), "y")]
    by_bias = Over(["co"], lambda co: tofu.Sum(Over(places, lambda b, *y: ograd[b, co, y])))
    if bias is not None:
        by_bias = adjoint(_convolution(data, weight, bias, window, num_group), ograd, [bias])[0]
    return (*adjoint(forward, ograd, [data, weight]), by_bias)


_POOL_REDUCERS = {"max": tofu.Max, "avg": tofu.Sum, "sum": tofu.Sum}


def _pooling_sizes(shapes, kernel=(), global_pool=False, **_):
    if global_pool:
        return []
    return [_no_pad(len(kernel), ())]


@tofu.op(name=("Pooling", "Pooling_v1"), rewrites=_pooling_sizes)
def pooling(
    data,
    *,
    kernel=(),
    pool_type="max",
    global_pool=False,
    stride=(),
    pad=(),
    pooling_convention="valid",
    count_include_pad=True,
    layout=None,
):
    """The maximum, mean or sum over a window; the CPU's max has a hidden workspace."""
    _check_layout(layout)
    if pool_type not in _POOL_REDUCERS:
        raise tofu.InconclusiveError(f"pool_type {pool_type} is not described")
    if global_pool:
        return _global_pooling(data, pool_type)
    window = _Window(kernel, stride, (), pad)
    space, taps = names(len(kernel), "y"), names(len(kernel), "k")
    padded = any(window.pad)
    if pooling_convention != "valid" or (padded and pool_type == "avg" and not count_include_pad):
        return (_opaque_pooling(data, space),) * 2
    reducer = _POOL_REDUCERS[pool_type]
    count = math.prod(kernel) if pool_type == "avg" else 1
    source = data.padded("-inf" if pool_type == "max" else 0)

    def element(b, c, *y):
        body = Over(taps, lambda *k: source[b, c, window.position(y, k)])
        value = reducer(body, extent=kernel)
        # A window is not split: that would be the parts' own, smaller one.
        return apply("pooled", value, count)

    return (Over(["b", "c", *space], element),) * 2


def _global_pooling(data, pool_type):
    """Over all of space: the sum may be split, the mean divides by its own count."""
    n = data.ndim - 2
    taps = names(n, "k")
    ones = [f"one{d}" for d in range(n)]
    count = math.prod(data.shape[2:]) if pool_type == "avg" else 1
    reducer = _POOL_REDUCERS[pool_type]

    def element(b, c, *_):
        value = reducer(Over(taps, lambda *k: data[b, c, k]))
        return value / count if pool_type == "avg" else value

    return (Over(["b", "c", *ones], element),) * 2


def _opaque_pooling(data, space):
    """Over whole space, where a part's borders would not be the tensor's."""
    pool = tofu.Opaque("Pool")
    whole = (slice(None),) * len(space)
    return Over(["b", "c", *space], lambda b, c, *y: pool(data[b, c, whole])[y])


@tofu.op(name=("_backward_Pooling", "_backward_Pooling_v1"))
def backward_pooling(*args, layout=None):
    """The gradient by data: per batch and channel, space is whole.

    Inputs: the head gradient, data and the output; between and after them, for the CPU's
    max, the gradient of the workspace and the workspace. Those two are dummies: the
    workspace is oneDNN's own form, so the gradient of a maximum is computed in a type
    that oneDNN does not take (tofu.mx lowers it so).
    """
    _check_layout(layout)
    data = args[2] if len(args) == 5 else args[1]
    pool = tofu.Opaque("PoolGradient")
    space = names(data.ndim - 2, "x")
    whole = (slice(None),) * len(space)
    return Over(["b", "c", *space], lambda b, c, *x: pool(*(a[b, c, whole] for a in args))[x])
