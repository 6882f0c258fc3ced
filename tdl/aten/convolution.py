"""Convolution and its gradients: halos along space, which is whole with groups or transposed."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, apply, like, op
from tofu.tdl._shapes import names


def _space(tensor):
    return (slice(None),) * (tensor.ndim - 2)


def _filters(weight, transposed, groups):
    """Filters and channels of a group."""
    first, second = weight.shape[:2]
    return (second, first // groups) if transposed else (first // groups, second)


def _kernel(weight, transposed, groups):
    """The element of the weight of group g, filter co and channel ci, at a place."""
    filters, channels = _filters(weight, transposed, groups)

    def read(g, co, ci, place):
        if transposed:
            return weight[(g * channels + ci, co, *place)]
        return weight[(g * filters + co, ci, *place)]

    return read


def _sizes(shapes, groups=1, transposed=False, **_):
    if groups > 1:
        return [Rewrite("groups", {"size": "g"})]
    return [] if transposed else [_padding(len(shapes[0]) - 2, 0, "y")]


def _padding(ndim, sizes, prefix):
    """The operator's own padding where space is divided: the input comes padded."""
    sizes = (sizes,) * ndim if isinstance(sizes, int) else tuple(sizes)
    return Rewrite("padding", {"const": str(sizes)}, names(ndim, prefix))


def _for_each(ndim, values):
    """A value for each dimension of space; torch takes one value for all."""
    return tuple(values) * ndim if len(values) == 1 else tuple(values)


class _Window:
    """The sum over a window that is not divided, of products of two tensors."""

    def __init__(self, kernel, stride, padding, dilation):
        self.kernel, self.taps = kernel, names(len(kernel), "k")
        given = (_for_each(len(kernel), values) for values in (stride, padding, dilation))
        self._each = tuple(zip(*given))

    def sum(self, term):
        """The sum of a term over the window."""
        return apply("window", Sum(Over(self.taps, lambda *k: term(k)), extent=self.kernel))

    def read(self, y, k):
        """The place of data that output y reads with tap k."""
        return tuple(a * s + b * d - p for a, b, (s, p, d) in zip(y, k, self._each))

    def written(self, x, k):
        """The output that reads data at place x with tap k, if windows begin everywhere."""
        return tuple(a - b * d + p for a, b, (_, p, d) in zip(x, k, self._each))


@op(name="aten.convolution.default", rewrites=_sizes)
def convolution(
    data,
    weight,
    bias=None,
    *,
    stride=(),
    padding=(),
    dilation=(),
    groups=1,
    transposed=False,
    out_shapes,
):
    """The sum over the channels of a group, and over the window."""
    if groups == 1 and not transposed:
        return _divided(data, weight, bias, _Window(weight.shape[2:], stride, padding, dilation))
    filters, channels = _filters(weight, transposed, groups)
    kernel = _kernel(weight, transposed, groups)
    run = Opaque("Convolution")
    space = names(data.ndim - 2, "y")

    def element(b, g, co, *y):
        def term(ci):
            return run(
                data[(b, g * channels + ci, *_space(data))], kernel(g, co, ci, _space(data))
            )[y]

        total = Sum(term, extent=channels)
        return total if bias is None else total + bias[g * filters + co]

    if groups == 1:
        return Over(["b", "co", *space], lambda b, co, *y: element(b, 0, co, *y))
    return Reindex(
        ["b", "g", "co", *space],
        [out_shapes[0][0], groups, filters, *out_shapes[0][2:]],
        at=lambda b, g, co, *y: (b, g * filters + co, *y),
        value=element,
    )


def _divided(data, weight, bias, window):
    data = data.padded(0)

    def element(b, co, *y):
        def term(ci):
            return window.sum(lambda k: data[(b, ci, *window.read(y, k))] * weight[(co, ci, *k)])

        total = Sum(term, extent=weight.shape[1])
        return total if bias is None else total + bias[co]

    return Over(["b", "co", *names(len(window.kernel), "y")], element)


def _divides_data(output_mask, stride, groups, transposed):
    """Whether a call makes the gradient of data alone, whose space can be divided."""
    alone = tuple(output_mask) == (True, False, False)
    return alone and groups == 1 and not transposed and set(stride) == {1}


def _divides_weight(output_mask, groups, transposed):
    """Whether a call makes the gradient of the weight alone, of parts of space."""
    return tuple(output_mask) == (False, True, False) and groups == 1 and not transposed


def _backward_sizes(shapes, output_mask, stride=(), dilation=(), groups=1, transposed=False, **_):
    if _divides_data(output_mask, stride, groups, transposed):
        sizes = shapes[2][2:]
        reach = [(k - 1) * d for k, d in zip(sizes, _for_each(len(sizes), dilation))]
        return [_padding(len(reach), reach, "x")]
    if _divides_weight(output_mask, groups, transposed):
        return [_padding(len(shapes[0]) - 2, 0, "y")]
    if groups == 1:
        return [Rewrite("bias_sizes", {"sizes": ["co"]})]
    filters = shapes[0][1] // groups
    sizes = {"size": "g", "times": filters}
    return [Rewrite("groups", {"size": "g"}), Rewrite("bias_sizes", sizes)]


def _data_gradient(grad, data, weight, window):
    grad = grad.padded(0)

    def element(b, ci, *x):
        def term(co):
            return window.sum(lambda k: grad[(b, co, *window.written(x, k))] * weight[(co, ci, *k)])

        return like(Sum(term, extent=weight.shape[0]), data[(b, ci, *x)])

    return Over(["b", "ci", *names(len(window.kernel), "x")], element)


def _weight_gradient(grad, data, weight, window):
    data = data.padded(0)

    def element(co, ci, *k):
        def term(b, *y):
            return grad[(b, co, *y)] * data[(b, ci, *window.read(y, k))]

        places = ["b", *names(len(window.kernel), "y")]
        return like(Sum(Over(places, term)), weight[(co, ci, *k)])

    return Over(["co", "ci", *window.taps], element)


@op(name="aten.convolution_backward.default", rewrites=_backward_sizes)
def convolution_backward(
    grad,
    data,
    weight,
    *,
    output_mask,
    stride=(),
    padding=(),
    dilation=(),
    groups=1,
    transposed=False,
):
    """The gradients of data, weight and bias that are asked for."""
    window = _Window(weight.shape[2:], stride, padding, dilation)
    if _divides_data(output_mask, stride, groups, transposed):
        return _data_gradient(grad, data, weight, window)
    if _divides_weight(output_mask, groups, transposed):
        return _weight_gradient(grad, data, weight, window)
    filters, channels = _filters(weight, transposed, groups)
    kernel = _kernel(weight, transposed, groups)
    run = Opaque("ConvolutionGradient")
    places, taps = names(data.ndim - 2, "x"), names(data.ndim - 2, "k")

    def head(b, g, co):
        return grad[(b, g * filters + co, *_space(data))]

    def image(b, g, ci, place):
        return data[(b, g * channels + ci, *place)]

    def by_data(b, g, ci, *x):
        def term(co):
            return run(head(b, g, co), kernel(g, co, ci, _space(data)))[x]

        return like(Sum(term, extent=filters), image(b, g, ci, x))

    def by_weight(g, co, ci, *k):
        def term(b):
            return run(head(b, g, co), image(b, g, ci, _space(data)))[k]

        return like(Sum(term, extent=data.shape[0]), kernel(g, co, ci, k))

    def by_bias(g, co):
        return Sum(lambda b: run(head(b, g, co)), extent=data.shape[0])

    if groups == 1:
        outputs = _ungrouped(by_data, by_weight, by_bias, transposed, places, taps)
    else:
        sizes = data.shape, weight.shape
        outputs = _grouped(by_data, by_weight, by_bias, transposed, groups, sizes)
    return tuple(out for out, wanted in zip(outputs, output_mask) if wanted)


def _ungrouped(by_data, by_weight, by_bias, transposed, places, taps):
    first, second = ("ci", "co") if transposed else ("co", "ci")

    def of_weight(a, b, *k):
        return by_weight(0, b, a, *k) if transposed else by_weight(0, a, b, *k)

    return (
        Over(["b", "ci", *places], lambda b, ci, *x: by_data(b, 0, ci, *x)),
        Over([first, second, *taps], of_weight),
        Over(["co"], lambda co: by_bias(0, co)),
    )


def _grouped(by_data, by_weight, by_bias, transposed, groups, sizes):
    data, weight = sizes
    places, taps = names(len(data) - 2, "x"), names(len(data) - 2, "k")
    channels = data[1] // groups
    filters = weight[1] if transposed else weight[0] // groups
    lead = channels if transposed else filters
    inner = (
        [("ci", channels), ("co", filters)] if transposed else [("co", filters), ("ci", channels)]
    )

    def of_weight(g, a, b, *k):
        return by_weight(g, b, a, *k) if transposed else by_weight(g, a, b, *k)

    return (
        Reindex(
            ["b", "g", "ci", *places],
            [data[0], groups, channels, *data[2:]],
            at=lambda b, g, ci, *x: (b, g * channels + ci, *x),
            value=by_data,
        ),
        Reindex(
            ["g", *(name for name, _ in inner), *taps],
            [groups, *(size for _, size in inner), *weight[2:]],
            at=lambda g, a, b, *k: (g * lead + a, b, *k),
            value=of_weight,
        ),
        Reindex(["g", "co"], [groups, filters], at=lambda g, co: g * filters + co, value=by_bias),
    )
