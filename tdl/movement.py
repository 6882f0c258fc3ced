"""Operators that move elements: reshapes, transposes, slices, joins; and gradients."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, apply, like, op
from tofu.tdl._shapes import at, axes_of, axis_of, inserted, names, reshaped, whole, without

_TO_SHAPE = (Rewrite("shape", {"output_shape": 0}), Rewrite("reverse", {"const": "False"}))


@op(name="Reshape", rewrites=_TO_SHAPE)
def reshape(data, *, out_shapes):
    """The elements in another shape, in row-major order."""
    return reshaped(data, out_shapes[0])


@op(name=("Flatten", "_backward_reshape", "_backward_copy", "_backward_squeeze"))
def reshape_like_output(data, *, out_shapes):
    """The elements in the output's shape, which no attribute gives."""
    return reshaped(data, out_shapes[0])


@op(name="reshape_like")
def reshape_like(
    lhs, rhs, *, lhs_begin=None, lhs_end=None, rhs_begin=None, rhs_end=None, out_shapes
):
    """The elements, with some dimensions in the shape of some of another tensor."""
    begin = _place(lhs_begin, 0, lhs.ndim)
    first, last = _place(rhs_begin, 0, rhs.ndim), _place(rhs_end, rhs.ndim, rhs.ndim)

    def sized(value, index):
        shared = index[begin : begin + last - first]
        return like(value, rhs[(*[0] * first, *shared, *[0] * (rhs.ndim - last))])

    return reshaped(lhs, out_shapes[0], sized)


def _place(given, default, ndim):
    """A place between dimensions; negative ones count from the last."""
    return default if given is None else given + ndim if given < 0 else given


@op(name="expand_dims")
def expand_dims(data, *, axis):
    """One more dimension, of size 1."""
    axis = axis_of(axis, data.ndim + 1)
    return lambda *i: data[without(i, axis)]


def _squeezed(shape, axis):
    named = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return [d for d in sorted(axis_of(a, len(shape)) for a in named) if shape.ones[d]]


def _these_axes(shapes, axis=None):
    """The axes as an attribute: a part may have further dimensions of size 1, which it keeps."""
    return [Rewrite("axis", {"const": str(tuple(_squeezed(shapes[0], axis)))})]


@op(name="squeeze", rewrites=_these_axes)
def squeeze(data, *, axis=None, out_shapes):
    """Without dimensions of size 1."""
    dropped = _squeezed(data.shape, axis)
    if len(out_shapes[0]) != data.ndim - len(dropped):
        return reshaped(data, out_shapes[0])
    dims = [d for d in range(data.ndim) if d not in dropped]
    return lambda *i: data[tuple(i[dims.index(d)] if d in dims else 0 for d in range(data.ndim))]


@op(name="transpose")
def transpose(data, *, axes=()):
    """Permuted dimensions; reversed if no axes are given."""
    order = tuple(axis_of(d, data.ndim) for d in axes or reversed(range(data.ndim)))
    return lambda *i: data[tuple(i[order.index(d)] for d in range(data.ndim))]


@op(name=("SwapAxis", "_backward_SwapAxis"))
def swap_axis(data, *, dim1=0, dim2=0):
    """Two dimensions exchanged."""
    order = list(range(data.ndim))
    order[dim1], order[dim2] = order[dim2], order[dim1]
    return lambda *i: data[tuple(i[d] for d in order)]


@op(name=("reverse", "_backward_reverse"))
def reverse(data, *, axis):
    """Some dimensions reversed."""
    axes = axes_of(axis, data.ndim)
    last = [n - 1 for n in data.shape]
    return lambda *i: data[tuple(last[d] - v if d in axes else v for d, v in enumerate(i))]


# --- Slices --------------------------------------------------------------------------


def _places(*values):
    """Tuples of positions, which MXNet also takes as one number or None."""
    return [() if v is None else (v,) if isinstance(v, int) else tuple(v) for v in values]


def _slice_bounds(shape, begin, step):
    """Per dimension: begin and step, with MXNet's defaults and negative positions."""
    begin, step = _places(begin, step)
    bounds = []
    for d, size in enumerate(shape):
        stride = (step[d] if d < len(step) else None) or 1
        first = begin[d] if d < len(begin) else None
        if first is None:
            first = 0 if stride > 0 else size - 1
        elif first < 0:
            first += size
        bounds.append((first, stride))
    return bounds


def _fixed(shape, begin, end, step):
    """Dimensions of a slice that stay whole, and the one with its own end.

    Dimensions that count a position from the end are whole, because the end differs in a part. So
    are all but one of the dimensions that end before the tensor does: a part has its own `end`.
    """
    begin, end, step = _places(begin, end, step)
    counted = {d for each in (begin, end, step) for d, n in enumerate(each) if n and n < 0}
    early = [d for d, n in enumerate(end) if n is not None and n < shape[d] and d not in counted]
    return sorted(counted | set(early[1:])), early[:1]


def _open_end(shapes, begin, end=(), step=()):
    """The attributes of a part, which is sliced to the end of its input."""
    early = _fixed(shapes[0], begin, end, step)[1]
    ends = tuple(None if d in early else n for d, n in enumerate(end))
    return [Rewrite("end", {"const": str(ends)}, tuple(f"i{d}" for d in early))]


@op(name="slice", rewrites=_open_end)
def slice_(data, *, begin, end=(), step=()):
    """Every step-th element from begin to end."""
    bounds = _slice_bounds(data.shape, begin, step)
    fixed = _fixed(data.shape, begin, end, step)[0]
    if not fixed:
        return lambda *i: data[tuple(v * s + b for v, (b, s) in zip(i, bounds))]
    tail = Opaque("Slice")

    def element(*i):
        place = [v * s + b for v, (b, s) in zip(i, bounds)]
        return tail(data[whole(place, fixed)])[tuple(i[d] for d in fixed)]

    return element


def _full(small, big, bounds):
    """The dimensions that a slice takes whole."""
    return [d for d, (n, m) in enumerate(zip(small, big)) if n == m and bounds[d] == (0, 1)]


def _scattered(ograd, shape, full):
    """The gradient of a slice: zeros around the head gradient, cut dimensions whole."""
    cut = [d for d in range(len(shape)) if d not in full]
    scatter = Opaque("Scatter")
    if not cut:
        return lambda *i: ograd[i]
    return lambda *i: scatter(ograd[whole(i, cut)])[tuple(i[d] for d in cut)]


@op(name="_backward_slice")
def backward_slice(ograd, *, begin, end=(), step=(), out_shapes):
    """Zeros around the head gradient."""
    shape = out_shapes[0]
    full = _full(ograd.shape, shape, _slice_bounds(shape, begin, step))
    return _scattered(ograd, shape, full)  # an end beyond the part is the part's end


def _axis_end(shapes, axis, **_):
    axis = axis_of(axis, len(shapes[0]))
    return [Rewrite("end", {"const": "None"}, (f"i{axis}",))]


@op(name="slice_axis", rewrites=_axis_end)
def slice_axis(data, *, axis, begin, end=None):
    """The elements from begin to end along one axis."""
    axis = axis_of(axis, data.ndim)
    if begin < 0:  # a part would count from its own end
        tail = Opaque("Slice")
        return lambda *i: tail(data[whole(i, axis)])[i[axis]]
    return lambda *i: data[at(i, axis, i[axis] + begin)]


@op(name="_backward_slice_axis")
def backward_slice_axis(ograd, *, axis, begin, end=None, out_shapes):
    """Zeros around the head gradient."""
    shape = out_shapes[0]
    axis = axis_of(axis, len(shape))
    whole_axis = ograd.shape[axis] == shape[axis] and end is None
    full = [d for d in range(len(shape)) if d != axis or whole_axis]
    return _scattered(ograd, shape, full)


@op(name="slice_like")
def slice_like(data, shape_like, *, axes=()):
    """The elements from 0 to the size of another tensor, along some axes."""
    used = [axis_of(a, data.ndim) for a in axes or range(data.ndim)]

    def element(*i):
        return like(data[i], shape_like[[i[d] if d in used else 0 for d in range(shape_like.ndim)]])

    return element


# --- Joins and splits -----------------------------------------------------------------


def _joined(tensors, axis):
    join = Opaque("Join")
    return lambda *i: join(*(x[whole(i, axis)] for x in tensors))[i[axis]]


@op(name=("Concat", "_rnn_param_concat"))
def concat(*args, dim=1):
    """Tensors concatenated along a dimension, which is whole."""
    return _joined(args, axis_of(dim, args[0].ndim))


@op(name="_backward_Concat")
def backward_concat(*args, dim=1, out_shapes):
    """The pieces of the head gradient."""
    ograd, tensors = args[0], args[1:]
    axis = axis_of(dim, ograd.ndim)
    return tuple(_piece(ograd, axis, k, tensors[k : k + 1]) for k in range(len(out_shapes)))


def _piece(tensor, axis, number, shaped=()):
    """The lambda of a piece along an axis, which is whole; `shaped` has its shape."""
    piece = Opaque(f"Piece{number}")
    variables = at(names(tensor.ndim), axis, f"p{number}")

    def element(*i):
        line = whole(i, axis)
        return piece(tensor[line], *(x[line] for x in shaped))[i[axis]]

    return Over(variables, element)


@op(name="SliceChannel")
def slice_channel(data, *, axis=1, squeeze_axis=False, num_outputs=1):
    """Equal pieces along an axis, which is whole."""
    axis = axis_of(axis, data.ndim)
    if not squeeze_axis:
        return tuple(_piece(data, axis, k) for k in range(num_outputs))
    variables = list(without(names(data.ndim), axis))
    piece = Opaque("Piece")
    return tuple(
        Over(variables, lambda *i: piece(data[inserted(i, axis, slice(None))]))
        for _ in range(num_outputs)
    )


@op(name="_backward_SliceChannel")
def backward_slice_channel(*args, axis=1, squeeze_axis=False):
    """The head gradients, concatenated."""
    if not squeeze_axis:
        return _joined(args, axis_of(axis, args[0].ndim))
    return _stacked(args, axis_of(axis, args[0].ndim + 1))


def _stacked(tensors, axis):
    join = Opaque("Stack")
    return lambda *i: join(*(x[without(i, axis)] for x in tensors))[i[axis]]


@op(name="stack")
def stack(*args, axis=0):
    """Tensors stacked along a new axis."""
    return _stacked(args, axis_of(axis, args[0].ndim + 1))


@op(name="_backward_stack")
def backward_stack(*args, axis=0, out_shapes):
    """The head gradient's slices along the axis."""
    ograd = args[0]
    axis = axis_of(axis, ograd.ndim)
    piece = Opaque("Piece")
    variables = list(without(names(ograd.ndim), axis))
    return tuple(
        Over(variables, lambda *i: piece(ograd[inserted(i, axis, slice(None))])) for _ in out_shapes
    )


@op(name="repeat")
def repeat(data, *, repeats, axis=None):
    """Each element several times along an axis."""
    if axis is None:
        raise InconclusiveError("repeat of the flattened tensor is not described")
    axis = axis_of(axis, data.ndim)
    every = [*names(data.ndim), "again"]
    return Reindex(
        every,
        [*data.shape, repeats],
        at=lambda *v: at(v[:-1], axis, v[axis] * repeats + v[-1]),
        value=lambda *v: data[v[:-1]],
    )


@op(name="_backward_repeat")
def backward_repeat(ograd, *, repeats, axis=None):
    """The sum over an element's copies."""
    if axis is None:
        raise InconclusiveError("repeat of the flattened tensor is not described")
    axis = axis_of(axis, ograd.ndim)
    return lambda *i: apply(
        "copies",
        Sum(lambda again: ograd[at(i, axis, i[axis] * repeats + again)], extent=repeats),
    )
