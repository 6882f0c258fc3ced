"""Operators with data as indices; the dimensions that they index are whole."""

from __future__ import annotations

from tofu import lang
from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Rewrite, Sum, apply, like, op
from tofu.tdl._shapes import axis_of, instances, line, names, whole, without, zero

_TO_SHAPE = (Rewrite("shape", {"output_shape": 0}),)


@op(name="Embedding", rewrites=[Rewrite("output_dim", {"size": "d"})])
def embedding(data, weight):
    """The row of weight that each element of data names."""
    row = Opaque("Row")
    return lambda *i, d: row(data[i], weight[:, d])


@op(name="_backward_Embedding", rewrites=[Rewrite("output_dim", {"size": "d"})])
def backward_embedding(ograd, data, *, sparse_grad=False):
    """The gradients of data, which is zero, and of weight: a sum over all of data."""
    if sparse_grad:
        raise InconclusiveError("a sparse gradient is not described")
    rows = Opaque("Rows")
    tokens = names(data.ndim)
    return (
        Over(tokens, lambda *i: like(0, data[i])),
        lambda v, d: Sum(Over(tokens, lambda *i: rows(ograd[i, d], data[i])[v])),
    )


@op(name="take")
def take(a, indices, *, axis=0):
    """Slices of a along an axis, by number."""
    axis = axis_of(axis, a.ndim)
    outer, inner = names(a.ndim, "a"), names(indices.ndim)
    pick_one = Opaque("Take")
    variables = [*outer[:axis], *inner, *outer[axis + 1 :]]

    def element(*v):
        i = v[axis : axis + len(inner)]
        rest = (*v[:axis], slice(None), *v[axis + len(inner) :])
        return pick_one(a[rest], indices[i])

    return Over(variables, element)


@op(name="_backward_take")
def backward_take(ograd, indices, *, axis=0, out_shapes):
    """The gradients of a, a sum over the indices, and of the indices, which is zero."""
    ndim = len(out_shapes[0])
    axis = axis_of(axis, ndim)
    outer, inner = names(ndim, "a"), names(indices.ndim)
    add_to = Opaque("AddTo")

    def by_a(*v):
        return Sum(
            Over(inner, lambda *i: add_to(ograd[v[:axis], i, v[axis + 1 :]], indices[i])[v[axis]])
        )

    return Over(outer, by_a), Over(inner, lambda *i: like(0, indices[i]))


@op(name="pick")
def pick(data, index, *, axis=-1, keepdims=False):
    """One element along an axis, by number."""
    if axis is None:
        raise InconclusiveError("pick of the flattened tensor is not described")
    axis = axis_of(axis, data.ndim)
    choose = Opaque("Pick")
    every = names(data.ndim)
    every[axis] = f"one{axis}"
    variables = every if keepdims else list(without(every, axis)) or ["one0"]

    def element(*v):
        by_name = dict(zip(variables, v))
        place = [by_name.get(name, 0) for name in every]
        chosen = place if index.ndim == data.ndim else without(place, axis) or (0,)
        return choose(data[whole(place, axis)], index[chosen])

    return Over(variables, element)


@op(name="_backward_pick")
def backward_pick(ograd, index, *, axis=-1, keepdims=False, out_shapes):
    """The head gradient at the picked place, else zero."""
    if axis is None:
        raise InconclusiveError("pick of the flattened tensor is not described")
    ndim = len(out_shapes[0])
    axis = axis_of(axis, ndim)
    place = Opaque("Place")

    def element(*i):
        rest = without(i, axis) or (0,)
        first = (*i[:axis], 0, *i[axis + 1 :])
        return place(
            ograd[first if ograd.ndim == ndim else rest],
            index[first if index.ndim == ndim else rest],
        )[i[axis]]

    return element


@op(name="one_hot")
def one_hot(indices):
    """1 where the position along a new axis is the index."""
    return lambda *i, k: apply("equal", indices[i], k)


@op(name="where")
def where(condition, x, y):
    """Either x or y by a condition, which may have only the first dimension."""
    if condition.ndim != x.ndim:
        return lambda *i: lang.where(condition[i[0]], x[i], y[i])
    return lambda *i: lang.where(condition[i], x[i], y[i])


@op(name="_backward_where")
def backward_where(ograd, condition):
    """The head gradient for the operand that was chosen."""

    def chosen(i):
        return condition[i if condition.ndim == ograd.ndim else i[0]]

    return (
        lambda *i: apply("if_chosen", ograd[i], chosen(i)),
        lambda *i: apply("if_not_chosen", ograd[i], chosen(i)),
    )


@op(name="batch_take")
def batch_take(a, indices):
    """One element of each row."""
    return instances("n", (a, "n"), (indices, "n"))


def _rest(indices, ndim):
    """Dots for the dimensions that the indices choose, letters for the others."""
    chosen = indices.shape[0]
    return line(ndim, range(chosen)), "stuvwxyz"[: indices.ndim - 1]


@op(name="gather_nd")
def gather_nd(data, indices):
    """Slices of data at positions given by columns of the indices."""
    rest, places = _rest(indices, data.ndim)
    return instances(places + rest.replace(".", ""), (data, rest), (indices, "." + places))


@op(name="_backward_gather_nd", rewrites=_TO_SHAPE)
def backward_gather_nd(ograd, indices, *, out_shapes):
    """The head gradients, added up where elements were read."""
    rest, places = _rest(indices, len(out_shapes[0]))
    return instances(rest, (ograd, places + rest.replace(".", "")), (indices, "." + places))


@op(name="scatter_nd", rewrites=_TO_SHAPE)
def scatter_nd(data, indices, *, out_shapes):
    """Slices at positions given by columns of the indices; of two at one position, either."""
    rest, places = _rest(indices, len(out_shapes[0]))
    return instances(rest, (data, "." * len(places) + rest.replace(".", "")), (indices, ""))


@op(name="_scatter_set_nd", rewrites=_TO_SHAPE)
def scatter_set_nd(lhs, rhs, indices, *, out_shapes):
    """A tensor with slices replaced."""
    rest, places = _rest(indices, lhs.ndim)
    reads = (lhs, rest), (rhs, "." * len(places) + rest.replace(".", "")), (indices, "")
    return instances(rest, *reads)


@op(name="_contrib_index_copy")
def index_copy(old, index, new):
    """A tensor with slices of its first dimension replaced."""
    rest = line(old.ndim, 0)
    return instances(rest, (old, rest), (index, ""), (new, rest))


@op(name="_contrib_backward_index_copy")
def backward_index_copy(ograd, old, index, new):
    """The gradient of the data, zero where slices were replaced; zero; that of the new slices."""
    rest = line(old.ndim, 0)
    reads = (ograd, rest), (old, rest), (index, ""), (new, rest)
    by_old, by_new = instances(f"{rest} {rest}", *reads)
    return by_old, *zero(index, ""), by_new
