"""Finds tensors and operators by name, by pattern, and by the end of a name.

``conv1_weight`` is a name, ``*_weight`` a pattern, and ``dense0_weight`` is short for
``net_dense0_weight``, and ``attn.mm`` for ``layers.0.attn.mm``, if no other name ends like that.

An operator that tofu takes apart gives its stages names of its own: ``net_norm0_fwd::mean`` and
``net_norm0_fwd_backward::mean``. People read them as "net_norm0: mean" and "net_norm0: gradient,
mean", and may write them so.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Mapping

__all__ = ["STAGE", "is_pattern", "matching", "near_text", "readable"]

# Between the name of an operator and that of a stage; optimizer states have one colon.
STAGE = "::"
_FORWARD, _BACKWARD = "_fwd", "_backward"
_CLOSE_NAMES = 3


def is_pattern(name: str) -> bool:
    """Whether a name may stand for several; brackets number outputs, so they are plain text."""
    return "*" in name or "?" in name


def matching(name: str, names: Collection[str]) -> list[str]:
    """The names that a name, a pattern or the end of a name stands for, in their order.

    >>> matching("*_weight", ["net_fc1_weight", "net_fc1_bias", "net_fc2_weight"])
    ['net_fc1_weight', 'net_fc2_weight']
    >>> matching("fc1_bias", ["net_fc1_weight", "net_fc1_bias"])
    ['net_fc1_bias']
    """
    if name in names:
        return [name]
    if ":" in name and STAGE not in name:  # as readable writes it; pins have no spaces
        shown = {each: _close(readable(each)) for each in names}
        name = _close(name)
        return [each for each in names if shown[each] == name] or _ending(name, shown)
    if is_pattern(name):
        pattern = name.replace("[", "[[]")
        return [each for each in names if fnmatch.fnmatchcase(each, pattern)]
    return _ending(name, {each: each for each in names})


def _close(text: str) -> str:
    return text.replace(" ", "")


def _ending(name: str, shown: Mapping[str, str]) -> list[str]:
    """The name that ends like this, if it is the only one."""
    ends = [each for each, text in shown.items() if text.endswith(_ends(name))]
    return ends if len(ends) == 1 else []


def _ends(name: str) -> tuple[str, str]:
    """The ends that a longer name may have; PyTorch's names have dots."""
    return f"_{name}", f".{name}"


def readable(name: str) -> str:
    """The name of a stage in words; any other name unchanged.

    >>> readable("net_norm0_fwd_backward::mean_2[1]"), readable("net_norm0_fwd::total_backward")
    ('net_norm0: gradient, mean 2[1]', 'net_norm0: gradient, total')
    >>> readable("net_norm0_gamma"), readable("net_norm0_gamma:mom")
    ('net_norm0_gamma', 'net_norm0_gamma:mom')
    """
    operator, colon, stage = name.partition(STAGE)
    if not colon:
        return name
    is_gradient = _BACKWARD in operator or _BACKWARD in stage
    operator = operator.partition(_FORWARD)[0].partition(_BACKWARD)[0] or operator
    words = stage.replace(_BACKWARD, "").replace(STAGE, ", ").replace("_", " ").strip()
    return f"{operator}: {'gradient, ' * is_gradient}{words}"


def near_text(name: str, names: Collection[str]) -> str:
    """Suggests the names close to an unknown one; "" if none is."""
    names = [readable(each) for each in names]
    ends = [each for each in names if each.endswith(_ends(name))]
    near = ends or difflib.get_close_matches(name, names, n=_CLOSE_NAMES, cutoff=0.4)
    shown = ", ".join(near[:_CLOSE_NAMES])
    if len(near) > _CLOSE_NAMES:
        shown += f" or {len(near) - _CLOSE_NAMES} more"
    return f"; did you mean {shown}?" if near else ""
