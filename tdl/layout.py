"""Operators that rearrange elements: blocks, patches, copies, diagonals, pieces."""

from __future__ import annotations

import math

from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, apply, op
from tofu.tdl._shapes import axis_of, instances, letters, line, names

# --- Blocks and patches ---------------------------------------------------------------------


@op(name="space_to_depth")
def space_to_depth(data, *, block_size):
    """Squares of space become channels."""
    n, c, y, x = data.shape
    b = block_size
    return Reindex(
        ["n", "c", "y", "x", "u", "v"],
        [n, c, y // b, x // b, b, b],
        at=lambda n, k, y, x, u, v: (n, (u * b + v) * c + k, y, x),
        value=lambda n, k, y, x, u, v: data[n, k, y * b + u, x * b + v],
    )


@op(name="depth_to_space")
def depth_to_space(data, *, block_size):
    """Channels become squares of space."""
    n, c, y, x = data.shape
    b = block_size
    c //= b * b
    return Reindex(
        ["n", "c", "y", "x", "u", "v"],
        [n, c, y, x, b, b],
        at=lambda n, k, y, x, u, v: (n, k, y * b + u, x * b + v),
        value=lambda n, k, y, x, u, v: data[n, (u * b + v) * c + k, y, x],
    )


def _patches(data, kernel, places):
    """Each window of each plane as a column."""
    taps, plane = math.prod(kernel), Opaque("Patches")
    return Reindex(
        ["n", "c", "k", "p"],
        [data.shape[0], data.shape[1], taps, places],
        at=lambda n, c, k, p: (n, c * taps + k, p),
        value=lambda n, c, k, p: plane(data[(n, c, *[slice(None)] * len(kernel))])[k, p],
    )


def _planes(data, kernel):
    """Columns added up to planes."""
    taps, plane = math.prod(kernel), Opaque("Plane")
    space = names(len(kernel), "y")

    def element(n, c, *y):
        term = Sum(lambda k: plane(data[n, c * taps + k, :])[y], extent=taps)
        return apply("plane", term)

    return Over(["n", "c", *space], element)


@op(name="im2col")
def im2col(data, *, kernel, out_shapes):
    """Each window of each plane as a column."""
    return _patches(data, kernel, out_shapes[0][2])


@op(name="_backward_col2im")
def backward_col2im(ograd, *, kernel, out_shapes):
    """The head gradient's windows."""
    return _patches(ograd, kernel, out_shapes[0][2])


@op(name=("col2im", "_backward_im2col"))
def col2im(data, *, kernel):
    """Columns added up to planes."""
    return _planes(data, kernel)


# --- Copies -----------------------------------------------------------------------------------


def _copies(ndim, reps):
    """The number of copies per output dimension, at least one number per dimension."""
    reps = tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    return (1,) * max(ndim - len(reps), 0) + reps


def _tile_sizes(shapes, reps=(), **_):
    copies = _copies(len(shapes[0]), reps)
    return [Rewrite("reps", {"sizes": names(len(copies), "r")})]


@op(name="tile", rewrites=_tile_sizes)
def tile(data, *, reps):
    """The whole tensor several times along each dimension."""
    copies = _copies(data.ndim, reps)
    skipped = len(copies) - data.ndim
    extents = (*(1,) * skipped, *data.shape)
    count = len(copies)

    return Reindex(
        [*names(count, "r"), *names(count)],
        [*copies, *extents],
        at=lambda *v: tuple(v[d] * extents[d] + v[count + d] for d in range(count)),
        value=lambda *v: data[v[count + skipped :]],
    )


@op(name="_backward_tile", rewrites=_tile_sizes)
def backward_tile(ograd, *, reps, out_shapes):
    """The sum over the copies."""
    shape = out_shapes[0]
    copies = _copies(len(shape), reps)
    skipped = len(copies) - len(shape)
    extents = (*(1,) * skipped, *shape)

    def element(*i):
        place = (*(0,) * skipped, *i)
        term = lambda *r: ograd[tuple(c * n + v for c, n, v in zip(r, extents, place))]  # noqa: E731
        return Sum(Over(names(len(copies), "r"), term), extent=copies)

    return Over(names(len(copies))[skipped:], element)


# --- Diagonals --------------------------------------------------------------------------------


@op(name="diag")
def diag(data, *, axis1=0, axis2=1):
    """The diagonal of two dimensions, or a matrix of that diagonal."""
    if data.ndim == 1:
        return instances("..", (data, ""))
    two = axis_of(axis1, data.ndim), axis_of(axis2, data.ndim)
    batch = line(data.ndim, two)
    return instances(batch.replace(".", "") + ".", (data, batch))


@op(name="_backward_diag")
def backward_diag(ograd, *, axis1=0, axis2=1, out_shapes):
    """The head gradient on the diagonal, or its diagonal."""
    ndim = len(out_shapes[0])
    if ndim == 1:
        return instances(".", (ograd, ""))
    batch = line(ndim, (axis_of(axis1, ndim), axis_of(axis2, ndim)))
    return instances(batch, (ograd, batch.replace(".", "")))


# --- Pieces -------------------------------------------------------------------------------------


@op(name="_split_v2")
def split(data, *, axis=0, squeeze_axis=False, out_shapes):
    """Pieces along an axis, which is whole."""
    word = line(data.ndim, axis_of(axis, data.ndim))
    piece = word.replace(".", "") if squeeze_axis else word
    return instances(" ".join([piece] * len(out_shapes)), (data, word))


@op(name="_split_v2_backward")
def backward_split(*args, axis=0, squeeze_axis=False, out_shapes):
    """The head gradients, concatenated."""
    word = line(len(out_shapes[0]), axis_of(axis, len(out_shapes[0])))
    piece = word.replace(".", "") if squeeze_axis else word
    return instances(word, *((x, piece) for x in args))


@op(name="_backward_slice_like")
def backward_slice_like(ograd, *, axes=(), out_shapes):
    """Zeros around the head gradient; zero for the tensor that gives the size."""
    data, sized = out_shapes
    word = line(ograd.ndim, [d for d, (n, m) in enumerate(zip(ograd.shape, data)) if n != m])
    used = [axis_of(a, ograd.ndim) for a in axes or range(ograd.ndim)]
    shared = "".join(word[d] if d in used else "." for d in range(len(sized)))
    return *instances(word, (ograd, word)), *instances(shared, tag="z")


def _assigned(tensors, begin, end, step):
    """A slice replaced; dimensions that it cuts are whole."""
    cut = {d for each in (begin, end) for d, n in enumerate(each) if n}
    cut |= {d for d, n in enumerate(step) if n not in (None, 1)}
    word = line(tensors[0].ndim, cut)
    return instances(word, *((x, word) for x in tensors))


@op(name="_slice_assign")
def slice_assign(lhs, rhs, *, begin, end=(), step=()):
    """One tensor in a slice of another."""
    return _assigned([lhs, rhs], begin, end, step)


@op(name="_slice_assign_scalar")
def slice_assign_scalar(data, *, begin, end=(), step=()):
    """A number in a slice of a tensor."""
    return _assigned([data], begin, end, step)


# --- Counting -----------------------------------------------------------------------------------


@op(name="_histogram")
def histogram(data, edges=None):
    """The number of elements in each bin, and the bins' edges."""
    every = letters(data.ndim)
    bins = [(edges, "")] if edges is not None else []
    return *instances(".", (data, every), *bins), *instances(".", *bins, tag="e")


@op(name="_ravel_multi_index")
def ravel(data):
    """Flat positions from columns of indices."""
    word = letters(data.ndim)[1:]
    return instances(word, (data, "." + word))


@op(name="_unravel_index")
def unravel(data):
    """Columns of indices from flat positions."""
    return instances(".a", (data, "a")) if data.ndim == 1 else instances("..", (data, ""))


@op(name=("shape_array", "size_array"))
def extents(data):
    """The tensor's extents, or their product."""
    return instances(".", (data, ""))


@op(name="_linspace")
def linspace():
    """Equally spaced numbers: every part would start at the beginning."""
    return lambda i: apply("at", i)
