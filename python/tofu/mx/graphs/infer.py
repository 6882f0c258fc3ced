"""Shapes and dtypes of every entry of a graph, hidden outputs included."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np

from tofu.errors import GraphError
from tofu.mx.nnvm import Graph, Node, Shape

from ..extension import mxnet_errors

__all__ = ["infer", "infer_shapes", "infer_types"]


_UNKNOWN = (-1,)


def infer(
    graph: Graph, variables: Mapping[str, tuple[Shape, str]], *, may_be_empty: bool = False
) -> None:
    """Fill in the shapes and dtypes of all nodes.

    Args:
        graph: the graph.
        variables: name -> (shape, dtype) of its variables; more may be given.
        may_be_empty: whether outputs may have no elements, where NumPy's shapes allow that.

    Raises GraphError with the first node whose shape or dtype cannot be inferred.
    """
    order = graph.topological()
    symbol = graph.to_symbol(all_heads=True)
    arguments = set(symbol.list_arguments())
    used = {name: variables[name] for name in arguments if name in variables}
    with mxnet_errors("inferring shapes and dtypes"):
        _, dtypes, _ = infer_types(symbol, {name: dtype for name, (_, dtype) in used.items()})
        _, shapes, _ = symbol.infer_shape_partial(
            **{name: tuple(shape) for name, (shape, _) in used.items()}
        )
    scalars = mx.util.is_np_shape()  # else () is MXNet's unknown shape
    least = 0 if may_be_empty and scalars else 1
    at = 0
    for node in order:
        end = at + node.num_outputs
        node.shapes = [_UNKNOWN if s is None else tuple(s) for s in (shapes or [])[at:end]]
        node.dtypes = [_flag(dtype) for dtype in (dtypes or [])[at:end]]
        at = end
        is_known = [
            (shape or scalars) and all(dim >= least for dim in shape) for shape in node.shapes
        ]
        if len(is_known) != node.num_outputs or not all(is_known) or -1 in node.dtypes:
            raise GraphError(f"node {node.name!r} ({node.op}): {_unknown(node)}")


def infer_shapes(symbol: Any, known: Mapping[str, Any]) -> Any:
    """As Symbol.infer_shape, which also prints what it was given if that does not fit."""
    return symbol._infer_shape_impl(False, **known)


def infer_types(symbol: Any, known: Mapping[str, Any]) -> Any:
    """As Symbol.infer_type, which also prints what it was given if that does not fit."""
    return symbol._infer_type_impl(False, **known)


def _unknown(node: Node) -> str:
    """Why a node's outputs cannot be used, and what to do; those of its inputs are known."""
    found = f"found {node.shapes or 'no shapes'}"
    if node.is_variable:
        return (
            f"its shape or dtype does not follow from the variables given: {found}; give the "
            "shape of every input, parameter and auxiliary state"
        )
    if any(0 in shape for shape in node.shapes) and mx.util.is_np_shape():
        return f"its output has no elements: {found}; expected at least one"
    return (
        f"its shape or dtype does not follow from those of its inputs, as where it depends on "
        f"values: {found}; a graph needs all shapes before it runs, so compute this operator "
        "outside of the block, and make blocks of what comes before and after it"
    )


@functools.lru_cache(maxsize=64)
def _flag(dtype: Any) -> int:
    """MXNet's number for a NumPy type; -1 if it has none."""
    flags, kind = mx.ndarray._DTYPE_NP_TO_MX, np.dtype(dtype)
    flag: int = flags.get(kind.type, flags.get(kind, -1))  # MXNet lists bfloat16 by dtype
    return flag
