"""Operators that move elements: views, transposes, slices, joins; and their gradients."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Rewrite, op
from tofu.tdl._shapes import (
    Factors,
    at,
    axes_of,
    axis_of,
    inserted,
    instances,
    letters,
    line,
    reshaped,
    whole,
    without,
)

_SIZE = (Rewrite("size", {"output_shape": 0}),)
_INPUT_SIZES = (Rewrite("input_sizes", {"output_shape": 0}),)


@op(
    name=(
        *("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"),
        "aten.view_copy.default",
    ),
    rewrites=_SIZE,
)
def view(data, *, out_shapes):
    """The elements in another shape, in row-major order."""
    target = tuple(out_shapes[0])
    if tuple(data.shape) != target and Factors(data.shape, target).mixed:
        return _view_of_lines(data, target)
    return reshaped(data, target)


def _view_of_lines(data, target):
    """A view whose trailing dimensions have no common factors and are therefore whole."""
    same = 0
    while data.shape[same] == target[same]:
        same += 1
    lines = Opaque("View")
    return lambda *i: lines(data[(*i[:same], *[slice(None)] * (data.ndim - same))])[i[same:]]


@op(name=("aten.expand.default", "aten.expand_copy.default"), rewrites=_SIZE)
def expand(data, *, out_shapes):
    """Dimensions of size 1 repeated, and new ones in front."""
    target = out_shapes[0]
    skipped = len(target) - data.ndim
    repeated = [one and not target.ones[d + skipped] for d, one in enumerate(data.ones)]
    return lambda *i: data[tuple(0 if r else i[d + skipped] for d, r in enumerate(repeated))]


@op(name=("aten.permute.default", "aten.permute_copy.default"))
def permute(data, *, dims):
    """Dimensions in another order."""
    order = tuple(axis_of(d, data.ndim) for d in dims)
    return lambda *i: data[tuple(i[order.index(d)] for d in range(data.ndim))]


@op(name=("aten.transpose.int", "aten.transpose_copy.int"))
def transpose(data, *, dim0, dim1):
    """Two dimensions exchanged."""
    order = list(range(data.ndim))
    first, second = axis_of(dim0, data.ndim), axis_of(dim1, data.ndim)
    order[first], order[second] = second, first
    return lambda *i: data[tuple(i[d] for d in order)]


@op(name=("aten.t.default", "aten.t_copy.default"))
def t(data):
    """A matrix transposed."""
    return lambda *i: data[tuple(reversed(i))]


@op(name=("aten.unsqueeze.default", "aten.unsqueeze_copy.default"))
def unsqueeze(data, *, dim):
    """One more dimension, of size 1."""
    axis = axis_of(dim, data.ndim + 1)
    return lambda *i: data[without(i, axis)]


@op(name=[f"aten.{n}.{o}" for n in ("squeeze", "squeeze_copy") for o in ("dim", "dims")])
def squeeze(data, *, dim):
    """The elements without the named dimensions that have size 1; other named ones stay."""
    dropped = [d for d in axes_of(dim, data.ndim) if data.ones[d]]
    dims = [d for d in range(data.ndim) if d not in dropped]
    return lambda *i: data[tuple(i[dims.index(d)] if d in dims else 0 for d in range(data.ndim))]


@op(name=("aten.flip.default", "aten.roll.default"))
def reordered(data, *, dims=()):
    """Elements in another order along some dimensions, which are whole."""
    axes = axes_of(dims, data.ndim)
    order = Opaque("Reordered")
    return lambda *i: order(data[whole(i, axes)])[tuple(i[d] for d in axes)]


# --- Slices --------------------------------------------------------------------------


def _along(data, axes, size):
    """A function of whole lines along axes whose sizes differ; the element along others."""
    lines = Opaque("Lines")
    axes = [d for d in axes if data.shape[d] != size[d]]
    if not axes:
        return lambda *i: data[i]
    return lambda *i: lines(data[whole(i, axes)])[tuple(i[d] for d in axes)]


@op(name=("aten.slice.Tensor", "aten.slice_copy.Tensor", "aten.narrow_copy.default"))
def slice_(data, *, dim=0, out_shapes):
    """Elements from start to end along one dimension."""
    return _along(data, [axis_of(dim, data.ndim)], out_shapes[0])


@op(name="aten.slice_backward.default", rewrites=_INPUT_SIZES)
def slice_backward(grad, *, dim, out_shapes):
    """Zeros around the gradient."""
    return _along(grad, [axis_of(dim, grad.ndim)], out_shapes[0])


@op(name="aten.slice_scatter.default")
def slice_scatter(data, source, *, dim=0):
    """The data, with other elements from start to end along one dimension."""
    axis = axis_of(dim, data.ndim)
    lines = Opaque("Scattered")
    return lambda *i: lines(data[whole(i, axis)], source[whole(i, axis)])[i[axis]]


@op(name=("aten.select.int", "aten.select_copy.int"))
def select(data, *, dim, index):
    """The elements at one index of a dimension, which is whole."""
    axis = axis_of(dim, data.ndim)
    pick = Opaque("Pick")
    return lambda *i: pick(data[inserted(i, axis, slice(None))])


@op(name="aten.select_backward.default", rewrites=_INPUT_SIZES)
def select_backward(grad, *, dim, out_shapes):
    """The gradient at one index of a dimension, zeros elsewhere."""
    axis = axis_of(dim, len(out_shapes[0]))
    place = Opaque("Place")
    return lambda *i: place(grad[without(i, axis)])[i[axis]]


@op(name="aten.select_scatter.default")
def select_scatter(data, source, *, dim, index):
    """The data, with other elements at one index of a dimension, which is whole."""
    axis = axis_of(dim, data.ndim)
    place = Opaque("Place")
    return lambda *i: place(data[whole(i, axis)], source[without(i, axis)])[i[axis]]


@op(
    name=(
        *("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default"),
        *("aten.split_with_sizes_copy.default", "aten.unsafe_split.Tensor"),
    )
)
def split(data, *, dim=0, out_shapes):
    """The pieces of a dimension, which is whole."""
    axis = axis_of(dim, data.ndim)
    cut = Opaque("Piece")

    def piece(number):
        names = [f"p{number}" if d == axis else f"i{d}" for d in range(data.ndim)]
        return Over(names, lambda *i: cut(data[whole(i, axis)])[i[axis]])

    return tuple(piece(number) for number in range(len(out_shapes)))


@op(name=("aten.unbind.int", "aten.unbind_copy.int"))
def unbind(data, *, dim=0, out_shapes):
    """The elements at every index of a dimension, which is whole."""
    axis = axis_of(dim, data.ndim)
    pick = Opaque("Pick")
    return (lambda *i: pick(data[inserted(i, axis, slice(None))]),) * len(out_shapes)


@op(name=("aten.unfold.default", "aten.unfold_copy.default"))
def unfold(data, *, dimension):
    """The windows of a dimension, which is whole, side by side in a new last one."""
    word = line(data.ndim, axis_of(dimension, data.ndim))
    return instances(word + ".", (data, word))


@op(name="aten.unfold_backward.default", rewrites=_INPUT_SIZES)
def unfold_backward(grad, *, dim, out_shapes):
    """The gradients of a dimension's windows, added up where they overlap."""
    ndim = len(out_shapes[0])
    word = line(ndim, axis_of(dim, ndim))
    return instances(word, (grad, word + "."))


def _diagonal(ndim, dim1, dim2):
    """Words for a tensor with two whole dimensions, and for its diagonals, the last dimension."""
    word = line(ndim, (axis_of(dim1, ndim), axis_of(dim2, ndim)))
    return word, word.replace(".", "") + "."


@op(name=("aten.diagonal.default", "aten.diagonal_copy.default"))
def diagonal(data, *, dim1=0, dim2=1):
    """The diagonal of two dimensions, which are whole, as the last dimension."""
    word, diagonals = _diagonal(data.ndim, dim1, dim2)
    return instances(diagonals, (data, word))


@op(name="aten.diagonal_backward.default", rewrites=_INPUT_SIZES)
def diagonal_backward(grad, *, dim1, dim2, out_shapes):
    """The gradient on the diagonal of two dimensions, zeros elsewhere."""
    word, diagonals = _diagonal(len(out_shapes[0]), dim1, dim2)
    return instances(word, (grad, diagonals))


@op(name="aten.diagonal_scatter.default")
def diagonal_scatter(data, source, *, dim1=0, dim2=1):
    """The data, with other elements on the diagonal of two dimensions, which are whole."""
    word, diagonals = _diagonal(data.ndim, dim1, dim2)
    return instances(word, (data, word), (source, diagonals))


@op(name="aten.diag_embed.default")
def diag_embed(data, *, dim1=-2, dim2=-1):
    """The last dimension on the diagonal of two dimensions, zeros elsewhere."""
    word, diagonals = _diagonal(data.ndim + 1, dim1, dim2)
    return instances(word, (data, diagonals))


@op(name=("aten.pixel_shuffle.default", "aten.pixel_unshuffle.default"))
def shuffled_pixels(data):
    """Channels spread over space, or back, separate for each image."""
    images = letters(data.ndim - 3)
    return instances(images + "...", (data, images))


@op(name="aten.channel_shuffle.default")
def shuffled_channels(data):
    """Channels in another order, which are whole."""
    word = line(data.ndim, 1)
    return instances(word, (data, word))


@op(name="aten.rot90.default")
def rotated(data, *, dims=(0, 1)):
    """Two dimensions, which are whole, turned by right angles."""
    word = line(data.ndim, axes_of(dims, data.ndim))
    return instances(word, (data, word))


# --- Joins ---------------------------------------------------------------------------


@op(name="aten.cat.default")
def cat(*tensors, dim=0):
    """Tensors joined along a dimension, which is whole."""
    axis = axis_of(dim, tensors[0].ndim)
    join = Opaque("Join")
    return lambda *i: join(*(x[whole(i, axis)] for x in tensors))[i[axis]]


@op(name="aten.stack.default")
def stack(*tensors, dim=0):
    """Tensors joined along a new dimension."""
    axis = axis_of(dim, tensors[0].ndim + 1)
    join = Opaque("Join")
    return lambda *i: join(*(x[without(i, axis)] for x in tensors))[i[axis]]


@op(name="aten.constant_pad_nd.default")
def constant_pad(data, *, pad):
    """A constant around the data; padded dimensions are whole."""
    return _along_padded(data, pad)


def _along_padded(data, padding):
    lines = Opaque("Padded")
    axes = [data.ndim - 1 - n for n in range(len(padding) // 2) if any(padding[2 * n : 2 * n + 2])]
    if not axes:
        return lambda *i: data[i]
    return lambda *i: lines(data[whole(i, axes)])[tuple(i[d] for d in axes)]


@op(name="aten.repeat.default")
def repeat(data, *, repeats):
    """Copies along some dimensions, which are whole, and along new ones in front."""
    skipped = len(repeats) - data.ndim
    axes = [d for d in range(data.ndim) if repeats[d + skipped] != 1]
    copies = Opaque("Copies")

    def element(*i):
        place = i[skipped:]
        if not axes and not skipped:
            return data[place]
        return copies(data[whole(place, axes)])[(*i[:skipped], *(place[d] for d in axes))]

    return element


@op(name=("aten.tril.default", "aten.triu.default"))
def triangle(data):
    """Zeros above or below a diagonal of every matrix, which is whole."""
    cut = Opaque("Triangle")
    return lambda *i: cut(data[at(i, (data.ndim - 2, data.ndim - 1), slice(None))])[i[-2:]]
