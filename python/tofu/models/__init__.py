"""Models in plain Gluon for plans and measurements (those of paper section 7.1, and others).

    graph = tofu.models.build("wresnet-152-10", batch_size=8)
    text = graph.training_graph()

Building allocates no tensors: it traces the block with symbols and infers shapes.
See docs/models.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .named_models import LABEL, MODELS, Model, Size, find, make_rnn, make_wresnet

if TYPE_CHECKING:
    from .graph import ModelGraph, build, create_block

__all__ = [
    "LABEL",
    "MODELS",
    "Model",
    "ModelGraph",
    "Size",
    "build",
    "create_block",
    "find",
    "make_rnn",
    "make_wresnet",
]


def __getattr__(name: str) -> Any:
    if name not in ("ModelGraph", "build", "create_block"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import graph  # Imports MXNet, which reading the named_models does not need.

    return getattr(graph, name)
