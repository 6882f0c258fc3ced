"""Descriptions of MXNet 1.9.1's operators, one file per family; nothing else.

Importing this package registers them with ``tofu.lang``. docs/tdl.md is the language's
reference.
"""

from tofu.tdl import (
    activation,
    batched,
    broadcast,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    movement,
    normalization,
    numpy_elementwise,
    numpy_reduction,
    optimizer,
    reduction,
)

__all__ = [
    "activation",
    "batched",
    "broadcast",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "normalization",
    "numpy_elementwise",
    "numpy_reduction",
    "optimizer",
    "reduction",
]
