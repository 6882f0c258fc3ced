"""Marks the operators that ``torch.utils.checkpoint`` runs while a module is traced.

A trace ignores the hooks with which checkpoints drop and recompute tensors. The operators inside a
checkpoint get a number instead, and ``repeats`` runs them again in the backward pass.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, Callable
from unittest import mock

import torch
import torch.utils.checkpoint as checkpoints

from tofu.torch.tiles.private_names import get_proxy_mode

__all__ = ["CHECKPOINT", "marked_checkpoints"]

# The key of a node's checkpoint in its `meta`; nested checkpoints belong to the outermost.
CHECKPOINT = "tofu_checkpoint"
# torch 2.14 calls the second one, earlier versions have the first one only.
_GENERATORS = (
    "_checkpoint_without_reentrant_generator", "_checkpoint_without_reentrant_generator_impl",
)  # fmt: skip


class _Marks:
    """Numbers checkpoints, and marks the nodes that are traced inside."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._depth = 0

    @contextlib.contextmanager
    def marked(self) -> Iterator[None]:
        """Mark the nodes that are traced meanwhile."""
        mode = get_proxy_mode()
        if mode is None or self._depth:  # torch runs a module before it traces it
            yield
            return
        nodes = mode.tracer.graph.nodes
        before = len(nodes)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        number = next(self._numbers)
        for node in itertools.islice(nodes, before, None):
            node.meta[CHECKPOINT] = number

    def without_reentrant(self, function: Any, *given: Any, **named: Any) -> Iterator[None]:
        """Takes the place of torch's generator: `checkpoint` runs the function at the yield."""
        with self.marked():
            yield

    def apply(self, function: Callable[..., Any], _preserve: bool, *given: Any) -> Any:
        """Takes the place of the autograd function of checkpoints with use_reentrant=True."""
        trained = any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)
        if not trained:  # torch then finds no gradients inside, and warns
            checkpoints.check_backward_validity(given)
        with self.marked(), torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            return function(*given)


@contextlib.contextmanager
def marked_checkpoints() -> Iterator[None]:
    """Have `torch.utils.checkpoint` mark the traced operators."""
    marks = _Marks()
    generators = [name for name in _GENERATORS if hasattr(checkpoints, name)]
    with contextlib.ExitStack() as stack:
        for name in generators:
            stack.enter_context(mock.patch.object(checkpoints, name, marks.without_reentrant))
        stack.enter_context(mock.patch.object(checkpoints, "CheckpointFunction", marks))
        yield
