"""NumPy's products (all contractions), differences and polynomials; and gradients."""

from __future__ import annotations

import functools
import operator

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Sum, adjoint, apply, op
from tofu.tdl._shapes import at, axis_of, names, whole

# --- Contractions -------------------------------------------------------------------------


def _contraction(tensors, indices, out):
    """The product of tensors at named indices, summed over the names that `out` lacks."""
    pairs = [list(zip(own, x.ones)) for x, own in zip(tensors, indices)]
    long = {name for pair in pairs for name, one in pair if not one}
    summed = list(dict.fromkeys(n for own in indices for n in own if n not in out))

    def term(by_name):
        places = [[0 if one and n in long else by_name[n] for n, one in pair] for pair in pairs]
        return functools.reduce(operator.mul, (x[place] for x, place in zip(tensors, places)))

    def element(*v):
        by_name = dict(zip(out, v))
        if not summed:
            return term(by_name)
        return Sum(Over(summed, lambda *r: term({**by_name, **dict(zip(summed, r))})))

    return Over(out, element)


def _dot(a, b):
    """The indices of a product over the last dimension and the last but one."""
    left, right = names(a.ndim), names(b.ndim, "j")
    if left and right:
        right[max(b.ndim - 2, 0)] = left[-1]
    out = [n for n in [*left, *right] if n not in set(left[-1:] if right else ()) & set(right)]
    return [left, right], out


def _matmul(a, b):
    """A dot of matrices for every index of the leading dimensions."""
    batch = names(max(a.ndim, b.ndim, 2) - 2, "b")
    left = [*batch[len(batch) - max(a.ndim - 2, 0) :], *["i", "k"][-a.ndim :]]
    right = [*batch[len(batch) - max(b.ndim - 2, 0) :], *(["k", "j"] if b.ndim > 1 else ["k"])]
    return [left, right], [*batch, *"i"[: a.ndim - 1], *"j"[: b.ndim - 1]]


def _tensordot(a, b, a_axes, b_axes):
    """The indices of a product over pairs of dimensions."""
    left, right = names(a.ndim), names(b.ndim, "j")
    pairs = [(axis_of(p, a.ndim), axis_of(q, b.ndim)) for p, q in zip(a_axes, b_axes)]
    for p, q in pairs:
        right[q] = left[p]
    summed = {left[p] for p, _ in pairs}
    return [left, right], [n for n in [*left, *right] if n not in summed]


def _tensordot_count(a, b, count):
    return _tensordot(a, b, range(a.ndim - count, a.ndim), range(count))


def _subscripts(tensors, text):
    """The indices in an einsum's text."""
    before, _, after = text.replace(" ", "").partition("->")
    parts = before.split(",")
    rest = [x.ndim - len(p.replace("...", "")) for x, p in zip(tensors, parts)]
    dots = names(max([r for r, p in zip(rest, parts) if "..." in p], default=0), "e")

    def named(part, count):
        head, ellipsis, tail = part.partition("...")
        return [*head, *(dots[len(dots) - count :] if ellipsis else ()), *tail]

    if "->" not in text:
        letters = before.replace(",", "").replace("...", "")
        after = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return [named(p, r) for p, r in zip(parts, rest)], named(after, len(dots))


@op(name="_np_dot")
def dot(a, b):
    """The product over the last dimension and the last but one."""
    return _contraction([a, b], *_dot(a, b))


@op(name="_npi_matmul")
def matmul(a, b):
    """Products of matrices, whose batches are broadcast."""
    return _contraction([a, b], *_matmul(a, b))


@op(name="_npi_tensordot")
def tensordot(a, b, *, a_axes_summed, b_axes_summed):
    """The product over pairs of dimensions."""
    return _contraction([a, b], *_tensordot(a, b, a_axes_summed, b_axes_summed))


@op(name="_npi_tensordot_int_axes")
def tensordot_int_axes(a, b, *, axes):
    """The product over the last dimensions of one and the first of the other."""
    return _contraction([a, b], *_tensordot_count(a, b, axes))


@op(name="_npi_einsum")
def einsum(*args, subscripts):
    """The sum of products that an einsum's text describes."""
    return _contraction(args, *_subscripts(args, subscripts))


def _gradients(ograd, tensors, indices):
    return tuple(adjoint(_contraction(tensors, *indices), ograd, list(tensors)))


@op(name="_backward_np_dot")
def backward_dot(ograd, a, b):
    """The gradients of both factors."""
    return _gradients(ograd, [a, b], _dot(a, b))


@op(name="_backward_np_matmul")
def backward_matmul(ograd, a, b):
    """The gradients of both factors; MXNet broadcasts only outer dimensions."""
    for x in (a, b):
        batch = tuple(zip(x.ones, ograd.ones[ograd.ndim - x.ndim :]))[:-2]
        if any(one and not out and not all(x.ones[:d]) for d, (one, out) in enumerate(batch)):
            raise InconclusiveError("MXNet's own gradient is wrong: an inner stretch")
    return _gradients(ograd, [a, b], _matmul(a, b))


@op(name="_backward_npi_tensordot")
def backward_tensordot(ograd, a, b, *, a_axes_summed, b_axes_summed):
    """The gradients of both factors."""
    return _gradients(ograd, [a, b], _tensordot(a, b, a_axes_summed, b_axes_summed))


@op(name="_backward_npi_tensordot_int_axes")
def backward_tensordot_int_axes(ograd, a, b, *, axes):
    """The gradients of both factors."""
    return _gradients(ograd, [a, b], _tensordot_count(a, b, axes))


@op(name="_backward_npi_einsum")
def backward_einsum(ograd, *args, subscripts):
    """The gradients of all factors."""
    return _gradients(ograd, args, _subscripts(args, subscripts))


# --- Differences and polynomials ----------------------------------------------------------


@op(name="_npi_diff")
def diff(a, *, n=1, axis=-1):
    """The n-th difference of neighbours along an axis."""
    axis = axis_of(axis, a.ndim)

    def element(*i):
        return Sum(lambda k: apply("binomial", k) * a[at(i, axis, i[axis] + k)], extent=n + 1)

    return element


@op(name="_backward_npi_diff")
def backward_diff(ograd, *, axis=-1):
    """The transposed difference along an axis, which is whole."""
    axis, differences = axis_of(axis, ograd.ndim), Opaque("Differences")
    return lambda *i: differences(ograd[whole(i, axis)])[i[axis]]


@op(name="_npi_ediff1d")
def ediff1d(*args, to_begin_scalar=None, to_end_scalar=None):
    """Differences of neighbours in the flattened tensor, between the given ends."""
    if len(args) == 1 and args[0].ndim == 1 and to_begin_scalar is to_end_scalar is None:
        return lambda i: args[0][i + 1] - args[0][i]
    differences = Opaque("Differences")
    return lambda i: differences(*(x[(slice(None),) * x.ndim] for x in args))[i]


@op(name="_npi_backward_ediff1d")
def backward_ediff1d(ograd, *args, out_shapes):
    """The transposed differences: everything is whole."""
    differences = Opaque("Differences")
    return tuple(
        Over(names(len(s), f"o{k}_"), lambda *i: differences(ograd[:])[i])
        for k, s in enumerate(out_shapes)
    )


@op(name="_npi_polyval")
def polyval(p, x):
    """A polynomial of each element."""
    value = Opaque("Polynomial")
    return lambda *i: value(p[:], x[i])


@op(name="_npi_backward_polyval")
def backward_polyval(ograd, p, x):
    """The gradients of the coefficients, a sum over all elements, and of the elements."""
    value, places = Opaque("PolynomialGradient"), names(x.ndim)
    return (
        Over(["k"], lambda k: Sum(Over(places, lambda *i: value(ograd[i], p[:], x[i])[k]))),
        Over(places, lambda *i: value(ograd[i], p[:], x[i])),
    )
