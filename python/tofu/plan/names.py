"""Finds tensors and operators by name, by pattern, and by the end of a name.

``conv1_weight`` is a name, ``*_weight`` a pattern, and ``dense0_weight`` is short for
``net_dense0_weight`` if no other name ends like that.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection

__all__ = ["is_pattern", "matching", "near_text"]

_CLOSE_NAMES = 3


def is_pattern(name: str) -> bool:
    """Whether a name may stand for several; brackets number outputs, so they are plain text."""
    return "*" in name or "?" in name


def matching(name: str, known: Collection[str]) -> list[str]:
    """The known names that a name, a pattern or the end of a name stands for, in their order.

    >>> matching("*_weight", ["net_fc1_weight", "net_fc1_bias", "net_fc2_weight"])
    ['net_fc1_weight', 'net_fc2_weight']
    >>> matching("fc1_bias", ["net_fc1_weight", "net_fc1_bias"])
    ['net_fc1_bias']
    """
    if name in known:
        return [name]
    if is_pattern(name):
        pattern = name.replace("[", "[[]")
        return [each for each in known if fnmatch.fnmatchcase(each, pattern)]
    ends = [each for each in known if each.endswith(f"_{name}")]
    return ends if len(ends) == 1 else []


def near_text(name: str, known: Collection[str]) -> str:
    """A guess at what was meant by a name that stands for nothing; may be empty."""
    ends = [each for each in known if each.endswith(f"_{name}")]
    near = ends or difflib.get_close_matches(name, known, n=_CLOSE_NAMES, cutoff=0.4)
    shown = ", ".join(near[:_CLOSE_NAMES])
    if len(near) > _CLOSE_NAMES:
        shown += f" or {len(near) - _CLOSE_NAMES} more"
    return f"; did you mean {shown}?" if near else ""
