"""Descriptions of MXNet 1.9.1's operators, one file per family; nothing else.

Importing this package registers them with ``tofu.lang``. docs/tdl.md is the language's
reference.
"""

from tofu.tdl import (
    activation,
    attention,
    batched,
    broadcast,
    convolution,
    creation,
    detection,
    elementwise,
    image,
    indexing,
    layout,
    linear,
    movement,
    normalization,
    numpy_elementwise,
    numpy_movement,
    numpy_reduction,
    optimizer,
    ordering,
    quantized,
    recurrent,
    reduction,
    sampling,
    sequence,
)

__all__ = [
    "activation",
    "attention",
    "batched",
    "broadcast",
    "convolution",
    "creation",
    "detection",
    "elementwise",
    "image",
    "indexing",
    "layout",
    "linear",
    "movement",
    "normalization",
    "numpy_elementwise",
    "numpy_movement",
    "numpy_reduction",
    "optimizer",
    "ordering",
    "quantized",
    "recurrent",
    "reduction",
    "sampling",
    "sequence",
]
