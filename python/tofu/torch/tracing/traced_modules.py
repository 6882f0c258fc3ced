"""Marks which submodule calls each operator while a module is traced, to name operators after it.

The operators of the backward pass carry the sequence numbers of those that they are the gradients
of, so only the forward pass is marked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules

from tofu.torch.tiles.private_names import get_proxy_mode

__all__ = ["MODULE", "marked_modules"]

# The key of a node's submodule in its `meta`; "" is the module itself.
MODULE = "tofu_module"


class _Marks:
    """Marks the nodes that were traced since the last call began or ended."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._paths = {id(each): path for path, each in model.named_modules()}
        self._calls: list[str] = []

    @property
    def _caller(self) -> str:
        return self._calls[-1] if self._calls else ""

    def _mark(self) -> None:
        mode = get_proxy_mode()
        if mode is None:  # torch runs a module before it traces it
            return
        for node in reversed(mode.tracer.graph.nodes):
            if MODULE in node.meta:
                break
            node.meta[MODULE] = self._caller

    def begin(self, module: torch.nn.Module, given: Any) -> None:
        """Note that a call begins; a module of another tree counts as its caller."""
        self._mark()
        self._calls.append(self._paths.get(id(module), self._caller))

    def end(self, module: torch.nn.Module, given: Any, result: Any) -> None:
        """Note that a call ends."""
        self._mark()
        self._calls.pop()


@contextlib.contextmanager
def marked_modules(model: torch.nn.Module) -> Iterator[None]:
    """Have the calls of a module's submodules mark the traced operators."""
    marks = _Marks(model)
    # Hooks of all modules, because some modules compute differently with hooks of their own.
    hooks = (
        modules.register_module_forward_pre_hook(marks.begin),
        modules.register_module_forward_hook(marks.end, always_call=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
