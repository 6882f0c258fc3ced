"""Normalizations. What they take statistics over is whole: see tofu.mx for lowerings."""

from __future__ import annotations

import tofu
from tofu.lang import Over
from tofu.tdl._shapes import at, axis_of, names, whole, without


def _channel_slices(tensor, axis, channel):
    """Everything of one channel."""
    return tensor[tuple(channel if d == axis else slice(None) for d in range(tensor.ndim))]


def _batch_norm(tensors, axis, big):
    """Per-channel lambdas: of the shape of tensor `big`, and of the channels."""
    norm = tofu.Opaque("BatchNorm")
    axis = axis_of(axis, tensors[big].ndim)
    every = names(tensors[big].ndim)
    every[axis] = "c"

    def of(channel):
        slices = (_channel_slices(x, axis if x.ndim > 1 else 0, channel) for x in tensors)
        return norm(*slices)

    full = Over(every, lambda *i: of(i[axis])[without(i, axis)])
    return full, lambda c: of(c)


@tofu.op(name="BatchNorm")
def batch_norm(data, gamma, beta, moving_mean, moving_var, *, axis=1):
    """Normalized per channel; statistics are over all the rest."""
    full, channel = _batch_norm([data, gamma, beta, moving_mean, moving_var], axis, 0)
    return full, channel, channel


@tofu.op(name="_backward_BatchNorm")
def backward_batch_norm(*args, axis=1):
    """The gradients by data, gamma and beta."""
    full, channel = _batch_norm(list(args), axis, 0)
    return full, channel, channel


@tofu.op(name="LayerNorm")
def layer_norm(data, gamma, beta, *, axis=-1):
    """Normalized along an axis, with its mean and deviation."""
    norm = tofu.Opaque("LayerNorm")
    axis = axis_of(axis, data.ndim)
    one = at(names(data.ndim), axis, f"one{axis}")
    return (
        lambda *i: norm(data[whole(i, axis)], gamma[:], beta[:])[i[axis]],
        *(Over(one, lambda *i: norm(data[whole(i, axis)])) for _ in range(2)),
    )


@tofu.op(name="_backward_LayerNorm")
def backward_layer_norm(ograd, data, gamma, mean, std, *, axis=-1):
    """The gradients by data, gamma and beta; the latter are sums over the rest."""
    norm = tofu.Opaque("LayerNormGradient")
    axis = axis_of(axis, data.ndim)
    every = names(data.ndim)
    rest = list(without(every, axis))

    def lines(i):
        return (
            *(x[whole(i, axis)] for x in (ograd, data)),
            gamma[:],
            *(x[at(i, axis, 0)] for x in (mean, std)),
        )

    def parameter(column):
        def summed(*r):
            known = dict(zip(rest, r))
            return norm(*lines([known.get(name, 0) for name in every]))[column]

        return tofu.Sum(Over(rest, summed)) if rest else summed()

    return (
        lambda *i: norm(*lines(i))[i[axis]],
        Over(["g"], parameter),
        Over(["g"], parameter),
    )


@tofu.op(name="_contrib_div_sqrt_dim")
def div_sqrt_dim(data):
    """The element over the root of the size of the last axis."""
    return lambda *i: data[i] / data.shape[-1] ** 0.5
