"""Linear algebra: products, factorisations and solvers of matrices, and their gradients.

The last two dimensions are matrices, the others a batch. A part of a factorisation has
whole matrices; a part of a solver may have some columns of the right-hand side.
"""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Reindex, Sum, adjoint, like, log, op
from tofu.tdl._shapes import at, axis_of, broadcast, names

# --- Products -----------------------------------------------------------------------------


def _product(lhs, rhs, transpose_a, transpose_b, axis):
    """The variables and the element of a product of matrices whose rows are along an axis."""
    row, last = axis_of(axis, lhs.ndim), lhs.ndim - 1
    every = at(at(names(lhs.ndim, "b"), row, "i"), last, "j")

    def place(index, rows, columns):
        return at(at(index, row, rows), last, columns)

    def element(*v):
        i, j = v[row], v[last]

        def term(k):
            a, b = (k, i) if transpose_a else (i, k), (j, k) if transpose_b else (k, j)
            return lhs[place(v, *a)] * rhs[place(v, *b)]

        return Sum(term)

    return every, element


@op(name=("_linalg_gemm", "_linalg_gemm2"))
def gemm(
    matrix, right, added=None, *, transpose_a=False, transpose_b=False, alpha=1.0, beta=1.0, axis=-2
):
    """A scaled product, plus a scaled matrix."""
    every, element = _product(matrix, right, transpose_a, transpose_b, axis)
    if added is None:
        return Over(every, lambda *v: alpha * element(*v))
    return Over(every, lambda *v: alpha * element(*v) + beta * added[v])


@op(name=("_backward_linalg_gemm", "_backward_linalg_gemm2"))
def backward_gemm(
    ograd,
    matrix,
    right,
    added=None,
    *,
    transpose_a=False,
    transpose_b=False,
    alpha=1.0,
    beta=1.0,
    axis=-2,
):
    """The gradients of the factors and of the added matrix."""
    every, element = _product(matrix, right, transpose_a, transpose_b, axis)
    by_factors = adjoint(Over(every, lambda *v: alpha * element(*v)), ograd, [matrix, right])
    if added is None:
        return tuple(by_factors)
    return (*by_factors, Over(every, lambda *v: like(beta * ograd[v], added[v])))


@op(name="_linalg_syrk")
def syrk(matrix, *, transpose=False, alpha=1.0):
    """A scaled product of a matrix and its transpose, in either order."""

    def element(*v, i, j):
        if transpose:
            return alpha * Sum(lambda k: matrix[v, k, i] * matrix[v, k, j])
        return alpha * Sum(lambda k: matrix[v, i, k] * matrix[v, j, k])

    return element


@op(name="_backward_linalg_syrk")
def backward_syrk(ograd, matrix, *, transpose=False, alpha=1.0):
    """The product of A and of the head gradient's symmetric part."""

    def element(*v, i, k):
        if transpose:
            return alpha * Sum(lambda j: matrix[v, i, j] * (ograd[v, j, k] + ograd[v, k, j]))
        return alpha * Sum(lambda j: (ograd[v, i, j] + ograd[v, j, i]) * matrix[v, j, k])

    return element


@op(name="khatri_rao")
def khatri_rao(*args):
    """The products of one row of each matrix, all rows with all rows."""
    rows = [x.shape[0] for x in args]

    def flat(*v):
        place = 0
        for i, size in zip(v, rows):
            place = place * size + i
        return place, v[-1]

    def product(*v):
        value = args[0][v[0], v[-1]]
        for x, i in zip(args[1:], v[1:]):
            value = value * x[i, v[-1]]
        return value

    every = [*names(len(args)), "k"]
    return Reindex(every, [*rows, args[0].shape[1]], at=flat, value=product)


# --- With a triangular or general matrix and a right-hand side ------------------------------


def _columns(matrix, others, rightside, function):
    """The lambda of an opaque function of a matrix and of one column (or row) of others."""
    of = Opaque(function)

    def line(v, i, j):
        return (v, i, slice(None)) if rightside else (v, slice(None), j)

    def element(*v):
        b, i, j = v[:-2], v[-2], v[-1]
        value = of(matrix[b, :, :], *(x[line(b, i, j)] for x in others))
        return value[j if rightside else i]

    return Over([*names(matrix.ndim - 2, "b"), "i", "j"], element)


def _by_matrix(matrix, others, rightside, function):
    """The gradient of the matrix: a sum over columns (or rows)."""
    of = Opaque(function)

    def element(*v):
        b = v[:-2]

        def term(c):
            line = (b, c, slice(None)) if rightside else (b, slice(None), c)
            return of(matrix[b, :, :], *(x[line] for x in others))[v[-2], v[-1]]

        return Sum(Over(["i" if rightside else "j"], term))

    return Over([*names(matrix.ndim - 2, "b"), "m", "n"], element)


@op(name=("_linalg_trmm", "_linalg_trsm"))
def triangular(matrix, right, *, rightside=False):
    """The product or solution of a triangular matrix with columns of another."""
    return _columns(matrix, [right], rightside, "Triangular")


@op(name=("_backward_linalg_trmm", "_backward_linalg_trsm"))
def backward_triangular(ograd, matrix, *others, rightside=False):
    """The gradients of both matrices."""
    lines = [ograd, *others]
    return (
        _by_matrix(matrix, lines, rightside, "TriangularGradient"),
        _columns(matrix, lines, rightside, "TriangularGradient"),
    )


@op(name="_npi_solve")
def solve(matrix, right):
    """The solutions for the columns of a right-hand side, or for the right-hand side as one."""
    if right.ndim == matrix.ndim:
        return _columns(matrix, [right], False, "Solve")
    one = Opaque("Solve")
    return lambda *b, i: one(matrix[b, :, :], right[b, :])[i]


@op(name="_backward_npi_solve")
def backward_solve(ograd, matrix, right, out):
    """The gradients of the matrix and the right-hand side."""
    if right.ndim < matrix.ndim:
        raise InconclusiveError("the gradient of a solution for vectors is not described")
    lines = [ograd, right, out]
    return (
        _by_matrix(matrix, lines, False, "SolveGradient"),
        _columns(matrix, lines, False, "SolveGradient"),
    )


# --- Of whole matrices --------------------------------------------------------------------


def _each(tensors, batch, out_shapes, function):
    """The lambdas of an opaque function of the tensors' slices, one per batch element."""
    of, b = Opaque(function), names(batch, "b")

    def one(number, shape):
        variables = names(len(shape) - batch, f"o{number}_")

        def element(*v):
            slices = (x[(*v[:batch], *(slice(None),) * (x.ndim - batch))] for x in tensors)
            return of(*slices)[v[batch:]]

        return Over([*b, *variables], element)

    return tuple(one(k, shape) for k, shape in enumerate(out_shapes))


_FACTORISATIONS = (
    *("_linalg_potrf", "_linalg_potri", "_linalg_gelqf", "_linalg_syevd", "_linalg_inverse"),
    *("_linalg_det", "_linalg_slogdet", "_linalg_extracttrian", "_npi_cholesky", "_npi_svd"),
    *("_npi_eig", "_npi_eigh", "_npi_eigvals", "_npi_eigvalsh", "_npi_pinv_scalar_rcond"),
)
_FROM_VECTORS = ("_linalg_makediag", "_linalg_maketrian")
_GRADIENTS = (
    *("potrf", "potri", "gelqf", "syevd", "inverse", "det", "slogdet"),
    *("extractdiag", "extracttrian", "sumlogdiag"),
)


@op(name=_FACTORISATIONS)
def factorisation(matrix, *, out_shapes):
    """A function of whole matrices."""
    return _each([matrix], matrix.ndim - 2, out_shapes, "Factorisation")


@op(name=_FROM_VECTORS)
def from_vectors(matrix, *, out_shapes):
    """Matrices made from vectors."""
    return _each([matrix], matrix.ndim - 1, out_shapes, "Matrix")


@op(name=(*(f"_backward_linalg_{name}" for name in _GRADIENTS), "_backward_npi_svd"))
def backward_factorisation(*args, out_shapes):
    """The gradients of whole matrices under such a function."""
    return _each(args, len(out_shapes[0]) - 2, out_shapes, "FactorisationGradient")


@op(name=("_backward_linalg_makediag", "_backward_linalg_maketrian"))
def backward_from_vectors(*args, out_shapes):
    """The gradients of vectors from which matrices were made."""
    return _each(args, len(out_shapes[0]) - 1, out_shapes, "MatrixGradient")


@op(name="_npi_pinv")
def pseudo_inverse(matrix, rcond):
    """The pseudo-inverses, with a bound for small singular values for each or for all."""
    of, ones = Opaque("PseudoInverse"), matrix.ones[:-2]
    return lambda *b, i, j: of(matrix[b, :, :], broadcast(rcond, b, ones))[i, j]


@op(name="_linalg_sumlogdiag")
def sum_log_diagonal(matrix, *, out_shapes):
    """The sum of the logarithms of each diagonal."""
    batch = names(matrix.ndim - 2, "b") or names(len(out_shapes[0]), "one")
    return Over(batch, lambda *b: Sum(lambda d: log(matrix[b[: matrix.ndim - 2], d, d])))


@op(name="_linalg_extractdiag")
def extract_diagonal(matrix, *, offset=0, out_shapes):
    """The diagonals; parts of any but the main one would not be square."""
    if offset:
        return _each([matrix], matrix.ndim - 2, out_shapes, "Diagonal")
    return lambda *b, d: matrix[b, d, d]
