"""Lowerings: operators rewritten so that a partitioned run means what a serial one means.

BEFORE the gradient, composite operators become parts whose reductions the search can
see. AFTER it, backward operators that read their forward operator's state become
stateless ones, which may run in another executor and be split differently.
"""

from . import backward, norm, recurrent, simple
from .registry import AFTER, BEFORE, Lowering, Registry

__all__ = ["AFTER", "BEFORE", "Lowering", "Registry", "backward", "norm", "recurrent", "simple"]
