"""The variables that MXNet's backward pass reaches from some outputs of a block.

MXNet records a block that was never hybridized operator by operator. A backward call then leaves
alone what computes no part of the loss: those gradients, their marks, and running statistics. A
hybridized block is one operator, whose backward pass writes zeros instead, unless it is so short
that MXNet records its operators (``inline_limit``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Optional

from tofu.mx.nnvm import symbol_text

__all__ = ["Reach", "of_hybridized", "of_traced", "reached"]

# For each output, the names of the inputs and parameters that a backward call through it reaches.
# None: it reaches all of them.
Reach = Optional[Sequence[frozenset[str]]]

_INLINE_LIMIT = 2  # operators, MXNet's default


def of_hybridized(block: Any, symbol: Any) -> Reach:
    """The reach of the outputs of a hybridized block with this symbol."""
    operators = list(_operators(symbol))
    return None if _is_one(block, len(operators)) else _of_outputs(symbol, ())


def of_traced(symbol: Any, inside: Sequence[Any]) -> Reach:
    """The reach of the outputs of a block that was never hybridized.

    Args:
        symbol: its trace.
        inside: the block and all blocks inside it; hybridized ones may be one operator each.
    """
    operators = list(_operators(symbol))
    groups = []
    for block in inside:
        if getattr(block, "_active", False):
            prefixes = tuple(each.prefix for each in _blocks(block) if each.prefix)
            if _is_one(block, sum(name.startswith(prefixes) for name in operators)):
                groups.append(frozenset(block.collect_params()))
    return _of_outputs(symbol, groups)


def reached(
    names: Collection[str], heads: Sequence[Optional[Any]], reach: Reach
) -> Collection[str]:
    """The names of variables that a backward call reaches.

    Args:
        names: all variables.
        heads: the gradients of the outputs; None for outputs that the call does not reach.
        reach: the reach of each output.
    """
    if all(head is None for head in heads):
        return ()
    if reach is None or all(head is not None for head in heads):
        return names
    found: set[str] = set()
    for head, of_output in zip(heads, reach):
        if head is not None:
            found |= of_output
    return found


def _of_outputs(symbol: Any, groups: Sequence[frozenset[str]]) -> Reach:
    """The variables that compute each output, and the groups of those that are reached together."""
    if len(symbol.list_outputs()) == 1:
        return None
    found = [frozenset(output.list_inputs()) for output in symbol]
    return [names.union(*(group for group in groups if group & names)) for names in found]


def _is_one(block: Any, operators: int) -> bool:
    """Whether MXNet records a hybridized block as one operator."""
    flags = dict(block._flags)
    return bool(flags.get("static_alloc")) or operators > flags.get("inline_limit", _INLINE_LIMIT)


def _operators(symbol: Any) -> Iterator[str]:
    """The names of all operators."""
    for node in json.loads(symbol_text(symbol))["nodes"]:
        if node["op"] != "null":
            yield node["name"]


def _blocks(block: Any) -> Iterator[Any]:
    yield block
    for child in block._children.values():
        yield from _blocks(child)
