"""Matrix products: FullyConnected, dot, batch_dot; and their gradients."""

from __future__ import annotations

import math

from tofu.errors import InconclusiveError
from tofu.lang import Over, Reindex, Rewrite, Sum, adjoint, like, op
from tofu.tdl._shapes import instances, names

_OUT = Rewrite("num_hidden", {"size": "o"})
_WORDS = {"b": "batch", "o": "output features", "i": "input features", "c": "input features"}


def _strides(shape):
    """Row-major strides of the dimensions after the first."""
    return [math.prod(shape[d + 1 :]) for d in range(1, len(shape))]


def _flat(index, strides):
    """The position in the flattened dimensions."""
    return sum((v * s for v, s in zip(index, strides)), 0)


def _fully_connected(data, weight, bias, flatten):
    """The output's lambda: over the batch dimensions and o."""
    if not flatten or data.ndim == 2:
        batch = names(data.ndim - 1, "b")

        def element(*v):
            b, o = v[:-1], v[-1]
            return Sum(lambda i: data[(*b, i)] * weight[o, i])

    else:
        batch = ["b0"]
        strides = _strides(data.shape)
        features = names(data.ndim - 1, "c")

        def term(b, o, *c):
            return data[b, c] * weight[o, _flat(c, strides)]

        def element(b, o):
            if not features:  # a single feature each, as of an array of one dimension
                return term(b, o)
            return Sum(Over(features, lambda *c: term(b, o, *c)))

    if bias is None:
        return Over([*batch, "o"], element)
    return Over([*batch, "o"], lambda *v: element(*v) + bias[v[-1]])


@op(name="FullyConnected", rewrites=[_OUT], variables=_WORDS)
def fully_connected(data, weight, bias=None, *, flatten=True):
    """The product data weight^T + bias, over the last dimension or over all but the first."""
    return _fully_connected(data, weight, bias, flatten)


@op(name="_backward_FullyConnected", rewrites=[_OUT], variables=_WORDS)
def backward_fully_connected(ograd, data, weight, *, flatten=True, no_bias=False):
    """The gradients of data, weight and bias."""
    if not flatten or data.ndim == 2:
        batch = names(data.ndim - 1, "b")
        gradients = adjoint(_fully_connected(data, weight, None, flatten), ograd, [data, weight])
    else:
        batch = ["b0"]
        gradients = _backward_flattened(ograd, data, weight)
    if no_bias:
        return tuple(gradients)
    return (*gradients, Over(["o"], lambda o: Sum(Over(batch, lambda *b: ograd[b, o]))))


@op(name="_backward_backward_FullyConnected", rewrites=[_OUT])
def backward_twice_fully_connected(by_data, by_weight, *args):
    """Zero for the output's gradient, which is last; the gradients of data and weight."""
    ograd = args[-1]
    if by_data.ndim != 2:
        raise InconclusiveError("second gradients of flattened data are not described")
    return (
        *instances("bo", (ograd, "bo")),
        lambda b, i: Sum(lambda o: ograd[b, o] * by_weight[o, i]),
        lambda o, i: Sum(lambda b: ograd[b, o] * by_data[b, i]),
    )


def _backward_flattened(ograd, data, weight):
    """With the features in several dimensions of data and in one of weight."""
    features, strides = names(data.ndim - 1, "c"), _strides(data.shape)

    def by_data(b, *c):
        value = Sum(lambda o: ograd[b, o] * weight[o, _flat(c, strides)])
        return like(value, data[b, c])

    def by_weight(o, *c):
        value = Sum(lambda b0: ograd[b0, o] * data[b0, c])
        return like(value, weight[o, _flat(c, strides)])

    extents = (weight.shape[0], *data.shape[1:])
    weight_gradient = Reindex(
        ["o", *features],
        extents,
        at=lambda o, *c: (o, _flat(c, strides)),
        value=by_weight,
    )
    return [Over(["b0", *features], by_data), weight_gradient]


def _dot(lhs, rhs, transpose_a, transpose_b):
    """The product over the last dimension of lhs and the first of rhs."""
    left = names(lhs.ndim - 1)
    right = names(rhs.ndim - 1, "j")

    def element(*v):
        i, j = v[: len(left)], v[len(left) :]
        return Sum(
            lambda k: (
                lhs[(k, *i) if transpose_a else (*i, k)] * rhs[(*j, k) if transpose_b else (k, *j)]
            )
        )

    return left, right, element


@op(name="dot")
def dot(lhs, rhs, *, transpose_a=False, transpose_b=False):
    """The matrix product; vectors give a scalar of shape (1,)."""
    left, right, element = _dot(lhs, rhs, transpose_a, transpose_b)
    if not left and not right:
        return Over(["one0"], lambda _: element())
    return Over([*left, *right], element)


@op(name="_backward_dot")
def backward_dot(ograd, lhs, rhs, *, transpose_a=False, transpose_b=False):
    """The gradients of both operands."""
    left, right, element = _dot(lhs, rhs, transpose_a, transpose_b)
    if not left and not right:
        return lambda i: ograd[0] * rhs[i], lambda i: ograd[0] * lhs[i]
    return tuple(adjoint(Over([*left, *right], element), ograd, [lhs, rhs]))


@op(name="batch_dot")
def batch_dot(lhs, rhs, *, transpose_a=False, transpose_b=False):
    """A matrix product for every index of the leading dimensions."""
    batch = names(lhs.ndim - 2, "b")

    def element(*v):
        b, i, j = v[:-2], v[-2], v[-1]
        return Sum(
            lambda k: (
                lhs[(*b, k, i) if transpose_a else (*b, i, k)]
                * rhs[(*b, j, k) if transpose_b else (*b, k, j)]
            )
        )

    return Over([*batch, "i", "j"], element)
