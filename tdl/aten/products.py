"""Products of matrices and vectors."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Sum, op


@op(name="aten.mm.default")
def mm(left, right):
    """The product of two matrices."""
    return lambda i, j: Sum(lambda k: left[i, k] * right[k, j])


@op(name="aten.bmm.default")
def bmm(left, right):
    """The product of two matrices for every index of the batch."""
    return lambda b, i, j: Sum(lambda k: left[b, i, k] * right[b, k, j])


def _bias(bias, index):
    """The element of a bias that broadcasting puts at an index."""
    skipped = len(index) - bias.ndim
    return bias[tuple(0 if one else index[d + skipped] for d, one in enumerate(bias.ones))]


@op(name="aten.addmm.default")
def addmm(bias, left, right):
    """The product of two matrices, plus a matrix, or a vector for every row."""
    return lambda i, j: Sum(lambda k: left[i, k] * right[k, j]) + _bias(bias, (i, j))


@op(name="aten.baddbmm.default")
def baddbmm(bias, left, right):
    """The same for every index of the batch."""
    return lambda b, i, j: Sum(lambda k: left[b, i, k] * right[b, k, j]) + _bias(bias, (b, i, j))


@op(name="aten.mv.default")
def mv(matrix, vector):
    """The product of a matrix and a vector."""
    return lambda i: Sum(lambda k: matrix[i, k] * vector[k])


@op(name="aten.addmv.default")
def addmv(bias, matrix, vector):
    """The same plus a vector."""
    return lambda i: Sum(lambda k: matrix[i, k] * vector[k]) + _bias(bias, (i,))


@op(name=("aten.dot.default", "aten.vdot.default"))
def dot(left, right):
    """The inner product of two vectors."""
    return lambda: Sum(lambda k: left[k] * right[k])


@op(name="tofu.grouped_mm.default")
def grouped_mm(data, weight, starts, ends):
    """Rows times the matrices of their groups; each group adds its rows."""
    rows = Opaque("Rows")

    def element(row, out):
        def term(group, k):
            return rows(data[:, k], weight[group, k, out], starts[group], ends[group])[row]

        return Sum(Over(["group", "k"], term))

    return element


@op(name="tofu.grouped_mm_weight.default")
def grouped_mm_weight(data, grad, starts, ends):
    """The gradient of each group's matrix, of the group's rows."""
    rows = Opaque("Rows")
    return lambda group, k, out: rows(data[:, k], grad[:, out], starts[group], ends[group])
