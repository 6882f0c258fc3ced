"""Norms over the trailing dimensions or groups of channels, which are whole, and gradients.

Batch norms are taken apart before: their statistics are then sums, which workers can share.
"""

from __future__ import annotations

from tofu.lang import Opaque, Over, Rewrite, Sum, op
from tofu.tdl._shapes import axis_of, instances, names


def _layer(tensors, ndim, count):
    """A function of whole lines: `count` trailing dimensions of each tensor that has more."""
    norm = Opaque("LayerNorm")

    def read(lead):
        reads = []
        for x in tensors:
            if x.ndim == count:
                reads.append(x[[slice(None)] * count])
            else:
                reads.append(x[(*lead, *[slice(None)] * count)])
        return norm(*reads)

    return names(ndim - count), read


def _statistic(x, lead, count):
    """An element of a mean or deviation, whose normalized dimensions have size 1."""
    return x[(*lead, *(0,) * count)]


@op(name=[f"aten._weight_norm_interface{way}.default" for way in ("", "_backward")])
def weight_norm(*tensors, dim=0):
    """Weights with given norms along all dimensions but one, and the norms; or the gradients."""
    ndim = tensors[0].ndim
    axis = axis_of(dim, ndim)
    word = "." * axis + "a" + "." * (ndim - axis - 1)
    return instances(f"{word} {word}", *((x, word) for x in tensors))


@op(name="aten.native_layer_norm.default")
def layer_norm(data, weight=None, bias=None, *, normalized_shape):
    """Normalized over the trailing dimensions, with mean and inverse deviation."""
    count = len(normalized_shape)
    tensors = [x for x in (data, weight, bias) if x is not None]
    lead, read = _layer(tensors, data.ndim, count)
    tail, ones = names(count, "t"), names(count, "one")

    def full(*i):
        return read(i[: len(lead)])[i[len(lead) :]]

    def small(*i):
        return read(i[: len(lead)])

    return Over([*lead, *tail], full), Over([*lead, *ones], small), Over([*lead, *ones], small)


@op(name="aten.native_layer_norm_backward.default")
def layer_norm_backward(
    grad, data, mean, rstd, weight=None, bias=None, *, normalized_shape, output_mask
):
    """The gradients of the data, and of weight and bias, which are sums."""
    count = len(normalized_shape)
    tensors = [x for x in (grad, data, weight, bias) if x is not None]
    lead, _ = _layer(tensors, data.ndim, count)
    norm = Opaque("LayerNormGradient")
    tail = names(count, "t")

    def read(at):
        lines = [x[(*at, *[slice(None)] * count)] for x in (grad, data)]
        lines += [_statistic(x, at, count) for x in (mean, rstd)]
        lines += [x[[slice(None)] * count] for x in (weight, bias) if x is not None]
        return norm(*lines)

    def parameter(*index):
        return Sum(Over(lead, lambda *at: read(at)[index])) if lead else read(())[index]

    outputs = (
        Over([*lead, *tail], lambda *i: read(i[: len(lead)])[i[len(lead) :]]),
        Over(tail, parameter),
        Over(tail, parameter),
    )
    return tuple(out for out, wanted in zip(outputs, output_mask) if wanted)


_BATCH = (Rewrite("N", {"size": "n"}),)


@op(name="aten.native_group_norm.default", rewrites=_BATCH)
def group_norm(data, *parameters, group):
    """Normalized over groups of channels, with means and inverse deviations."""
    norm = Opaque("GroupNorm")
    rest = names(data.ndim - 1)

    def read(n):
        return norm(data[(n, *[slice(None)] * len(rest))], *(p[:] for p in parameters))

    return (
        Over(["n", *rest], lambda n, *i: read(n)[i]),
        Over(["n", "g"], lambda n, g: read(n)[g]),
        Over(["n", "g"], lambda n, g: read(n)[g]),
    )


@op(name="aten.native_group_norm_backward.default", rewrites=_BATCH)
def group_norm_backward(grad, data, mean, rstd, weight=None, *, group, output_mask):
    """The gradients of the data, and of weight and bias, which are sums."""
    norm = Opaque("GroupNormGradient")
    rest = names(data.ndim - 1)

    def read(n):
        lines = [x[(n, *[slice(None)] * len(rest))] for x in (grad, data)]
        lines += [x[n, :] for x in (mean, rstd)]
        return norm(*lines, *(() if weight is None else (weight[:],)))

    outputs = (
        Over(["n", *rest], lambda n, *i: read(n)[i]),
        Over(["c"], lambda c: Sum(lambda n: read(n)[c])),
        Over(["c"], lambda c: Sum(lambda n: read(n)[c])),
    )
    return tuple(out for out, wanted in zip(outputs, output_mask) if wanted)
