"""Sorting and choosing along an axis, which is whole; all other dimensions are free."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import op
from tofu.tdl._shapes import axis_of, instances, line


def _line(ndim, axis, what):
    if axis is None:
        raise InconclusiveError(f"{what} of the flattened tensor needs all of it")
    return line(ndim, axis_of(axis, ndim))


@op(name=("sort", "argsort"))
def sort(data, *, axis=-1):
    """Sorted along an axis; the positions are a hidden output."""
    word = _line(data.ndim, axis, "sorting")
    return instances(f"{word} {word}", (data, word))


@op(name="topk")
def topk(data, *, axis=-1):
    """The largest or smallest along an axis, their positions, or a mask of them."""
    word = _line(data.ndim, axis, "the best")
    return instances(f"{word} {word}", (data, word))


@op(name="_backward_topk")
def backward_topk(*args, axis=-1, out_shapes):
    """The head gradient at the chosen positions; also for sort."""
    word = _line(len(out_shapes[0]), axis, "the gradient of the best")
    return instances(word, *((x, word) for x in args))
