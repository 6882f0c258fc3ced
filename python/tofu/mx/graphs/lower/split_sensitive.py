"""Operators whose values or random numbers depend on how they are split or run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

from tofu.mx.nnvm import Entry, Node, format_shape

from .registry import BEFORE, Builder, flag, number

__all__ = ["DATA_SHAPE"]

# The attribute of gather_nd that keeps its data's shape.
DATA_SHAPE = "__tofu_data_shape__"

_FLOATS = {0: "float32", 1: "float64", 2: "float16"}


_OWN_COUNT = "divides by the number of elements of its own tile"


@BEFORE.lowering("mean", reason=_OWN_COUNT)
def mean(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """A sum divided by the number of elements of the whole tensor."""
    return _mean(node, build, "sum", ("axis", "keepdims", "exclude"), "_mul_scalar")


@BEFORE.lowering("_npi_mean", reason=_OWN_COUNT)
def numpy_mean(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """Lower NumPy's mean as `mean` is lowered."""
    if node.attrs.get("dtype", "None") != "None":
        return None
    return _mean(node, build, "_np_sum", ("axis", "keepdims"), "_npi_multiply_scalar", is_int=False)


def _mean(
    node: Node, build: Builder, sum_op: str, names: Sequence[str], scale_op: str, **scaling: bool
) -> Optional[Sequence[Entry]]:
    (data,) = node.inputs
    dtype = _FLOATS.get(data.dtype)
    if dtype is None:
        return None
    count = math.prod(data.shape) // math.prod(Entry(node).shape)
    if dtype == "float16":  # a sum of many would overflow before it is divided
        data = build.op("Cast", data, dtype="float32")
    total = build.op(sum_op, data, **{key: node.attrs.get(key) for key in names})
    out = build.op(scale_op, total, scalar=1.0 / count, **scaling)
    return [build.op("Cast", out, dtype=dtype) if dtype == "float16" else out]


@BEFORE.lowering("_contrib_div_sqrt_dim", reason="divides by the last extent of its own tile")
def div_sqrt_dim(node: Node, build: Builder) -> Sequence[Entry]:
    """A division by the square root of the whole last extent."""
    (data,) = node.inputs
    return [build.op("_mul_scalar", data, scalar=1.0 / math.sqrt(data.shape[-1]))]


@BEFORE.lowering("Dropout", reason="its mask must be a plain tensor that the backward can read")
def dropout(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """Drops cuDNN's packed mask; a dropout that drops nothing becomes its input."""
    always = node.attrs.get("mode", "training") == "always"
    if number(node, "p", 0.5) == 0 or not (build.train or always):
        return [node.inputs[0]]
    if not flag(node, "cudnn_off"):
        node.attrs["cudnn_off"] = "True"
    return None


@BEFORE.lowering(
    "Pooling", reason="oneDNN's workspace of a maximum is packed, and has no tiles", essential=True
)
def pooling(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """A maximum with a gradient runs in double precision, for which MXNet never uses oneDNN."""
    (data,) = node.inputs
    if not build.train or node.num_outputs == 1 or _FLOATS.get(data.dtype) != "float32":
        return None
    out = build.op("Pooling", build.op("Cast", data, dtype="float64"), **node.attrs)
    out.node.num_outputs = node.num_outputs
    return [build.op("Cast", out, dtype="float32"), Entry(out.node, 1)]


@BEFORE.lowering("Embedding", reason="a sparse gradient has no tiles", essential=True)
def embedding(node: Node, build: Builder) -> None:
    """The operator with a dense gradient."""
    del build
    node.attrs.pop("sparse_grad", None)


@BEFORE.lowering(
    "_grad_add", reason="it makes its second input add in place, as a fetch cannot", essential=True
)
def grad_add(node: Node, build: Builder) -> Sequence[Entry]:
    """The sum, in separate memory."""
    return [build.op("elemwise_add", *node.inputs)]


@BEFORE.lowering("gather_nd", reason="MXNet loses its data's shape when it saves the gradient")
def gather_nd(node: Node, build: Builder) -> None:
    """The operator with that shape as an attribute."""
    del build
    node.attrs[DATA_SHAPE] = format_shape(node.inputs[0].shape)
