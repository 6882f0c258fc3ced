"""Operators that work on each instance of a batch, in ways TDL cannot express."""

from __future__ import annotations

import math

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Sum, apply, like, op
from tofu.tdl._shapes import at, instances, line, names, whole, without, zero


def _rest(ndim):
    return (slice(None),) * ndim


def _each(tensors, function):
    """An opaque function of one instance of each tensor."""
    instance = Opaque(function)
    return lambda n: instance(*(x[n, _rest(x.ndim - 1)] for x in tensors))


def _every(tensors, function):
    """An output of such a function: its elements, instance by instance."""
    instance = _each(tensors, function)
    return lambda *i: instance(i[0])[i[1:]]


# --- Softmax with a loss, regression outputs -------------------------------------------


def _check_loss(normalization):
    if normalization != "null":
        raise InconclusiveError(f"normalization {normalization} counts the instances of a part")


def _is_dense(data, label):
    """Whether a label has a probability for each class."""
    return label.ndim == data.ndim and label.ones == data.ones


def _softmax_label(i, data, label, axes):
    """The label's index that goes with a line of classes."""
    ndim = data.ndim
    if _is_dense(data, label):
        return whole(i, axes)
    if axes == {ndim - 1}:
        return without(i, axes)
    if axes != {1}:
        raise InconclusiveError("several labels of an instance that is one line of classes")
    return at(i, 1, 0) if label.ndim == ndim else without(i, 1)


def _softmax_lines(function, data, label, axes):
    """An opaque function of a line of classes and its label."""
    line_of = Opaque(function)

    def element(*i):
        result = line_of(data[whole(i, axes)], label[_softmax_label(i, data, label, axes)])
        return result[tuple(i[d] for d in sorted(axes))]

    return element


def _softmax_axes(ndim, multi_output, preserve_shape):
    """The axes of a softmax: the channels, the last dimension, or all except the batch."""
    if multi_output:
        return {1}
    return {ndim - 1} if preserve_shape else set(range(1, ndim))


@op(name="SoftmaxOutput")
def softmax_output(data, label, *, multi_output=False, preserve_shape=False):
    """The softmax of each line; only the gradient uses the label."""
    if multi_output and label.ndim < data.ndim - 1:  # the label's space is one dimension
        return _every([data, label], "Softmax")
    axes = _softmax_axes(data.ndim, multi_output, preserve_shape)
    return _softmax_lines("Softmax", data, label, axes)


@op(name="_backward_SoftmaxOutput")
def backward_softmax_output(
    out, label, *, normalization="null", multi_output=False, preserve_shape=False
):
    """The gradients of data and label (zero); with channels, divided by the space's size."""
    if _is_dense(out, label):  # a difference, and nothing is counted
        return lambda *i: apply("sub", out[i], label[i]), lambda *i: like(0, label[i])
    _check_loss(normalization)
    if multi_output:
        gradient = _every([out, label], "SoftmaxGradient")
    else:
        axes = _softmax_axes(out.ndim, multi_output, preserve_shape)
        gradient = _softmax_lines("SoftmaxGradient", out, label, axes)
    shared = out.ndim - 1 if preserve_shape and not multi_output else 1
    variables = [f"i{d}" if d < shared else f"label{d}" for d in range(label.ndim)]
    nothing = Opaque("Zero")

    def by_label(*i):
        return nothing(label[i[:shared], _rest(label.ndim - shared)])[i[shared:]]

    return gradient, Over(variables, by_label)


_REGRESSION = ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput")


@op(name=_REGRESSION)
def regression_output(data, label):
    """A function of each element; only the gradient uses the label, which may be of other rank."""
    if label.ndim != data.ndim:
        return _every([data, label], "Regression")
    return lambda *i: like(apply("link", data[i]), label[i])


@op(name=("_backward_linear_reg_out", "_backward_logistic_reg_out", "_backward_mae_reg_out"))
def backward_regression_output(label, out):
    """Gradients over the number of elements of an instance: the batch may be split."""
    return (_every([label, out], "RegressionGradient"),) * 2


@op(name="_backward_MakeLoss")
def backward_make_loss(*, normalization="null", out_shapes):
    """A constant; counting the valid elements, or the batch, needs the whole tensor."""
    if normalization == "valid":
        raise InconclusiveError("normalization valid counts what the forward operator read")
    rows = math.prod(out_shapes[0][:-1]) if normalization == "batch" else 1
    return lambda *i: apply("scale", rows)


@op(name="SVMOutput")
def svm_output(data, label):
    """The element; only the gradient uses the label."""
    return lambda *i: like(data[i], label[i[0]])


@op(name="_backward_SVMOutput")
def backward_svm_output(label, out):
    """The gradient of data, from an instance's margins; zero for the label."""
    return *instances("n.", (label, "n"), (out, "n")), *zero(label, "n")


@op(name="_backward_IdentityAttachKLSparseReg")
def backward_identity_with_penalty(ograd, data, moving_avg):
    """The head gradient and a penalty on each column's mean."""
    return instances(".c", (ograd, ".c"), (data, ".c"), (moving_avg, "c"))


@op(name="CTCLoss")
def ctc_loss(data, label, *lengths):
    """The loss of each sequence, and its gradient with respect to data."""
    loss = Opaque("CTC")

    def sequence(n):
        return loss(data[:, n, :], label[n, :], *(x[n] for x in lengths))

    return lambda n: sequence(n), lambda t, n, c: sequence(n)[t, c]


@op(name="_backward_ctc_loss")
def backward_ctc_loss(ograd, zero, out, gradient, *, out_shapes):
    """The forward operator's own gradient, scaled; zero for the other inputs.

    MXNet refuses fewer steps than a label has, so a sequence is whole.
    """
    scaled = Opaque("Scaled")
    by_data = Over(["t", "n", "c"], lambda t, n, c: scaled(ograd[n], out[n], gradient[:, n, c])[t])
    others = [
        Over(["n", *names(len(s) - 1, f"l{k}_")], lambda n, *_: apply("zero", ograd[n]))
        for k, s in enumerate(out_shapes[1:])
    ]
    return (by_data, *others)


# --- Vision -----------------------------------------------------------------------------


@op(name="LRN")
def lrn(data):
    """Normalized over neighbouring channels, and the norm: channels are whole."""
    norm = Opaque("LRN")
    result = lambda *i: norm(data[whole(i, 1)])[i[1]]  # noqa: E731
    return result, result


@op(name="_backward_LRN")
def backward_lrn(ograd, data, saved):
    """The gradient of data."""
    norm = Opaque("LRNGradient")
    return lambda *i: norm(*(x[whole(i, 1)] for x in (ograd, data, saved)))[i[1]]


@op(name="GroupNorm")
def group_norm(data, gamma, beta):
    """Normalized over groups of channels of an instance, with means and deviations."""
    norm = Opaque("GroupNorm")

    def instance(n):
        return norm(data[n, _rest(data.ndim - 1)], gamma[:], beta[:])

    every = ["n", *names(data.ndim - 1, "i")]
    moments = lambda n, g: instance(n)[g]  # noqa: E731
    return Over(every, lambda n, *i: instance(n)[i]), moments, moments


@op(name="_backward_GroupNorm")
def backward_group_norm(ograd, data, gamma, mean, std):
    """The gradients of data, gamma and beta; the latter are sums over the batch."""
    norm = Opaque("GroupNormGradient")

    def instance(n):
        slices = (x[n, _rest(x.ndim - 1)] for x in (ograd, data, mean, std))
        return norm(*slices, gamma[:])

    every = ["n", *names(data.ndim - 1, "i")]
    parameter = Over(["g"], lambda g: Sum(lambda n: instance(n)[g]))
    return Over(every, lambda n, *i: instance(n)[i]), parameter, parameter


_RESAMPLING = ("_contrib_AdaptiveAvgPooling2D", "_backward_contrib_AdaptiveAvgPooling2D")


@op(name=_RESAMPLING)
def resample(data):
    """Space is resampled, channel by channel."""
    plane = Opaque("Resample")
    return lambda b, c, y, x: plane(data[b, c, :, :])[y, x]


@op(name="Pad")
def pad(data, *, pad_width):
    """Padded at some dimensions, which are whole."""
    padded = [d for d in range(data.ndim) if pad_width[2 * d] or pad_width[2 * d + 1]]
    word = line(data.ndim, padded)
    return instances(word, (data, word))


@op(name="_backward_Pad")
def backward_pad(ograd, *, pad_width):
    """The head gradient without the padding, or with the padding added up."""
    padded = [d for d in range(ograd.ndim) if pad_width[2 * d] or pad_width[2 * d + 1]]
    word = line(ograd.ndim, padded)
    return instances(word, (ograd, word))
