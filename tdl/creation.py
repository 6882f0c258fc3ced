"""Operators that create tensors, from nothing or from a shape."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Rewrite, apply, like, op

_SHAPE = (Rewrite("shape", {"output_shape": 0}),)
_RANDOM = (
    *("uniform", "normal", "exponential", "gamma", "poisson", "negative_binomial"),
    "generalized_negative_binomial",
)


@op(name=("_zeros", "_ones", "_full", "_zeros_without_dtype"), rewrites=_SHAPE)
def filled():
    """A constant."""
    return lambda *i: 0


@op(
    name=tuple(f"_random_{name}" for name in (*_RANDOM, "randint")),
    rewrites=_SHAPE,
    random=True,
)
def random_filled():
    """Independent random numbers."""
    return lambda *i: apply("random")


@op(
    name=tuple(f"_random_{name}_like" for name in _RANDOM),
    random=True,
)
def random_like(data):
    """Independent random numbers in the shape of a tensor."""
    return lambda *i: like(apply("random"), data[i])


@op(name="_arange")
def arange():
    """Equally spaced numbers: every part would start at the beginning."""
    return lambda i: apply("at", i)


@op(name="_eye")
def eye():
    """Ones on a diagonal."""
    return lambda i, j: apply("equal", i, j)


@op(name="_contrib_arange_like")
def arange_like(data, *, axis=None, repeat=1):
    """Positions along an axis, as many as a tensor's axis has."""
    if axis is None or repeat != 1:
        raise InconclusiveError("arange_like of the flattened tensor is not described")
    place = Opaque("Position")
    whole = (slice(None),) * data.ndim
    return lambda i: place(data[whole])[i]
