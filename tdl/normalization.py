"""Normalizations. Dimensions of their statistics are whole; tofu.mx lowers some operators."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Sum, op
from tofu.tdl._shapes import at, axes_of, axis_of, instances, line, names, whole, without


def _channel_slices(tensor, axis, channel):
    """All elements of one channel."""
    return tensor[tuple(channel if d == axis else slice(None) for d in range(tensor.ndim))]


def _batch_norm(tensors, axis, big):
    """Per-channel lambdas: in the shape of tensor `big`, and over the channels."""
    norm = Opaque("BatchNorm")
    axis = axis_of(axis, tensors[big].ndim)
    every = names(tensors[big].ndim)
    every[axis] = "c"

    def of(channel):
        slices = (_channel_slices(x, axis if x.ndim > 1 else 0, channel) for x in tensors)
        return norm(*slices)

    full = Over(every, lambda *i: of(i[axis])[without(i, axis)])
    return full, lambda c: of(c)


def _scaled(data, vectors, axis):
    """The data, normalized with given statistics, and these statistics."""
    norm = Opaque("Normalized")
    axis = axis_of(axis, data.ndim)
    every = names(data.ndim)
    every[axis] = "c"

    def statistics(c):
        return norm(*(vector[c] for vector in vectors[2:]))

    full = Over(every, lambda *i: norm(data[i], *(vector[i[axis]] for vector in vectors)))
    return full, statistics, statistics


@op(name=("BatchNorm", "BatchNorm_v1"), stateful=True)
def batch_norm(data, gamma, beta, moving_mean, moving_var, *, axis=1, use_global_stats=False):
    """Normalized per channel; statistics are over everything else, if they are the batch's."""
    if use_global_stats:
        return _scaled(data, [gamma, beta, moving_mean, moving_var], axis)
    full, channel = _batch_norm([data, gamma, beta, moving_mean, moving_var], axis, 0)
    return full, channel, channel


@op(name=("_backward_BatchNorm", "_backward_BatchNorm_v1"))
def backward_batch_norm(*args, axis=1):
    """The gradients of data, gamma and beta."""
    full, channel = _batch_norm(list(args), axis, 0)
    return full, channel, channel


def _unsplit(tensors, data, rest):
    """Outputs whose every element depends on all of the tensors."""
    return instances(" ".join(["." * tensors[data].ndim, *rest]), *((x, "") for x in tensors))


@op(name=("_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU"), stateful=True)
def fused_batch_norm(*args, out_shapes):
    """Two operators that are not split: one synchronizes by name, one packs its ReLU's mask.

    tofu.mx lowers both.
    """
    return _unsplit(args, 0, ["." * len(s) for s in out_shapes[1:]])


@op(name=("_backward__contrib_SyncBatchNorm", "_backward_contrib_BatchNormWithReLU"))
def backward_fused_batch_norm(*args):
    """The gradients of data, gamma and beta."""
    return _unsplit(args, 0, [".", "."])


@op(name="InstanceNorm")
def instance_norm(data, gamma, beta):
    """Normalized per instance and channel, with its mean and variance."""
    plane = "nc" + "." * (data.ndim - 2)
    return instances(f"{plane} nc nc", (data, "nc"), (gamma, "c"), (beta, "c"))


@op(name="_backward_InstanceNorm")
def backward_instance_norm(ograd, mean, variance, data, gamma):
    """The gradients of data, gamma and beta; the latter are sums over the batch."""
    plane = "nc" + "." * (data.ndim - 2)
    reads = (ograd, "nc"), (mean, "nc"), (variance, "nc"), (data, "nc"), (gamma, "c")
    return instances(f"{plane} c c", *reads)


def _l2_dims(ndim, mode):
    """The dimensions normalized together, and those of the norm: channels keep one."""
    together = {"channel": [1], "spatial": range(2, ndim)}.get(mode, range(1, ndim))
    full = line(ndim, together)
    return full, full if mode == "channel" else full.replace(".", "")


@op(name="L2Normalization")
def l2_normalization(data, *, mode="instance"):
    """The element divided by the root of a sum of squares, and that root."""
    full, norm = _l2_dims(data.ndim, mode)
    return instances(f"{full} {norm}", (data, full))


@op(name="_backward_L2Normalization")
def backward_l2_normalization(ograd, out, norm, *, mode="instance"):
    """The gradient of data."""
    full, rest = _l2_dims(ograd.ndim, mode)
    return instances(full, (ograd, full), (out, full), (norm, rest))


@op(name="moments")
def moments(data, *, axes=None, keepdims=False):
    """Mean and variance over some axes."""
    reduced = axes_of(axes, data.ndim)
    full = line(data.ndim, reduced)
    small = full if keepdims else full.replace(".", "") or "."
    return instances(f"{small} {small}", (data, full))


@op(name="_backward_moments")
def backward_moments(mean_grad, var_grad, data, mean, var, *, axes=None):
    """The gradient of data."""
    full = line(data.ndim, axes_of(axes, data.ndim))
    small = full if mean.ndim == data.ndim else full.replace(".", "")
    reads = ((x, small) for x in (mean_grad, var_grad, mean, var))
    return instances(full, (data, full), *reads)


@op(name="LayerNorm")
def layer_norm(data, gamma, beta, *, axis=-1):
    """Normalized along an axis, with its mean and deviation."""
    norm = Opaque("LayerNorm")
    axis = axis_of(axis, data.ndim)
    variables = at(names(data.ndim), axis, f"one{axis}")
    return (
        lambda *i: norm(data[whole(i, axis)], gamma[:], beta[:])[i[axis]],
        *(Over(variables, lambda *i: norm(data[whole(i, axis)])) for _ in range(2)),
    )


@op(name="_backward_LayerNorm")
def backward_layer_norm(ograd, data, gamma, mean, std, *, axis=-1):
    """The gradients of data, gamma and beta; the latter two are sums over the other axes."""
    norm = Opaque("LayerNormGradient")
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
            by_name = dict(zip(rest, r))
            return norm(*lines([by_name.get(name, 0) for name in every]))[column]

        return Sum(Over(rest, summed)) if rest else summed()

    return (
        lambda *i: norm(*lines(i))[i[axis]],
        Over(["g"], parameter),
        Over(["g"], parameter),
    )


@op(name="_contrib_div_sqrt_dim")
def div_sqrt_dim(data):
    """The element divided by the root of the size of the last axis."""
    return lambda *i: data[i] / data.shape[-1] ** 0.5
