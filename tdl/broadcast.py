"""Binary operators that broadcast, broadcasting itself, and gradients."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Over, Rewrite, Sum, apply, like, op
from tofu.tdl._shapes import axes_of, broadcast, broadcast_ones, names, unbroadcast, without

_ARITHMETIC = ("add", "sub", "mul", "div", "mod", "power", "maximum", "minimum", "hypot")
_LOGIC = (
    *("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"),
    *("logical_and", "logical_or", "logical_xor"),
)
_BY_OPERANDS = tuple(name for name in _ARITHMETIC if name not in ("add", "sub"))


@op(name=tuple(f"broadcast_{name}" for name in (*_ARITHMETIC, *_LOGIC)))
def broadcast_binary(lhs, rhs):
    """A function of two elements; a dimension of size 1 serves every index."""
    ones = broadcast_ones(lhs, rhs)
    return lambda *i: apply("binary", broadcast(lhs, i, ones), broadcast(rhs, i, ones))


@op(name=("_backward_broadcast_add", "_backward_broadcast_sub"))
def backward_broadcast_sum(ograd, *, out_shapes):
    """The head gradient summed over the broadcast dimensions."""
    return tuple(unbroadcast(s.ones, ograd.ones, lambda *i: ograd[i]) for s in out_shapes)


@op(name=tuple(f"_backward_broadcast_{name}" for name in _BY_OPERANDS))
def backward_broadcast_binary(ograd, lhs, rhs):
    """The gradients of both operands, summed over the broadcast dimensions."""
    ones = ograd.ones

    def element(*i):
        return apply("by", ograd[i], broadcast(lhs, i, ones), broadcast(rhs, i, ones))

    return tuple(unbroadcast(x.ones, ones, element) for x in (lhs, rhs))


@op(name="broadcast_to", rewrites=[Rewrite("shape", {"output_shape": 0})])
def broadcast_to(data, *, out_shapes):
    """The tensor broadcast to a shape."""
    return lambda *i: broadcast(data, i, out_shapes[0].ones)


def _axis_sizes(shapes, axis):
    stretched = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = len(shapes[0])
    return [Rewrite("size", {"sizes": [f"i{a % ndim}" for a in stretched]})]


@op(name="broadcast_axis", rewrites=_axis_sizes)
def broadcast_axis(data, *, axis=(), out_shapes):
    """The tensor broadcast along some axes."""
    return lambda *i: broadcast(data, i, out_shapes[0].ones)


@op(name="broadcast_like")
def broadcast_like(lhs, rhs, *, lhs_axes=None, rhs_axes=None):
    """The first tensor broadcast to the shape of the second."""
    if lhs_axes is not None or rhs_axes is not None:
        raise InconclusiveError("broadcast_like with lhs_axes: only whole shapes")
    return lambda *i: like(broadcast(lhs, i, rhs.ones), rhs[i])


@op(name="_broadcast_backward")
def broadcast_backward(ograd, *, axis=(), exclude=False, out_shapes):
    """The head gradient summed over the broadcast dimensions."""
    small = out_shapes[0]
    if len(small) == ograd.ndim:
        return unbroadcast(small.ones, ograd.ones, lambda *i: ograd[i])
    summed = axes_of(axis, ograd.ndim, exclude=exclude)
    every = names(ograd.ndim)
    variables, rest = without(every, summed), [every[d] for d in summed]
    if len(small) != len(variables):
        raise InconclusiveError(f"gradient of rank {len(small)} of rank {ograd.ndim}")

    def element(*index):
        by_name = dict(zip(variables, index))
        return Sum(
            Over(rest, lambda *r: ograd[[{**by_name, **dict(zip(rest, r))}[n] for n in every]])
        )

    return Over(variables, element)
