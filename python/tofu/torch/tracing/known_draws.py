"""Comparisons of a random number whose result is known before it is drawn.

Models of Hugging Face skip a layer if ``torch.rand([]) < p``, and draw the number with p = 0, too:
no trace can tell which layers run, but without chance all do.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

from tofu.torch.tiles.private_names import pytree

__all__ = ["KnownDraws"]

# Whether a number of [0, 1) compares so to numbers up to 0, and to numbers from 1 on.
_KNOWN = {
    **dict.fromkeys((torch.lt, torch.Tensor.lt, torch.Tensor.__lt__), (False, True)),
    **dict.fromkeys((torch.ge, torch.Tensor.ge, torch.Tensor.__ge__), (True, False)),
}


class KnownDraws(TorchFunctionMode):
    """Answers such comparisons of a single number of ``torch.rand`` while the mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: dict[int, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = self._known(func, args)
        if known is not None:
            return torch.tensor(known)
        if self._drawn:  # what else is done with a number may change it
            for each in pytree.tree_leaves((args, kwargs)):
                self._drawn.pop(id(each), None)
        result = func(*args, **(kwargs or {}))
        if func is torch.rand and result.ndim == 0:
            self._drawn[id(result)] = result
        return result

    def _known(self, func: Any, args: Any) -> Optional[bool]:
        """The result of a call if it is such a comparison, else None."""
        if func not in _KNOWN or len(args) != 2 or id(args[0]) not in self._drawn:
            return None
        other, (low, high) = args[1], _KNOWN[func]
        if not isinstance(other, (int, float)):
            return None
        return low if other <= 0 else high if other >= 1 else None
