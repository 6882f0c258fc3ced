"""NumPy's reductions, statistics and scans, and their gradients.

An `axis` of None means all axes, and () none. Parts of a bool result are not reduced, because
MXNet neither adds nor compares bool tensors. Parts of an integer result are not reduced either,
because MXNet rounds the whole result, not the elements.
"""

from __future__ import annotations

import math

from tofu.errors import InconclusiveError
from tofu.lang import Max, Min, Opaque, Over, Prod, Sum, apply, op
from tofu.tdl._shapes import axes_of, axis_of, inserted, names, whole, without


def _axes(axis, ndim):
    return () if axis == () or not ndim else axes_of(axis, ndim)


def _kept(ndim, axes, keepdims):
    """The variables of the remaining dimensions."""
    every = names(ndim)
    return [f"one{d}" if d in axes else every[d] for d in range(ndim) if keepdims or d not in axes]


def _reduced(data, axes, keepdims, reducer, finish=None):
    """The lambda of a reduction; `finish` computes the result from the reduced value."""
    every, variables = names(data.ndim), _kept(data.ndim, axes, keepdims)
    over = [every[d] for d in axes]

    def body(*index):
        by_name = dict(zip(variables, index))
        inner = Over(over, lambda *r: data[[{**by_name, **dict(zip(over, r))}[n] for n in every]])
        return finish(reducer(inner)) if finish else reducer(inner)

    return Over(variables, body) if axes else lambda *i: data[i]


def _of_lines(tensors, axes, keepdims, function):
    """The lambda of an opaque function of whole lines of tensors of one shape."""
    of, ndim = Opaque(function), tensors[0].ndim
    variables = _kept(ndim, axes, keepdims)

    def body(*index):
        by_name = dict(zip(variables, index))
        place = [by_name.get(n, slice(None)) for n in names(ndim)]
        return of(*(x[place] for x in tensors))

    return Over(variables, body)


def _describe_reduction(name, reducer):
    @op(name=name)
    def reduction(a, *, axis=None, keepdims=False, dtype=None, initial=None):
        """The sum, product or extreme over axes; an integer result is truncated."""
        axes = _axes(axis, a.ndim)
        if dtype is not None and not dtype.startswith("float"):
            return _of_lines([a], axes, keepdims, "Reduced")
        return _reduced(a, axes, keepdims, reducer)

    return reduction


for _name, _reducer in (("sum", Sum), ("prod", Prod), ("max", Max), ("min", Min)):
    _describe_reduction(f"_np_{_name}", _reducer)


@op(name=("_np_any", "_np_all"))
def any_all(data, *, axis=None, keepdims=False):
    """Whether some or all elements along axes are true."""
    return _of_lines([data], _axes(axis, data.ndim), keepdims, "Whether")


@op(name="_npi_mean")
def mean(a, *, axis=None, keepdims=False):
    """The sum divided by the number of the tensor's own elements."""
    axes = _axes(axis, a.ndim)
    count = math.prod(a.shape[d] for d in axes)
    return _reduced(a, axes, keepdims, Sum, lambda total: total / count)


@op(name=("_npi_std", "_npi_var"))
def moments(a, *, axis=None, keepdims=False):
    """The deviation or the variance, and the mean."""
    axes = _axes(axis, a.ndim)
    return tuple(_of_lines([a], axes, keepdims, "Moment") for _ in range(2))


@op(name=("_npi_argmax", "_npi_argmin"))
def arg_extreme(data, *, axis=None, keepdims=False):
    """The index of the extreme value along an axis, or in the flattened tensor."""
    return _of_lines([data], _axes(axis, data.ndim), keepdims, "Arg")


@op(name="_npi_percentile")
def percentile(a, q=None, *, axis=None, keepdims=False):
    """Order statistics along axes; several percentages add dimensions."""
    lines = _of_lines([a], _axes(axis, a.ndim), keepdims, "Percentile")
    if q is None:
        return lines
    of, percentages = Opaque("Among"), names(q.ndim, "q")
    variables = [*percentages, *lines.names]
    return Over(variables, lambda *v: of(lines.function(*v[q.ndim :]), q[v[: q.ndim]]))


@op(name="_npi_average")
def average(a, weights=None, *, axis=None):
    """The weighted mean over axes, and the sum of weights."""
    axes = _axes(axis, a.ndim)
    if weights is None:
        return _of_lines([a], axes, False, "Mean"), Over([], lambda: apply("count"))
    if weights.ndim == a.ndim:
        both = _of_lines([a, weights], axes, False, "Average")
        return both, _of_lines([weights], axes, False, "Total")
    of, variables = Opaque("Average"), _kept(a.ndim, axes, False)
    total = Over([], lambda: Opaque("Total")(weights[:]))
    lines = _of_lines([a], axes, False, "Lines")
    return Over(variables, lambda *i: of(lines.function(*i), weights[:])), total


@op(name="_npi_norm")
def norm(data, *, ord=2, axis=None, keepdims=False, flag=-1, out_shapes):
    """A norm along axes, and an empty output for saved singular values."""
    if math.prod(out_shapes[3]) > 1:
        raise InconclusiveError("a norm of singular values is not described")
    axes = _axes(axis, data.ndim)
    saved = [
        Over(names(len(s), f"s{k}_"), lambda *_: apply("nothing"))
        for k, s in enumerate(out_shapes[1:])
    ]
    return (_of_lines([data], axes, keepdims, "Norm"), *saved)


@op(name="_np_trace")
def trace(data, *, offset=0, axis1=0, axis2=1):
    """The sum of a diagonal."""
    pair = axis_of(axis1, data.ndim), axis_of(axis2, data.ndim)
    below, right = max(-offset, 0), max(offset, 0)
    extent = min(data.shape[pair[0]] - below, data.shape[pair[1]] - right)
    variables = list(without(names(data.ndim), pair))

    def body(*index):
        by_name = dict(zip(variables, index))

        def on_diagonal(k):
            at = {pair[0]: k + below, pair[1]: k + right}
            return data[[at.get(d, by_name.get(n)) for d, n in enumerate(names(data.ndim))]]

        return Sum(on_diagonal, extent=extent)

    return Over(variables, body)


# --- Gradients and scans ------------------------------------------------------------------


def _stretched(tensor, ndim, axes):
    """A function from an index of `ndim` dimensions to the reduced tensor's element."""
    if tensor.ndim == ndim:
        return lambda *i: tensor[tuple(0 if d in axes else v for d, v in enumerate(i))]
    return lambda *i: tensor[without(i, axes)]


def _gradient(reduced, tensors, axis, ndim):
    """The lambda of a function of broadcast results and of elements."""
    axes = _axes(axis, ndim)
    results = [_stretched(x, ndim, axes) for x in reduced]
    return lambda *i: apply("by", *(r(*i) for r in results), *(x[i] for x in tensors))


@op(name="_backward_np_sum")
def backward_sum(ograd, *, axis=None, out_shapes):
    """The head gradient at every reduced index."""
    return _gradient([ograd], [], axis, len(out_shapes[0]))


@op(name="_backward_np_mean")
def backward_mean(ograd, *, axis=None, out_shapes):
    """The head gradient divided by the number of the gradient's own elements."""
    shape = out_shapes[0]
    count = math.prod(shape[d] for d in _axes(axis, len(shape)))
    gradient = _gradient([ograd], [], axis, len(shape))
    return lambda *i: gradient(*i) / count


@op(name=("_backward_np_max", "_backward_np_min", "_backward_np_prod"))
def backward_extreme(ograd, data, out, *, axis=None):
    """A function of the element, the result and its gradient."""
    return _gradient([ograd, out], [data], axis, data.ndim)


@op(name="_backward_np_average")
def backward_average(ograd, zero, a, *rest, axis=None):
    """The gradients of the tensor and, if there are any, of its weights."""
    if len(rest) == 2:
        count = math.prod(a.shape[d] for d in _axes(axis, a.ndim))
        gradient = _gradient([ograd], [a], axis, a.ndim)
        return lambda *i: gradient(*i) / count
    weights, axes = rest[0], _axes(axis, a.ndim)
    gradient = Opaque("AverageGradient")
    every, variables = names(a.ndim), _kept(a.ndim, axes, False)
    lines = [x for x in (a, weights) if x.ndim == a.ndim]
    results = [x for x in (ograd, *rest[1:]) if x.ndim == len(variables)]

    def element(i):
        of = [x[whole(i, axes)] for x in lines] + [x[without(i, axes)] for x in results]
        of += [weights[:]] if weights.ndim < a.ndim else []
        return gradient(*of)[tuple(i[d] for d in axes)]

    by_a = Over(every, lambda *i: element(i))
    if weights.ndim == a.ndim:
        return by_a, by_a
    axis = axes[0]
    summed = Over(
        [f"i{axis}"], lambda w: Sum(Over(variables, lambda *r: element(inserted(r, axis, w))))
    )
    return by_a, summed


@op(name="_backward_npi_norm")
def backward_norm(ograd, zero1, zero2, zero3, data, out, *saved, axis=None):
    """The element divided by the norm, times the head gradient."""
    if math.prod(saved[2].shape) > 1:
        raise InconclusiveError("a norm of singular values is not described")
    return _gradient([ograd, out], [data], axis, data.ndim)


@op(name="_backward_np_trace")
def backward_trace(ograd, *, axis1=0, axis2=1, out_shapes):
    """The head gradient on a diagonal of zeros."""
    ndim = len(out_shapes[0])
    pair = axis_of(axis1, ndim), axis_of(axis2, ndim)
    place = Opaque("Diagonal")
    return lambda *i: place(ograd[without(i, pair)])[i[pair[0]], i[pair[1]]]


@op(name=("_np_cumsum", "_backward_np_cumsum"))
def cumsum(a, *, axis=None, out_shapes):
    """Cumulative sums along an axis or in the flattened tensor."""
    scan = Opaque("Scan")
    if axis is None:
        return lambda *i: scan(a[(slice(None),) * a.ndim])[i]
    axis = axis_of(axis, a.ndim)
    return lambda *i: scan(a[whole(i, axis)])[i[axis]]
