"""Activations, softmax and dropout, and their gradients."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Sum, apply, op
from tofu.tdl._shapes import axis_of, instances, line, names, whole, zero


@op(name="Activation")
def activation(x):
    """A function of each element."""
    return lambda *i: apply("activation", x[i])


@op(name="_backward_Activation")
def backward_activation(*args):
    """A function of the head gradient, the output and, for some, the input."""
    return lambda *i: apply("by_input", *(x[i] for x in args))


@op(name="LeakyReLU")
def leaky_relu(x, *gamma):
    """A function of each element and, if slopes are learned, of its channel's slope."""
    return lambda *i: apply("leaky", x[i], *(g[_slope(g, i)] for g in gamma))


@op(name="_backward_LeakyReLU")
def backward_leaky_relu(ograd, *args, act_type="leaky"):
    """The gradients of the element, and of its channel's slope: a sum over all else."""
    if act_type != "prelu":
        return lambda *i: apply("by_input", ograd[i], *(x[i] for x in args))
    x, gamma, out = args

    def by(*i):
        return apply("by_input", ograd[i], x[i], gamma[_slope(gamma, i)], out[i])

    every = names(x.ndim)
    variables = ["one0"] if gamma.ones[0] and not x.ones[1] else [every[1]]
    summed = [name for name in every if name not in variables]

    def by_slope(channel):
        return Sum(
            Over(
                summed,
                lambda *v: by(*({**dict(zip(summed, v)), variables[0]: channel}[n] for n in every)),
            )
        )

    return Over(every, by), Over(variables, by_slope)


def _slope(gamma, index):
    """The index of a channel's slope; one slope may serve all channels."""
    return 0 if gamma.ones[0] else index[1]


def _lines(tensors, axis):
    """Whole lines along the axis; a tensor without it has one number per line."""
    word = line(tensors[0].ndim, axis_of(axis, tensors[0].ndim))
    rank = tensors[0].ndim
    return word, [(x, word if x.ndim == rank else word.replace(".", "")) for x in tensors]


@op(name=("softmax", "softmin", "log_softmax"))
def softmax(data, *length, axis=-1):
    """Softmax, softmin or log-softmax of the beginning of lines along an axis."""
    word, reads = _lines([data, *length], axis)
    return instances(word, *reads)


@op(name=("_backward_softmax", "_backward_softmin", "_backward_log_softmax"))
def backward_softmax(*args, axis=-1, use_length=False):
    """A function of whole lines of the head gradient and the output; zero for the lengths."""
    word, reads = _lines(args, axis)
    by_length = zero(args[2], word.replace(".", "")) if use_length else ()
    return *instances(word, *reads), *by_length


def _channels(tensors, mode, function):
    """Softmax over channels, or over everything but the batch."""
    line = Opaque(function)
    ndim = tensors[0].ndim
    over = [1] if mode == "channel" else list(range(1, ndim))
    return lambda *i: line(*(x[whole(i, over)] for x in tensors))[tuple(i[d] for d in over)]


@op(name="SoftmaxActivation")
def softmax_activation(x, *, mode="instance"):
    """The softmax of each instance, or of the channels at each position."""
    return _channels([x], mode, "Softmax")


@op(name="_backward_SoftmaxActivation")
def backward_softmax_activation(ograd, out, *, mode="instance"):
    """A function of whole lines of the head gradient and the output."""
    return _channels([ograd, out], mode, "SoftmaxGradient")


@op(name="softmax_cross_entropy")
def softmax_cross_entropy(data, label):
    """The summed cross entropy of a batch: one number."""
    loss = Opaque("CrossEntropy")
    return Over(["one0"], lambda _: Sum(lambda n: loss(data[n, :], label[n])))


@op(name="_backward_softmax_cross_entropy")
def backward_softmax_cross_entropy(ograd, data, label):
    """The gradients of data and label."""
    loss = Opaque("CrossEntropyGradient")
    return (
        lambda n, c: loss(ograd[0], data[n, :], label[n])[c],
        lambda n: apply("zero", label[n]),
    )


@op(name="Dropout", random=True)
def dropout(x, *, axes=()):
    """The element or zero by chance, and the mask; along `axes` one mask serves all."""
    axes = [axis_of(a, x.ndim) for a in axes]
    if not all(x.ones[a] for a in axes):
        return _shared_dropout(x, axes)
    return (
        lambda *i: apply("dropout", x[i]),
        lambda *i: apply("mask", x[i]),
    )


def _shared_dropout(x, axes):
    """With a mask that is drawn once along some axes, which stay whole."""
    drop = Opaque("Dropout")
    index = [f"one{d}" if d in axes else name for d, name in enumerate(names(x.ndim))]
    return (
        lambda *i: drop(x[whole(i, axes)])[tuple(i[d] for d in axes)],
        Over(index, lambda *i: drop(x[whole(i, axes)])),
    )


@op(name="_backward_Dropout")
def backward_dropout(ograd, mask):
    """The head gradient under the mask."""
    return lambda *i: apply(
        "masked",
        ograd[i],
        mask[tuple(0 if m and not n else v for v, m, n in zip(i, mask.ones, ograd.ones))],
    )
