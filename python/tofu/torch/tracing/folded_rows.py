"""Undoes the folding of a tensor's dimensions into the rows of a matrix.

torch multiplies data of several samples and words with a weight as one matrix, whose rows are all
words of all samples. A part of such rows is some samples, never some words of every sample. With
the dimensions apart, ranks may share either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

__all__ = ["unfold_rows"]

aten: Any = torch.ops.aten
Node = Any  # torch.fx.Node, whose attributes are untyped
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def unfold_rows(graph: Any) -> None:
    """Change a traced graph: products and sums of folded rows become those of the tensors.

    Args:
        graph: the graph, ``torch.fx.Graph``. Nodes that nothing reads any longer stay.
    """
    for node in graph.nodes:
        if node.target in _VIEWS:
            _skip_detour(node)
    for node in graph.nodes:
        unfold = _UNFOLD.get(node.target)
        if unfold is not None:
            with graph.inserting_before(node):
                unfold(graph, node)
    for node in graph.nodes:
        if node.target in _VIEWS:
            _skip_detour(node)


def _skip_detour(view: Node) -> None:
    """Have readers of a view of a view read its source, if both have one shape."""
    source = view.args[0]
    while _is_view(source):
        source = source.args[0]
    if _same(_shape(source), _shape(view)):
        view.replace_all_uses_with(source)


def _product(graph: Any, node: Node) -> None:
    """A product with a matrix, plus a bias or not, if its readers undo the folding."""
    *bias, left, right = node.args
    source = _unfolded(left)
    if source is None or (bias and len(_shape(bias[0])) != 1) or node.kwargs:
        return
    lead = _shape(source)[:-1]
    if not all(_is_view(user) and _starts(_shape(user), lead) for user in node.users):
        return
    value = node.meta["val"]
    value = value.new_empty((*lead, value.shape[1]))
    if bias:
        new = _call(graph, aten.linear.default, (source, _transposed(graph, right), *bias), node)
    else:
        new = _call(graph, aten.matmul.default, (source, right), node)
    new.meta["val"] = value
    node.replace_all_uses_with(new)


def _product_of_rows(graph: Any, node: Node) -> bool:
    """The sum over rows of products of two tensors' elements, such as a weight's gradient."""
    left, right = node.args
    if left.target is not aten.t.default:
        return False
    sources = _unfolded(left.args[0]), _unfolded(right)
    if sources[0] is None or sources[1] is None:
        return False
    lead = _shape(sources[0])[:-1]
    if not _same(lead, _shape(sources[1])[:-1]):
        return False
    axes = [*range(len(lead))]
    new = _call(graph, aten.tensordot.default, (*sources, axes, axes), node)
    node.replace_all_uses_with(new)
    return True


def _mm(graph: Any, node: Node) -> None:
    if not _product_of_rows(graph, node):
        _product(graph, node)


def _sum(graph: Any, node: Node) -> None:
    """The sum of all rows, such as a bias's gradient."""
    data, axes, *keeps = node.args
    source = _unfolded(data)
    if source is None or list(axes) != [0] or node.kwargs:
        return
    every = [*range(len(_shape(source)) - 1)]
    new = _call(graph, aten.sum.dim_IntList, (source, every), node)
    if any(keeps):
        value = node.meta["val"]
        new.meta["val"] = value.new_empty(value.shape[1:])
        new = _call(graph, aten.view.default, (new, list(value.shape)), node)
    node.replace_all_uses_with(new)


_UNFOLD = {aten.mm.default: _mm, aten.addmm.default: _product, aten.sum.dim_IntList: _sum}


def _transposed(graph: Any, matrix: Node) -> Node:
    if matrix.target is aten.t.default:
        return matrix.args[0]
    new = _call(graph, aten.t.default, (matrix,), matrix)
    new.meta["val"] = matrix.meta["val"].t()
    return new


def _call(graph: Any, target: Any, arguments: tuple[Any, ...], origin: Node) -> Node:
    """A new call in the place of another."""
    new = graph.call_function(target, arguments)
    new.meta = dict(origin.meta)
    return new


def _unfolded(node: Node) -> Optional[Node]:
    """The tensor of which a view folds all dimensions but the last; None if it folds none."""
    if not _is_view(node):
        return None
    source, shape = node.args[0], _shape(node)
    own = _shape(source)
    if len(shape) != 2 or not _same(own[-1:], shape[-1:]):
        return None
    folded = [size for size in own[:-1] if not (isinstance(size, int) and size == 1)]
    return source if len(folded) > 1 else None


def _is_view(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.target in _VIEWS


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def _starts(shape: Sequence[Any], first: Sequence[Any]) -> bool:
    return len(shape) > len(first) and _same(shape[: len(first)], first)


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether sizes are the same, without asking for a symbol's value."""
    return len(one) == len(other) and all(map(_same_size, one, other))


def _same_size(one: Any, other: Any) -> bool:
    if isinstance(one, torch.SymInt) and isinstance(other, torch.SymInt):
        return bool(one.node.expr == other.node.expr)
    return type(one) is type(other) and bool(one == other)
