"""Lowerings: operators rewritten so that a partitioned run means what a serial one means.

BEFORE the gradient, composite operators become parts whose reductions the search can
see; STAGES likewise, only where workers could not share them otherwise. AFTER the
gradient, backward operators that read their forward operator's state become stateless
ones, which may run in another executor and be split differently.
"""

from . import (
    backward,
    convolution,
    loss,
    norm,
    numpy_operators,
    recurrent,
    split_sensitive,
    staged,
)
from .registry import AFTER, BEFORE, STAGES, Lowering, Registry

__all__ = [
    "AFTER",
    "BEFORE",
    "STAGES",
    "Lowering",
    "Registry",
    "backward",
    "convolution",
    "loss",
    "norm",
    "numpy_operators",
    "recurrent",
    "split_sensitive",
    "staged",
]
