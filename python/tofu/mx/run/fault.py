"""Finds the operator of an executor that throws, by running its nodes one at a time.

MXNet's errors name no operator, and an executor runs its nodes in any order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

import mxnet as mx
from mxnet.base import _LIB

from tofu.mx.extension import run_part

__all__ = ["failing_operator", "nodes_of"]

# A line of an executor's debug text, which lists its nodes in its own order.
_NODE = re.compile(r"^(?:Variable:.*|Op:(?P<op>[^,]*), Name=(?P<name>.*))$", re.MULTILINE)
# A node's name contains the worker that runs it.
_WORKER = re.compile(r"^(?P<name>[^@]*)@(?P<worker>\d+)(?P<rest>.*)$")


def failing_operator(
    executor: mx.executor.Executor,
    contexts: Sequence[mx.Context],
    *,
    is_train: bool,
    end: Optional[int] = None,
) -> Optional[str]:
    """Run an executor on its current inputs, up to the first node that throws.

    Args:
        executor: the executor of a partitioned graph.
        contexts: the workers' contexts.
        is_train: whether operators behave as in training.
        end: the number of the node to stop before; None runs all.

    Returns a description of that node, or None if none throws this time. Clears earlier
    errors.
    """
    _LIB.MXNDArrayWaitAll()
    for number, node in enumerate(nodes_of(executor)[:end]):
        if node["op"] is None:
            continue
        run_part(executor, number, number + 1, is_train=is_train)
        if _LIB.MXNDArrayWaitAll() != 0:
            return _in_words(node["op"], node["name"], contexts)
    return None


def nodes_of(executor: mx.executor.Executor) -> list[re.Match[str]]:
    """The nodes of an executor in its own order, each with its "op", None for variables."""
    return list(_NODE.finditer(executor.debug_str()))


def _in_words(op: str, name: str, contexts: Sequence[mx.Context]) -> str:
    match = _WORKER.match(name)
    if match is None:
        return f"operator {op} ({name})"
    worker = int(match["worker"])
    return f"operator {op} ({match['name']}{match['rest']}) on worker {worker}, {contexts[worker]}"
