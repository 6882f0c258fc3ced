"""Softmax along a dimension, which is whole, and its gradients."""

from __future__ import annotations

from tofu.lang import Opaque, apply, op
from tofu.tdl._shapes import axis_of, whole


def _lines(tensors, dim):
    axis = axis_of(dim, tensors[0].ndim)
    line = Opaque("Softmax")
    if not tensors[0].ndim:
        return lambda: apply("softmax", *(x[()] for x in tensors))
    return lambda *i: line(*(x[whole(i, axis)] for x in tensors))[i[axis]]


@op(name=("aten._softmax.default", "aten._log_softmax.default", "aten._safe_softmax.default"))
def softmax(data, *, dim):
    """Exponentials, or their logarithms, that add up to one."""
    return _lines([data], dim)


@op(name=("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"))
def softmax_backward(grad, output, *, dim):
    """The gradient of the data."""
    return _lines([grad, output], dim)
