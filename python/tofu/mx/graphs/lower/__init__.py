"""Lowerings: rewrite operators so that a partitioned run gives the results of a serial one.

BEFORE the gradient, composite operators become parts whose reductions the search can see.
STAGES does the same, but only for operators that workers could not share otherwise. AFTER
the gradient, backward operators that read their forward operator's state become stateless
operators, which can run in another executor and be split differently.
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
