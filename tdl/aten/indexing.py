"""Elements at places that data choose."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Rewrite, Sum, apply, op, where
from tofu.tdl._shapes import (
    at,
    axis_of,
    broadcast,
    broadcast_ones,
    instances,
    letters,
    line,
    names,
    whole,
)


def _told(dim, ndim):
    """Tells a part where it begins along a dimension."""
    return [Rewrite("begin", {"begin": f"place{axis_of(dim, ndim)}"})]


@op(name="tofu.gather.default", rewrites=lambda shapes, dim, begin: _told(dim, len(shapes[0])))
def gather(data, index, *, dim, begin=None):
    """Along a dimension, the elements that an index of every place chooses."""
    axis = axis_of(dim, data.ndim)

    def element(*i):
        def term(place):
            is_it = apply("equal", index[i], place + (begin or 0))
            return where(is_it, data[at(i, axis, place)], 0)

        return Sum(Over([f"place{axis}"], term))

    return element


@op(name="tofu.scatter_add.default", rewrites=lambda shapes, dim, begin: _told(dim, len(shapes[0])))
def scatter_add(data, index, source, *, dim, begin=None):
    """The data, with other elements added where an index says so along a dimension."""
    axis = axis_of(dim, data.ndim)

    def element(*i):
        def term(k):
            is_it = apply("equal", index[at(i, axis, k)], i[axis] + (begin or 0))
            return where(is_it, source[at(i, axis, k)], 0)

        return data[i] + Sum(Over(["k"], term))

    return Over(at(names(data.ndim), axis, f"place{axis}"), element)


@op(
    name=(
        *("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default"),
        "aten.scatter_reduce.two",
    )
)
def scatter(data, *others, dim):
    """The data, with other elements where an index says so along a dimension, which is whole."""
    axis = axis_of(dim, data.ndim)
    sizes = [set(dims) for dims in zip(*(x.shape for x in (data, *others)))]
    word = line(data.ndim, {axis, *(d for d, size in enumerate(sizes) if len(size) > 1)})
    return instances(word, *((x, word) for x in (data, *others)))


@op(
    name=("aten.index_add.default", "aten.index_copy.default", "aten.index_reduce.default"),
)
def index_add(data, index, source, *, dim):
    """The data, with slices of another tensor added or put where an index says so."""
    word = line(data.ndim, axis_of(dim, data.ndim))
    return instances(word, (data, word), (index, ""), (source, word))


@op(name=("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"))
def index_fill(data, *others, dim):
    """The data, with one value in the slices that an index chooses."""
    word = line(data.ndim, axis_of(dim, data.ndim))
    return instances(word, (data, word), *((x, "") for x in others))


@op(name=("aten.isin.Tensor_Tensor", "aten.bucketize.Tensor"))
def looked_up(data, table):
    """Every element's place, or presence, in a whole table."""
    return instances(letters(data.ndim), (data, letters(data.ndim)), (table, ""))


@op(name="aten.take.default")
def take(data, index):
    """The elements of the whole data at the places that an index names."""
    return instances(letters(index.ndim), (data, ""), (index, letters(index.ndim)))


@op(name="aten.histc.default")
def histc(data, *, min=0, max=0):
    """The number of elements in every bin; the data's own range needs all of them."""
    word = "" if min == max else letters(data.ndim)
    return instances(".", (data, word))


@op(name="aten.index_select.default")
def index_select(data, index, *, dim):
    """Slices of a dimension, which is whole."""
    axis = axis_of(dim, data.ndim)
    pick = Opaque("Pick")
    return lambda *i: pick(data[whole(i, axis)], index[i[axis]])


def _indexed(input_names):
    """The data's dimension that each index tensor stands for, from the names of the inputs."""
    return [
        int(name.partition(".")[2]) for name in input_names.split() if name.startswith("indices.")
    ]


def _places(indices, dims, ndim):
    """The place of the indices' dimensions in the result: the first indexed one, or the front."""
    near = all(b == a + 1 for a, b in zip(dims, dims[1:]))
    count = max(x.ndim for x in indices)
    front = dims[0] if near else 0
    rest = [d for d in range(ndim) if d not in dims]
    return front, count, rest


@op(name=("aten.index.Tensor", "aten._unsafe_index.Tensor"))
def index(data, *indices, given):
    """The elements at the places that tensors name, along some dimensions, which are whole."""
    dims = _indexed(given)
    front, count, rest = _places(indices, dims, data.ndim)
    ones = broadcast_ones(*indices)
    pick = Opaque("Pick")

    def element(*i):
        chosen = i[front : front + count]
        by_dim = dict(zip(rest, (*i[:front], *i[front + count :])))
        place = [by_dim.get(d, slice(None)) for d in range(data.ndim)]
        return pick(data[place], *(broadcast(x, chosen, ones) for x in indices))

    return Over(names(count + len(rest)), element)


def _put_masked(data, mask, values, start):
    """The data, with other elements where a mask of its dimensions from `start` on is true.

    The mask's dimensions are one of the values', which may be one value for all its places.
    """
    put = Opaque("PutMasked")
    end = start + mask.ndim
    dims = [*range(start), None, *range(end, data.ndim)][-values.ndim :] if values.ndim else []
    alike = all(is_one for d, is_one in zip(dims, values.ones) if d is None)

    def element(*i):
        value = [
            0 if is_one else slice(None) if d is None else i[d]
            for d, is_one in zip(dims, values.ones)
        ]
        if alike:
            return put(data[list(i)], mask[list(i[start:end])], values[value])
        every = [slice(None)] * mask.ndim
        place = [*i[:start], *every, *i[end:]]
        return put(data[place], mask[every], values[value])[list(i[start:end])]

    return element


@op(name=("aten.index_put.default", "aten._unsafe_index_put.default"))
def index_put(data, *others, given):
    """The data, with other elements at the places that tensors name, or where a mask is true."""
    masks = [name for name in given.split() if name.startswith("masks.")]
    if masks and len(others) == 2:
        return _put_masked(data, *others, int(masks[0].partition(".")[2]))
    if masks:
        raise InconclusiveError("a mask together with other indices")
    dims = _indexed(given)
    indices, values = others[:-1], others[-1]
    front, count, rest = _places(indices, dims, data.ndim)
    put = Opaque("Put")
    skipped = count + len(rest) - values.ndim

    def element(*i):
        place = [i[d] for d in rest]
        full = [*place[:front], *[slice(None)] * count, *place[front:]]
        value = [0 if values.ones[d - skipped] else full[d] for d in range(skipped, len(full))]
        reads = [values[value], *(x[[slice(None)] * x.ndim] for x in indices)]
        return put(data[at(i, dims, slice(None))], *reads)[[i[d] for d in dims]]

    return element
