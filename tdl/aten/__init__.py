"""Descriptions of PyTorch's ATen operators, one file per family.

A name is an operator with its overload, ``aten.add.Tensor``. Importing this package registers the
descriptions; only ``tofu.torch`` does. Tensor arguments are inputs in the order of the operator's
schema, all others attributes under their names there; ``given`` lists the names of the tensors.
"""

from tofu.tdl.aten import (
    attention,
    convolution,
    creation,
    elementwise,
    embedding,
    indexing,
    loss,
    movement,
    normalization,
    ordering,
    products,
    recurrent,
    reduction,
    resize,
    softmax,
    update,
)

__all__ = [
    "attention",
    "convolution",
    "creation",
    "elementwise",
    "embedding",
    "indexing",
    "loss",
    "movement",
    "normalization",
    "ordering",
    "products",
    "recurrent",
    "reduction",
    "resize",
    "softmax",
    "update",
]
