"""NumPy's operators that move elements: reshapes, joins, diagonals; and gradients."""

from __future__ import annotations

import math

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Rewrite, Sum, apply, op
from tofu.tdl._shapes import axis_of, names, reshaped, whole, without
from tofu.tdl.movement import squeeze, stack, transpose

squeeze.serves("_np_squeeze")
stack.serves("_npi_stack")
transpose.serves("_np_transpose")


def _new_shape(shapes, newshape, order="C", reverse=None):
    backwards = [] if reverse is None else [Rewrite("reverse", {"const": "False"})]
    return [Rewrite("newshape", {"output_shape": 0}), *backwards]


@op(name=("_np_reshape", "_npx_reshape"), rewrites=_new_shape)
def reshape(a, *, newshape, order="C", reverse=None, out_shapes):
    """The elements in another shape, in row-major order."""
    return reshaped(a, out_shapes[0])


@op(name="_np_moveaxis")
def moveaxis(a, *, source, destination):
    """Some dimensions moved, the others in their order."""
    source, destination = ((d,) if isinstance(d, int) else d for d in (source, destination))
    moved = {axis_of(d, a.ndim): axis_of(s, a.ndim) for s, d in zip(source, destination)}
    rest = iter(d for d in range(a.ndim) if d not in moved.values())
    order = [moved[d] if d in moved else next(rest) for d in range(a.ndim)]
    return lambda *i: a[tuple(i[order.index(d)] for d in range(a.ndim))]


@op(name="_np_roll")
def roll(data, *, shift=None, axis=None):
    """Rolled along axes, which are whole."""
    axes = range(data.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = [axis_of(d, data.ndim) for d in axes]
    turn = Opaque("Roll")
    return lambda *i: turn(data[whole(i, axes)])[tuple(i[d] for d in axes)]


@op(name=("_npi_flip", "_backward_npi_flip"))
def flip(data, *, axis):
    """Some dimensions reversed."""
    axes = [axis_of(d, data.ndim) for d in ((axis,) if isinstance(axis, int) else axis)]
    last = {d: data.shape[d] - 1 for d in axes}
    return lambda *i: data[tuple(last[d] - v if d in last else v for d, v in enumerate(i))]


@op(name="_npi_rot90")
def rot90(data, *, k=1, axes=None):
    """Rotated k times in the plane of two dimensions, from the first to the second."""
    a, b = (axis_of(d, data.ndim) for d in axes or (0, 1))
    last_a, last_b = (data.shape[d] - 1 for d in (a, b))

    def element(*i):
        turned = {
            0: (i[a], i[b]),
            1: (i[b], last_b - i[a]),
            2: (last_a - i[a], last_b - i[b]),
            3: (last_a - i[b], i[a]),
        }[k % 4]
        return data[tuple({a: turned[0], b: turned[1]}.get(d, v) for d, v in enumerate(i))]

    return element


# --- Joins and splits ---------------------------------------------------------------------


def _own(ndim, rank):
    """The places of a tensor's dimensions once it has at least `rank` of them."""
    return {(1, 2): (1,), (1, 3): (1,), (2, 3): (0, 1)}.get((ndim, rank), tuple(range(ndim)))


def _column(ndim, rank):
    return tuple(range(ndim))


def _joined(tensors, axis, rank=0, places_of=_own):
    """Tensors of at least a rank, concatenated along an axis, which is whole."""
    join = Opaque("Join")

    def element(*i):
        line = whole(i, axis)
        return join(*(x[[line[d] for d in places_of(x.ndim, rank)]] for x in tensors))[i[axis]]

    return element


def _pieces(tensor, axis, out_shapes, rank=0, places_of=_own):
    """The lambdas of pieces along an axis, which is whole."""
    piece = Opaque("Piece")

    def of(number, shape):
        places = places_of(len(shape), rank)
        variables = [f"p{number}" if d == axis else f"i{d}" for d in places]

        def element(*v):
            by_name = dict(zip(places, v))
            at = [slice(None) if d == axis else by_name.get(d, 0) for d in range(tensor.ndim)]
            return piece(tensor[at])[by_name.get(axis, 0)]

        return Over(variables, element)

    return tuple(of(k, shape) for k, shape in enumerate(out_shapes))


def _describe_join(name, axis_of_join, rank, places_of=_own):
    @op(name=f"_npi_{name}")
    def join(*args):
        """Tensors concatenated."""
        ndim = max(rank, *(x.ndim for x in args))
        return Over(names(ndim), _joined(args, axis_of_join(ndim), rank, places_of))

    @op(name=f"_backward_np_{name}")
    def split(ograd, *, out_shapes):
        """The pieces of the head gradient."""
        return _pieces(ograd, axis_of_join(ograd.ndim), out_shapes, rank, places_of)

    return join, split


_describe_join("hstack", lambda ndim: min(1, ndim - 1), 1)
_describe_join("vstack", lambda ndim: 0, 2)
_describe_join("dstack", lambda ndim: 2, 3)
_describe_join("column_stack", lambda ndim: 1, 2, _column)


@op(name="_npi_concatenate")
def concatenate(*args, axis=0):
    """Tensors concatenated along an axis, or flattened and concatenated."""
    if axis is None:
        raise InconclusiveError("a join of flattened tensors is not described")
    return _joined(args, axis_of(axis, args[0].ndim))


@op(name="_backward_np_concat")
def backward_concatenate(ograd, *, axis=0, out_shapes):
    """The pieces of the head gradient."""
    if axis is None:
        raise InconclusiveError("a join of flattened tensors is not described")
    return _pieces(ograd, axis_of(axis, ograd.ndim), out_shapes)


@op(name=("_npi_hsplit", "_npi_dsplit"))
def split(data, *, axis=1, out_shapes):
    """Pieces along an axis, which is whole."""
    return _pieces(data, min(axis_of(axis, data.ndim), data.ndim - 1), out_shapes)


@op(name="_npi_hsplit_backward")
def backward_split(*args, axis=1):
    """The head gradients, concatenated."""
    return _joined(args, min(axis, args[0].ndim - 1))


def _describe_atleast(rank):
    @op(name=f"_np_atleast_{rank}d")
    def atleast(*args):
        """The tensors, with dimensions of size 1 up to a rank."""
        return tuple(_promoted(x, k, rank) for k, x in enumerate(args))

    return atleast


def _promoted(tensor, number, rank):
    variables = names(max(rank, tensor.ndim), f"x{number}_")
    return Over(variables, lambda *i: tensor[tuple(i[d] for d in _own(tensor.ndim, rank))])


for _rank in (1, 2, 3):
    _describe_atleast(_rank)


# --- Diagonals ----------------------------------------------------------------------------


def _diagonal(data, offset, axis1, axis2):
    a, b = axis_of(axis1, data.ndim), axis_of(axis2, data.ndim)
    below, right = max(-offset, 0), max(offset, 0)

    def element(*v):
        at = {a: v[-1] + below, b: v[-1] + right}
        rest = iter(v[:-1])
        return data[[at[d] if d in at else next(rest) for d in range(data.ndim)]]

    return Over([*without(names(data.ndim), (a, b)), "d"], element)


@op(name="_np_diagonal")
def diagonal(data, *, offset=0, axis1=0, axis2=1):
    """The elements whose positions along two dimensions differ by an offset."""
    return _diagonal(data, offset, axis1, axis2)


@op(name="_backward_np_diagonal")
def backward_diagonal(ograd, *, axis1=0, axis2=1, out_shapes):
    """The head gradient on a diagonal of zeros."""
    ndim, place = len(out_shapes[0]), Opaque("Diagonal")
    a, b = axis_of(axis1, ndim), axis_of(axis2, ndim)
    return lambda *i: place(ograd[without(i, (a, b)), slice(None)])[i[a], i[b]]


@op(name="_np_diag")
def diag(data, *, k=0):
    """A matrix's diagonal, or the matrix of a diagonal."""
    place = Opaque("Diagonal")
    return _diagonal(data, k, 0, 1) if data.ndim == 2 else lambda i, j: place(data[:])[i, j]


@op(name=("_backward_np_diag", "_np_diagflat", "_backward_np_diagflat"))
def diagflat(data):
    """The elements on a diagonal of zeros, or the reverse: everything is whole."""
    place = Opaque("Diagonal")
    return lambda *i: place(data[(slice(None),) * data.ndim])[i]


@op(name="_npi_tril")
def tril(data):
    """The lower triangle of matrices; a vector is every row of one."""
    if data.ndim == 1:
        return lambda i, j: apply("lower", data[j], i, j)
    return lambda *v, i, j: apply("lower", data[v, i, j], i, j)


@op(name="_backward_tril")
def backward_tril(ograd, *, out_shapes):
    """The head gradient's lower triangle; summed over rows for a vector."""
    if len(out_shapes[0]) == 1:
        return lambda j: Sum(lambda i: apply("lower", ograd[i, j], i, j))
    return lambda *v, i, j: apply("lower", ograd[v, i, j], i, j)


# --- Borders and insertions ---------------------------------------------------------------


def _padded(pad_width):
    return [d for d, width in enumerate(pad_width) if any(width)]


def _no_width(shapes, pad_width, mode="constant", constant_value=0):
    padded = _padded(pad_width) if mode == "constant" else []
    none = ((0, 0),) * len(pad_width)
    return [Rewrite("pad_width", {"const": str(none)}, tuple(f"i{d}" for d in padded))]


@op(name="_npi_pad", rewrites=_no_width)
def pad(data, *, pad_width, mode="constant", constant_value=0):
    """Padded at some dimensions, which can only be divided if the border is constant."""
    padded = _padded(pad_width)
    if mode == "constant":
        inside = data.padded(constant_value, beyond=padded)
        return lambda *i: inside[tuple(v - width[0] for v, width in zip(i, pad_width))]
    border = Opaque("Pad")
    return lambda *i: border(data[whole(i, padded)])[tuple(i[d] for d in padded)]


@op(name="_backward_npi_pad", rewrites=_no_width)
def backward_pad(ograd, *, pad_width, mode="constant", constant_value=0):
    """The head gradient inside the border; whole dimensions are those with something before."""
    if mode == "constant" and not any(before for before, _ in pad_width):
        return lambda *i: ograd[i]
    padded, border = _padded(pad_width), Opaque("PadGradient")
    return lambda *i: border(ograd[whole(i, padded)])[tuple(i[d] for d in padded)]


def _inserted(arr, values, rest, axis, alike):
    """Values inserted along an axis; `alike`: they have its other dimensions."""
    into = Opaque("Insert")
    every = [x[(slice(None),) * x.ndim] for x in rest]
    if axis is None or (values is not None and not alike and math.prod(values.shape) > 1):
        every += [] if values is None else [values[(slice(None),) * values.ndim]]
        return lambda *i: into(arr[(slice(None),) * arr.ndim], *every)[i]
    axis = axis_of(axis, arr.ndim)

    def element(*i):
        line = whole(i, axis)
        new = []
        if values is not None:
            pairs = zip(line[arr.ndim - values.ndim :], values.ones)
            new = [values[[0 if is_one else v for v, is_one in pairs]]]
        return into(arr[line], *new, *every)[i[axis]]

    return element


@op(name="_npi_insert_scalar")
def insert_scalar(arr, values=None, *, axis=None):
    """Values inserted at one position along an axis, which is whole."""
    return _inserted(arr, values, (), axis, False)


@op(name="_npi_insert_slice")
def insert_slice(arr, values=None, *, axis=None):
    """Values inserted at equally spaced positions along an axis, which is whole."""
    return _inserted(arr, values, (), axis, True)


@op(name="_npi_insert_tensor")
def insert_tensor(arr, *args, axis=None):
    """Values inserted at positions that a tensor gives along an axis, which is whole."""
    *values, places = args
    return _inserted(arr, values[0] if values else None, (places,), axis, places.ndim > 0)
