"""Products of matrices and vectors."""

from __future__ import annotations

import tofu


@tofu.op(name="aten.mm.default")
def mm(left, right):
    """The product of two matrices."""
    return lambda i, j: tofu.Sum(lambda k: left[i, k] * right[k, j])


@tofu.op(name="aten.bmm.default")
def bmm(left, right):
    """The product of two matrices for every index of the batch."""
    return lambda b, i, j: tofu.Sum(lambda k: left[b, i, k] * right[b, k, j])


def _bias(bias, index):
    """The element of a bias that broadcasting puts at an index."""
    skipped = len(index) - bias.ndim
    return bias[tuple(0 if one else index[d + skipped] for d, one in enumerate(bias.ones))]


@tofu.op(name="aten.addmm.default")
def addmm(bias, left, right):
    """The product of two matrices, plus a matrix, or a vector for every row."""
    return lambda i, j: tofu.Sum(lambda k: left[i, k] * right[k, j]) + _bias(bias, (i, j))


@tofu.op(name="aten.baddbmm.default")
def baddbmm(bias, left, right):
    """The same for every index of the batch."""
    return lambda b, i, j: (
        tofu.Sum(lambda k: left[b, i, k] * right[b, k, j]) + _bias(bias, (b, i, j))
    )


@tofu.op(name="aten.mv.default")
def mv(matrix, vector):
    """The product of a matrix and a vector."""
    return lambda i: tofu.Sum(lambda k: matrix[i, k] * vector[k])


@tofu.op(name="aten.addmv.default")
def addmv(bias, matrix, vector):
    """The same plus a vector."""
    return lambda i: tofu.Sum(lambda k: matrix[i, k] * vector[k]) + _bias(bias, (i,))


@tofu.op(name=("aten.dot.default", "aten.vdot.default"))
def dot(left, right):
    """The inner product of two vectors."""
    return lambda: tofu.Sum(lambda k: left[k] * right[k])
