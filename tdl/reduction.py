"""Reductions over axes, and their gradients.

``mean`` divides by the number of elements of its own input: a part that reduces part of
an axis would divide by less. Its description has that count as a constant, so the
analysis leaves the reduced axes whole.
"""

from __future__ import annotations

import functools
import math

from tofu.errors import InconclusiveError
from tofu.lang import Max, Min, Opaque, Over, Prod, Sum, apply, minimum, op, sqrt
from tofu.tdl._shapes import axes_of, instances, letters, names, without


def _reduced(data, axis, keepdims, exclude, out_shapes, reducer, element, finish=None):
    """The lambda of a reduction; `finish` computes the result from the reduced value."""
    axes = axes_of(axis, data.ndim, exclude=exclude)
    every = names(data.ndim)
    rest_names = without(every, axes)
    ones = len(out_shapes[0]) - len(rest_names)
    variables = list(rest_names)
    if keepdims and ones:
        variables = [f"one{d}" if d in axes else every[d] for d in range(data.ndim)]
    elif ones:  # all axes are reduced: MXNet's scalars have the shape (1,)
        variables = ["one0"]

    def body(*index):
        by_name = dict(zip(variables, index))

        def inner(*rest):
            reducing = dict(zip((every[d] for d in axes), rest))
            return element(*(reducing.get(n, by_name.get(n)) for n in every))

        value = reducer(Over([every[d] for d in axes], inner))
        return finish(value) if finish is not None else value

    if not axes:
        return lambda *i: element(*i)
    return Over(variables, body)


@op(name="sum")
def sum_axis(data, *, axis=None, keepdims=False, exclude=False, out_shapes):
    """The sum over axes."""
    return _reduced(data, axis, keepdims, exclude, out_shapes, Sum, lambda *i: data[i])


@op(name="nansum")
def nansum(data, *, axis=None, keepdims=False, exclude=False, out_shapes):
    """The sum over axes, without NaNs."""
    element = lambda *i: apply("nan_to_zero", data[i])  # noqa: E731
    return _reduced(data, axis, keepdims, exclude, out_shapes, Sum, element)


@op(name="mean")
def mean(data, *, axis=None, keepdims=False, exclude=False, out_shapes):
    """The mean over axes: the sum divided by the number of the input's own elements."""
    count = math.prod(data.shape[d] for d in axes_of(axis, data.ndim, exclude=exclude))
    return _reduced(
        data, axis, keepdims, exclude, out_shapes, Sum, lambda *i: data[i], lambda s: s / count
    )


@op(name="max")
def max_axis(data, *, axis=None, keepdims=False, exclude=False, out_shapes):
    """The maximum over axes."""
    return _reduced(data, axis, keepdims, exclude, out_shapes, Max, lambda *i: data[i])


@op(name="min")
def min_axis(data, *, axis=None, keepdims=False, exclude=False, out_shapes):
    """The minimum over axes."""
    return _reduced(data, axis, keepdims, exclude, out_shapes, Min, lambda *i: data[i])


@op(name=("prod", "nanprod"))
def prod_axis(data, *, axis=None, keepdims=False, exclude=False, out_shapes):
    """The product over axes."""
    return _reduced(data, axis, keepdims, exclude, out_shapes, Prod, lambda *i: data[i])


@op(name="norm")
def norm(data, *, ord=2, axis=None, keepdims=False, out_shapes):
    """The sum of magnitudes (ord 1), or the root of the sum of squares."""
    if ord == 1:
        element, finish = lambda *i: apply("abs", data[i]), None
    else:
        element, finish = lambda *i: data[i] * data[i], sqrt
    return _reduced(data, axis, keepdims, False, out_shapes, Sum, element, finish)


@op(name=("argmax", "argmin"))
def arg_extreme(data, *, axis=None, keepdims=False, out_shapes):
    """The index of the extreme value along an axis: the axis is whole."""
    if axis is None:
        raise InconclusiveError("argmax over the flattened tensor is not described")
    (reduced,) = axes_of(axis, data.ndim)
    argument = Opaque("Arg")
    every = names(data.ndim)
    variables = [f"one{reduced}" if d == reduced else n for d, n in enumerate(every)]
    if not keepdims:
        variables = list(without(every, reduced)) or ["one0"]

    def body(*index):
        by_name = dict(zip(variables, index))
        return argument(data[tuple(by_name.get(n, slice(None)) for n in every)])

    return Over(variables, body)


@op(name="argmax_channel")
def argmax_channel(data):
    """The index of the largest channel (the second dimension)."""
    word = letters(data.ndim)
    return instances(word[0] + word[2:], (data, word[0] + "." + word[2:]))


def _every(tensors, rank, element):
    """One flag: the least of all elements' flags."""

    def least(k):
        return Min(Over(names(tensors[k].ndim, f"t{k}_"), lambda *i: element(k, i)))

    flags = range(len(tensors))
    return Over(["one0"][:rank], lambda *_: functools.reduce(minimum, map(least, flags)))


@op(name=("all_finite", "multi_all_finite"))
def all_finite(*args):
    """Whether every element is a finite number."""
    return _every(args, 1, lambda k, i: apply("is_finite", args[k][i]))


@op(name="_npx_constraint_check")
def constraint_check(data):
    """Whether every flag is set; MXNet raises an error if not."""
    return _every([data], 0, lambda _, i: apply("flag", data[i]))


@op(name="_contrib_allclose")
def all_close(a, b):
    """Whether two tensors are nearly equal."""
    return _every([a], 0, lambda _, i: apply("is_close", a[i], b[i]))


def _stretched(tensor, shape, axes):
    """A function from an index of `shape` to the reduced tensor's element."""

    def element(*i):
        if tensor.ndim == len(shape):
            return tensor[tuple(0 if d in axes else v for d, v in enumerate(i))]
        place = without(i, axes)
        return tensor[place if place else (0,)]

    return element


@op(name="_backward_sum")
def backward_sum(ograd, *, axis=None, exclude=False, out_shapes):
    """The head gradient at every reduced index."""
    shape = out_shapes[0]
    gradient = _stretched(ograd, shape, axes_of(axis, len(shape), exclude=exclude))
    return lambda *i: gradient(*i)


@op(name="_backward_mean")
def backward_mean(ograd, *, axis=None, exclude=False, out_shapes):
    """The head gradient divided by the number of the gradient's own elements."""
    shape = out_shapes[0]
    axes = axes_of(axis, len(shape), exclude=exclude)
    gradient = _stretched(ograd, shape, axes)
    count = math.prod(shape[d] for d in axes)
    return lambda *i: gradient(*i) / count


@op(name=tuple(f"_backward_{name}" for name in ("max", "min", "prod", "nanprod", "nansum")))
def backward_extreme(ograd, data, out, *, axis=None, exclude=False):
    """A function of the element, the result and its gradient."""
    axes = axes_of(axis, data.ndim, exclude=exclude)
    gradient, result = _stretched(ograd, data.shape, axes), _stretched(out, data.shape, axes)
    return lambda *i: apply("by", gradient(*i), data[i], result(*i))


@op(name="_backward_norm")
def backward_norm(ograd, data, out, *, axis=None):
    """The element divided by the norm, times the head gradient."""
    axes = axes_of(axis, data.ndim)
    gradient, result = _stretched(ograd, data.shape, axes), _stretched(out, data.shape, axes)
    return lambda *i: apply("by", gradient(*i), data[i], result(*i))
