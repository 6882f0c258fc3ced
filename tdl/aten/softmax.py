"""Softmax along a dimension, which is whole, and its gradients; logarithms of sums."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Sum, apply, exp, log, op
from tofu.tdl._shapes import axes_of, axis_of, broadcast, names, whole


def _lines(tensors, dim):
    if not tensors[0].ndim:
        return lambda: apply("softmax", *(x[()] for x in tensors))
    axis = axis_of(dim, tensors[0].ndim)
    line = Opaque("Softmax")
    return lambda *i: line(*(x[whole(i, axis)] for x in tensors))[i[axis]]


@op(name=("aten._softmax.default", "aten._safe_softmax.default"))
def softmax(data, *, dim):
    """Exponentials that add up to one."""
    return _lines([data], dim)


@op(name="aten._softmax_backward_data.default")
def softmax_backward(grad, output, *, dim):
    """The gradient of the data."""
    return _lines([grad, output], dim)


@op(name="tofu.log_sum_exp.default")
def log_sum_exp(data, *, dim):
    """The logarithm of the sum of exponentials along some dimensions, which stay with size 1."""
    every, axes = names(data.ndim), axes_of(dim, data.ndim)
    summed = [every[d] for d in axes]

    def element(*index):
        def term(*values):
            by_name = {**dict(zip(every, index)), **dict(zip(summed, values))}
            return exp(data[[by_name[name] for name in every]])

        return log(Sum(Over(summed, term)))

    return Over([f"one{d}" if d in axes else every[d] for d in range(data.ndim)], element)


@op(name="tofu.log_softmax_backward.default")
def log_softmax_backward(grad, output, total):
    """The gradient of the data, of the output's and the sums of it."""
    return lambda *i: grad[i] - exp(output[i]) * broadcast(total, i, grad.ones)


@op(name="tofu.difference.default")
def difference(data, logs):
    """The data less one number for each line."""
    return lambda *i: data[i] - broadcast(logs, i, data.ones)
