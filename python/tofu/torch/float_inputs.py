"""Traces the floats among a call's arguments by name, so that one trace serves all their values.

torch records every comparison of such a number: then the trace is for some values only, and is
refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tofu.errors import GraphError
from tofu.torch.private_names import ConstantSource, DimDynamic, FakeTensorMode, ShapeEnv, pytree

__all__ = ["Floats", "floats_by_name", "hint_of", "is_float"]

# Values that stand for floats in a trace: no module has them as constants.
_FIRST_HINT, _NEXT_HINT = 0.7310585786300049, 0.0618033988749895


def is_float(value: Any) -> bool:
    """Whether a trace may know an argument by name."""
    return type(value) is float  # torch takes subclasses for their values


@dataclass(frozen=True)
class Floats:
    """Arguments with names for floats.

    Attributes:
        given: the arguments by position, and by name.
        mode: the mode to trace in.
        hints: the values that stand for the floats.
    """

    given: tuple[Any, Any]
    mode: Any
    hints: tuple[float, ...]


def hint_of(number: Any) -> float:
    """The value that stands for a number in a trace."""
    return float(number.node.hint)


@contextlib.contextmanager
def floats_by_name(given: tuple[Any, Any], module: str) -> Iterator[Floats]:
    """Give floats names, and raise GraphError if the trace then made is for some values only.

    Args:
        given: arguments by position, and by name.
        module: the module's name.
    """
    shapes = ShapeEnv()
    hints: list[float] = []

    def named(value: float) -> Any:
        hints.append(_FIRST_HINT + len(hints) * _NEXT_HINT)
        source = ConstantSource(f"float{len(hints)}")
        symbol = shapes.create_unspecified_symbol(hints[-1], source, DimDynamic.DYNAMIC)
        return shapes.create_symfloatnode(symbol, hint=hints[-1], source=source)

    leaves, spec = pytree.tree_flatten(given)
    changed = [named(each) if is_float(each) else each for each in leaves]
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    yield Floats(pytree.tree_unflatten(changed, spec), mode, tuple(hints))
    if shapes.guards or shapes.replacements:
        raise GraphError(f"{module}: what forward does depends on the values of floats")
