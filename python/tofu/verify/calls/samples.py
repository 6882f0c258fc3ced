"""Shorthands for writing cases."""

from __future__ import annotations

from typing import Any, Optional

from tofu.verify.calls.case import Case, In

__all__ = ["In", "back", "boxes", "case", "ints", "positive", "real", "words"]


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


def real(*shape: int) -> In:
    """An input of reals of both signs."""
    return In(shape)


def positive(*shape: int) -> In:
    """An input of reals between 0 and 1."""
    return In(shape, "positive")


def ints(high: int, *shape: int) -> In:
    """An input of integers below `high`."""
    return In(shape, "int", high)


def boxes(*shape: int, high: int = 0) -> In:
    """An input of boxes, with integers below `high` in its first column."""
    return In(shape, "boxes", high)


def case(op: str, *inputs: In, attrs: Optional[dict[str, str]] = None, **options: Any) -> Case:
    """The case of a forward operator; `options` are fields of Case."""
    return Case(op, inputs, attrs or {}, **options)


def back(op: str, reads: str, *inputs: In, **options: Any) -> Case:
    """The case of a backward operator, whose forward operator its name or `forward` gives."""
    forward = options.pop("forward", op.replace("_backward_", ""))
    grads = options.pop("grads", None)
    return case(
        op,
        *inputs,
        forward=forward,
        reads=tuple(reads.split()),
        grads=None if grads is None else tuple(grads.split()),
        **options,
    )
