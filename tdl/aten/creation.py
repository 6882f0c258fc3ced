"""Tensors that are made from a shape and a value."""

from __future__ import annotations

from tofu.lang import Rewrite, apply, op

_SIZE = (Rewrite("size", {"output_shape": 0}),)


@op(
    name=[
        f"aten.{name}.{overload}"
        for name in ("full", "zeros", "ones", "empty", "rand", "randn", "empty_permuted")
        for overload in ("default", "memory_format")
    ]
    + ["aten.scalar_tensor.default"],
    rewrites=_SIZE,
)
def filled():
    """One value for every element, or a random one for each."""
    return lambda *i: apply("filled")


@op(
    name=[
        *("aten.arange.default", "aten.arange.start", "aten.arange.start_step"),
        "aten.linspace.default",
    ]
)
def numbers():
    """The index of each element, or a multiple of it. No split: a part would count from zero."""
    return lambda i: apply("number", i)


@op(name=("aten.eye.default", "aten.eye.m", "aten.tril_indices.default"))
def matrix():
    """Ones on a diagonal. No split: a part would begin at the first row."""
    return lambda i, j: apply("number", i, j)
