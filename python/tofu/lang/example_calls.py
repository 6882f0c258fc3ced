"""Data types and shorthands for example calls, which stand beside operators' descriptions.

A dimension that can be split has a multiple of 6 as its size, for 2, 3 or 6 parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

__all__ = ["Case", "In", "Shape", "back", "boxes", "case", "ints", "positive", "real", "words"]

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class In:
    """An input's shape and the values it can have (``tofu.verify.calls.probes``).

    Attributes:
        shape: its shape.
        kind: "real" (of both signs), "positive" (below 1), "int", "flag" (0 and 1),
            "permutation" (of 0, 1, ...), "edges" (from 0 to 1), "count" (1 and up), "boxes"
            (corners in the last four columns), "rois" (in pixels), "definite" (symmetric,
            positive definite matrices) or "share" (lines that sum to 1).
        high: the bound of integers, and of the first column of boxes.
        dtype: its type; None: the case's.
    """

    shape: Shape
    kind: str = "real"
    high: int = 0
    dtype: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Case:
    """A call of an operator.

    Attributes:
        op: its name.
        inputs: its inputs; for a backward operator, those of its forward operator.
        attrs: attributes, as MXNet's strings.
        forward: the forward operator of a backward one.
        reads: the backward operator's inputs: g0 the gradient of output 0, i0 the
            forward operator's input 0, o0 its output 0, z1 zeros like its output 1.
        grads: the forward inputs whose gradients are its outputs.
        like: forward inputs shaped like something that the backward operator reads.
        forward_attrs: the forward operator's attributes if they differ; in a part their
            "shape" is that of the gradient of output 0.
        live: whether its forward operator gets the real inputs, because it keeps state.
        hide: outputs that the operator refuses to compute.
        outputs: the number of outputs of the (forward) operator, including hidden ones.
        skip: outputs that are not compared (private workspaces, random values).
        expect: the variables that must be splittable, and no others; None: not checked.
        dtype: the type of inputs that have none.
        imperative: run by mx.nd, because the operator cannot be a node of a graph.
        shaped: for such operators, the inputs whose shapes the outputs have.
        in_place: run by mx.nd into the first input, as some operators require.
        numpy: run with NumPy's shapes, where () means a scalar and not an unknown shape.
        fixed: run only with these sizes. The operator does not check other sizes, and may
            crash the process on them.
        floats: run only with floating point types.
    """

    op: str
    inputs: tuple[In, ...]
    attrs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    forward: Optional[str] = None
    reads: tuple[str, ...] = ()
    grads: Optional[tuple[str, ...]] = None
    like: Mapping[int, str] = dataclasses.field(default_factory=dict)
    forward_attrs: Optional[Mapping[str, str]] = None
    live: bool = False
    hide: tuple[int, ...] = ()
    outputs: int = 1
    skip: tuple[int, ...] = ()
    expect: Optional[str] = None
    dtype: str = "float64"
    imperative: bool = False
    shaped: tuple[int, ...] = ()
    in_place: bool = False
    numpy: bool = False
    fixed: bool = False
    floats: bool = False

    @property
    def name(self) -> str:
        """The operator with its shapes and attributes, as text."""
        shapes = "_".join("x".join(map(str, i.shape)) or "0" for i in self.inputs)
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}-{shapes}-{attrs}"


def words(text: str) -> list[str]:
    """Splits a text into words."""
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
