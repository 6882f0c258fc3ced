"""Short ways to write cases down."""

from __future__ import annotations

from .harness import Case, In

__all__ = ["back", "case", "ints", "positive", "real", "words"]


def words(text: str) -> list[str]:
    return text.split()


def real(*shape: int) -> In:
    return In(shape)


def positive(*shape: int) -> In:
    return In(shape, "positive")


def ints(high: int, *shape: int) -> In:
    return In(shape, "int", high)


def case(op: str, *inputs: In, attrs: dict | None = None, **options) -> Case:
    return Case(op, inputs, attrs or {}, **options)


def back(op: str, reads: str, *inputs: In, **options) -> Case:
    """The case of a backward operator; its forward one is the name's, or `forward`."""
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
