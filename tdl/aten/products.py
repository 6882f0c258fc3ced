"""Products of matrices and vectors."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Sum, op
from tofu.tdl._shapes import axis_of, broadcast, broadcast_ones, instances, letters, names, whole


@op(name="aten.mm.default")
def mm(left, right):
    """The product of two matrices."""
    return lambda i, j: Sum(lambda k: left[i, k] * right[k, j])


@op(name="aten.matmul.default")
def matmul(data, matrix):
    """The product of every line of the data with a matrix."""
    return lambda *i, j: Sum(lambda k: data[i, k] * matrix[k, j])


@op(name="aten.linear.default")
def linear(data, weight, bias=None):
    """The product of every line of the data with a transposed matrix, plus a bias."""

    def element(*i, j):
        product = Sum(lambda k: data[i, k] * weight[j, k])
        return product if bias is None else product + bias[j]

    return element


@op(name="aten.tensordot.default")
def tensordot(left, right, *, dims_self, dims_other):
    """Sums of products over some dimensions of both tensors."""
    summed = [f"k{n}" for n in range(len(dims_self))]
    names = [
        [summed[dims.index(d)] if d in dims else f"{side}{d}" for d in range(tensor.ndim)]
        for side, tensor, dims in (("i", left, dims_self), ("j", right, dims_other))
    ]
    kept = [name for each in names for name in each if name not in summed]

    def element(*index):
        def term(*values):
            by_name = {**dict(zip(kept, index)), **dict(zip(summed, values))}
            here = [[by_name[name] for name in each] for each in names]
            return left[here[0]] * right[here[1]]

        return Sum(Over(summed, term))

    return Over(kept, element)


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


@op(name="aten.addbmm.default")
def addbmm(bias, left, right):
    """The sum of the products of all indices of the batch, plus a matrix."""

    def element(i, j):
        return Sum(lambda b, k: left[b, i, k] * right[b, k, j]) + _bias(bias, (i, j))

    return element


@op(name="aten.addr.default")
def addr(bias, left, right):
    """The products of all elements of two vectors, plus a matrix."""
    return lambda i, j: _bias(bias, (i, j)) + left[i] * right[j]


@op(name="aten._cdist_forward.default")
def distances(left, right):
    """The distance of every line of one tensor from every line of another."""
    batch = _batch(2, left, right)
    return instances(batch + "pr", (left, batch + "p"), (right, batch + "r"))


@op(name="aten._cdist_backward.default")
def distances_backward(grad, left, right, distance):
    """The gradient of the first tensor's lines, added up over those of the second."""
    batch = _batch(2, grad, left, right, distance)
    pairs, line = batch + "pr", batch + "p"
    return instances(
        line + ".", (grad, pairs), (left, line), (right, batch + "r"), (distance, pairs)
    )


@op(name="aten.linalg_cross.default")
def cross(left, right, *, dim=-1):
    """The cross product of vectors along a dimension, which is whole."""
    axis, ones = axis_of(dim, left.ndim), broadcast_ones(left, right)
    product = Opaque("Cross")
    return lambda *i: product(*(broadcast(x, whole(i, axis), ones) for x in (left, right)))[i[axis]]


@op(name="aten._trilinear.default")
def trilinear(left, middle, right, *, expand1, expand2, expand3, sumdim):
    """Products of three tensors, each without some of all dimensions, added up over others."""
    every = names(left.ndim + len(expand1))
    factors = ((left, expand1), (middle, expand2), (right, expand3))
    summed = [every[d] for d in sumdim]
    kept = [name for name in every if name not in summed]

    def element(*index):
        def term(*values):
            by_name = {**dict(zip(kept, index)), **dict(zip(summed, values))}
            one, two, three = (
                x[[by_name[name] for d, name in enumerate(every) if d not in without]]
                for x, without in factors
            )
            return one * two * three

        return Sum(Over(summed, term))

    return Over(kept, element)


def _batch(inner, *tensors):
    """Variables of the leading dimensions, which are the same for all tensors."""
    count = tensors[0].ndim - inner if tensors else 0
    if not tensors or len({tuple(x.shape[:count]) for x in tensors}) > 1:
        raise InconclusiveError("matrices whose batches differ")
    return letters(count)


@op(
    name=(
        *("aten.cholesky.default", "aten.linalg_cholesky_ex.default", "aten.linalg_qr.default"),
        *("aten.linalg_inv_ex.default", "aten.linalg_matrix_exp.default", "aten.geqrf.default"),
        *("aten._linalg_det.default", "aten._linalg_slogdet.default", "aten._linalg_svd.default"),
        *("aten.linalg_lu_factor_ex.default", "aten.linalg_lu_solve.default"),
        *("aten.linalg_ldl_factor_ex.default", "aten._linalg_solve_ex.default"),
        *("aten.linalg_ldl_solve.default", "aten.linalg_lu.default"),
        *("aten.linalg_solve_triangular.default", "aten.triangular_solve.default"),
        *("aten.lu_unpack.default", "aten._linalg_eigh.default", "aten.ormqr.default"),
        *("aten.cholesky_solve.default", "aten.cholesky_inverse.default"),
        *("aten.linalg_householder_product.default", "aten.linalg_pinv.atol_rtol_tensor"),
    )
)
def matrices(*tensors, out_shapes):
    """Functions of whole matrices, separate for each index of the batch."""
    batch = _batch(2, *tensors)
    if any(
        tuple(shape[: len(batch)]) != tuple(tensors[0].shape[: len(batch)]) for shape in out_shapes
    ):
        raise InconclusiveError("outputs without the batch")
    outputs = [batch + "." * (len(shape) - len(batch)) for shape in out_shapes]
    if not all(outputs):
        raise InconclusiveError("a single matrix")
    return instances(" ".join(outputs), *((x, batch) for x in tensors))


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
