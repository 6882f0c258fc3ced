"""Convolution and pooling over one to three spatial dimensions, and their gradients."""

from __future__ import annotations

import math

from tofu.errors import InconclusiveError
from tofu.lang import Max, Opaque, Over, Reindex, Rewrite, Sum, Unread, adjoint, apply, like, op
from tofu.tdl._shapes import CHANNELS, Strides, names

_LAYOUTS = (None, "None", "NCW", "NCHW", "NCDHW")
_WORDS = {**CHANNELS, "y": "output positions", "k": "window"}
_GRADIENT_WORDS = {**_WORDS, "data_": "data positions", "weight_": "window"}
_POOLING_WORDS = {"b": "batch", "c": "channels", "y": "output positions", "k": "window"}


def _check_layout(layout):
    if layout not in _LAYOUTS:
        raise InconclusiveError(
            f"layout {layout} is not described; expected batch, channel, then space"
        )


def _per_dim(value, ndim, default):
    return tuple(value) if value not in ((), None) else (default,) * ndim


class _Window:
    """Maps an output position and a position in the window to an input position."""

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
        """The input position, one index per dimension."""
        return tuple(
            a * s + b * d - p for a, b, s, d, p in zip(y, k, self.stride, self.dilate, self.pad)
        )


def _is_grouped(weight_shape, num_group):
    """Whether groups have several filters or channels; if not, channels are independent."""
    return num_group > 1 and (weight_shape[0] != num_group or weight_shape[1] != 1)


def _convolution(data, weight, bias, window, num_group):
    """The output's lambda: over b, co and space."""
    space, taps = names(len(window.kernel), "y"), names(len(window.kernel), "k")
    data = data.padded(0)
    channel = ["ci"] if num_group == 1 else []  # depthwise: channel co reads channel co
    summed = [*channel, *([] if window.pointwise else taps)]

    def term(b, co, y, v):
        ci = v[0] if channel else co
        k = v[len(channel) :] if not window.pointwise else (0,) * len(taps)
        return data[b, ci, window.position(y, k)] * weight[co, v[0] if channel else 0, k]

    def element(b, co, *y):
        if summed:
            return Sum(Over(summed, lambda *v: term(b, co, y, v)))
        return term(b, co, y, ())

    if bias is None:
        return Over(["b", "co", *space], element)
    return Over(["b", "co", *space], lambda b, co, *y: element(b, co, *y) + bias[co])


def _parameters_only(ograd, data, weight, bias, window):
    """Gradients of weight and bias; tofu.mx lowers graphs so that nothing reads data's."""
    space, taps = names(len(window.kernel), "y"), names(len(window.kernel), "k")
    data = data.padded(0)

    def by_weight(co, ci, *k):
        def term(b, *y):
            return ograd[b, co, y] * data[b, ci, window.position(y, k)]

        return like(Sum(Over(["b", *space], term)), weight[co, ci, k])

    def by_bias(co):
        total = Sum(Over(["b", *space], lambda b, *y: ograd[b, co, y]))
        return total if bias is None else like(total, bias[co])

    return Unread(data), Over(["co", "ci", *taps], by_weight), Over(["co"], by_bias)


def _convolution_sizes(shapes, kernel, num_group=1, **_):
    n = len(kernel)
    weight = next(s for s in reversed(shapes) if len(s) > 1)
    if _is_grouped(weight, num_group):
        filters = {"size": "g", "times": weight[0] // num_group}
        rewrites = [Rewrite("num_group", {"size": "g"}), Rewrite("num_filter", filters)]
    else:
        rewrites = [Rewrite("num_filter", {"size": "co"})]
        if num_group > 1:
            rewrites.append(Rewrite("num_group", {"size": "co"}))
    taps = names(n, "k")
    rewrites.append(Rewrite("kernel", {"sizes": taps}))
    return [*rewrites, _no_pad(n, taps)]


def _padded_sizes(shapes, kernel, num_group=1, **_):
    """The rewritten sizes, if data also comes padded for a split of groups."""
    *rewrites, no_pad = _convolution_sizes(shapes, kernel, num_group)
    return [*rewrites, Rewrite("pad", no_pad.value, (*no_pad.when, "g"))]


def _grouped(data, weight, bias, window, groups, shape):
    """The output of several groups, by group g and the filter co in it.

    A part with one group matches a convolution without groups.
    """
    filters, channels = weight.shape[0] // groups, weight.shape[1]
    space, taps = names(len(window.kernel), "y"), names(len(window.kernel), "k")
    summed = ["ci", *([] if window.pointwise else taps)]
    data = data.padded(0)

    def element(b, g, co, *y):
        def term(ci, *v):
            k = v or (0,) * len(taps)
            place = window.position(y, k)
            return data[b, g * channels + ci, place] * weight[g * filters + co, ci, k]

        total = Sum(Over(summed, term))
        return total if bias is None else total + bias[g * filters + co]

    return Reindex(
        ["b", "g", "co", *space],
        [shape[0], groups, filters, *shape[2:]],
        at=lambda b, g, co, *y: (b, g * filters + co, *y),
        value=element,
    )


def _backward_grouped(ograd, data, weight, bias, groups):
    """Gradients of data, weight and bias, as in the derived gradient of one group."""
    filters, channels = weight.shape[0] // groups, weight.shape[1]
    planes, run = (slice(None),) * (data.ndim - 2), Opaque("gradient")

    def head(b, g, co):
        return ograd[b, g * filters + co, planes]

    def image(b, g, ci):
        return data[b, g * channels + ci, planes]

    def by_data(b, g, ci, *x):
        def term(co):
            matrix = weight[g * filters + co, ci, planes]
            return run(head(b, g, co), matrix, image(b, g, ci))[x]

        return Sum(term, extent=filters)

    def by_weight(g, co, ci, *k):
        matrix = weight[g * filters + co, ci, planes]
        return Sum(lambda b: run(head(b, g, co), image(b, g, ci), matrix)[k])

    def by_bias(g, co):
        reads = () if bias is None else (bias[g * filters + co],)
        return Sum(lambda b: run(head(b, g, co), *reads))

    places = [f"data_{d}" for d in range(2, data.ndim)]
    taps = [f"weight_{d}" for d in range(2, data.ndim)]
    return (
        Reindex(
            ["b", "g", "ci", *places],
            [data.shape[0], groups, channels, *data.shape[2:]],
            at=lambda b, g, ci, *x: (b, g * channels + ci, *x),
            value=by_data,
        ),
        Reindex(
            ["g", "co", "ci", *taps],
            [groups, filters, channels, *weight.shape[2:]],
            at=lambda g, co, ci, *k: (g * filters + co, ci, *k),
            value=by_weight,
        ),
        Reindex(["g", "co"], [groups, filters], at=lambda g, co: g * filters + co, value=by_bias),
    )


def _no_pad(n, taps):
    """Drops the operator's own padding if its input comes padded."""
    return Rewrite("pad", {"const": str((0,) * n)}, (*names(n, "y"), *taps))


@op(name=("Convolution", "Convolution_v1"), rewrites=_padded_sizes, variables=_WORDS)
def convolution(
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
    out_shapes,
):
    """The sum over input channels and the window; halo along space."""
    _check_layout(layout)
    if _is_grouped(weight.shape, num_group):
        return _grouped(
            data, weight, bias, _Window(kernel, stride, dilate, pad), num_group, out_shapes[0]
        )
    return _convolution(data, weight, bias, _Window(kernel, stride, dilate, pad), num_group)


@op(
    name=("_backward_Convolution", "_backward_Convolution_v1"),
    rewrites=_convolution_sizes,
    variables=_GRADIENT_WORDS,
)
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
    __tofu_gradients__="all",
):
    """The gradients of data, weight and bias, which not all builds read."""
    _check_layout(layout)
    if __tofu_gradients__ != "all":
        window = _Window(kernel, stride, dilate, pad)
        return _parameters_only(ograd, data, weight, bias, window)
    if _is_grouped(weight.shape, num_group):
        return _backward_grouped(ograd, data, weight, bias, num_group)
    window = _Window(kernel, stride, dilate, pad)
    forward = _convolution(data, weight, None, window, num_group)
    places = ["b", *names(len(window.kernel), "y")]
    by_bias = Over(["co"], lambda co: Sum(Over(places, lambda b, *y: ograd[b, co, y])))
    if bias is not None:
        by_bias = adjoint(_convolution(data, weight, bias, window, num_group), ograd, [bias])[0]
    return (*adjoint(forward, ograd, [data, weight]), by_bias)


_POOL_REDUCERS = {"max": Max, "avg": Sum, "sum": Sum}


def _pooling_sizes(shapes, kernel=(), global_pool=False, **_):
    if global_pool:
        return []
    return [_no_pad(len(kernel), ())]


@op(name=("Pooling", "Pooling_v1"), rewrites=_pooling_sizes, variables=_POOLING_WORDS)
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
        raise InconclusiveError(f"pool_type {pool_type} is not described")
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
        # A window is not split: each part would take its own, smaller window.
        return apply("pooled", value, count)

    return (Over(["b", "c", *space], element),) * 2


def _global_pooling(data, pool_type):
    """Pooling over all of space: the sum can be split, the mean divides by its own count."""
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
    """Pooling that keeps space whole, because a part's borders would not be the tensor's."""
    pool = Opaque("Pool")
    whole = (slice(None),) * len(space)
    return Over(["b", "c", *space], lambda b, c, *y: pool(data[b, c, whole])[y])


@op(name=("_backward_Pooling", "_backward_Pooling_v1"), variables=_POOLING_WORDS)
def backward_pooling(*args, kernel=(), stride=(), pad=(), global_pool=False, layout=None):
    """The gradient of data: per batch and channel, and per window if windows do not overlap.

    Inputs: the head gradient, data and the output; between and after them, for the CPU's
    max, the gradient of the workspace and the workspace. These two are dummies: the
    workspace is in oneDNN's own form, so the gradient of a maximum is computed in a type
    that oneDNN does not support (tofu.mx lowers it so).
    """
    _check_layout(layout)
    data = args[2] if len(args) == 5 else args[1]
    space, pool = range(data.ndim - 2), Opaque("PoolGradient")
    window = _Window(kernel or (1,) * len(space), stride, (), pad)
    sizes = zip(data.shape[2:], args[0].shape[2:], window.kernel, window.stride, window.pad)
    fits = [size == out * k and k == s and p == 0 for size, out, k, s, p in sizes]
    beside = [d for d in space if fits[d] and not global_pool]
    strides = Strides(data.shape[2:], [kernel[d] if d in beside else None for d in space])

    def element(b, c, *v):
        pairs = strides.apart(v)

        def read(tensor, near):
            place = [pairs[d][0] if d in near else slice(None) for d in space]
            if tensor is data:
                place = [q * kernel[d] + near[d] if d in near else q for d, q in enumerate(place)]
            return tensor[b, c, place]

        def value(*w):
            near = dict(zip(beside, w))
            return pool(*(read(each, near) for each in args))[[r for _, r in pairs], w]

        if not beside:
            return value()
        extents = [kernel[d] for d in beside]
        return Sum(Over(names(len(beside), "w"), value), extent=extents)

    return Reindex(
        ["b", "c", *strides.names],
        [*data.shape[:2], *strides.extents],
        at=lambda b, c, *v: (b, c, *strides.positions(v)),
        value=element,
    )
