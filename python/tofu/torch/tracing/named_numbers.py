"""Traces numbers of a call by name: the floats among its arguments, and sizes of its tensors.

One trace then serves all their values. torch records every decision that depends on such a number.
A trace that decides by a float is for some values only, and is refused; what one decides by sizes
is checked again for the sizes of another call.

torch's numbers with names are no int and no float, and their texts are names. The script's code
finds them to be numbers, so that it does what it does in plain torch: a text of a number, and a
comparison, are decisions.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional
from unittest import mock

import sympy
import torch

from tofu.errors import GraphError
from tofu.torch.tiles.private_names import (
    ConstantSource,
    DimDynamic,
    FakeTensorMode,
    ShapeEnv,
    pytree,
)

__all__ = [
    "LEAST_SIZE", "NamedNumbers", "Place", "as_numbers", "hint_of", "is_float", "is_tensor",
    "named_places",
]  # fmt: skip

# Values that stand for floats in a trace: no module has them as constants.
_FIRST_HINT, _NEXT_HINT = 0.7310585786300049, 0.0618033988749895
LEAST_SIZE = 2  # torch takes smaller sizes for their values, as broadcasting depends on them

Place = tuple[int, int]  # the position of a tensor among all arguments, and a dimension

_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor."""
    return isinstance(value, torch.Tensor)


def is_float(value: Any) -> bool:
    """Whether a trace may know an argument by name."""
    return type(value) is float  # torch takes subclasses for their values


def hint_of(number: Any) -> float:
    """The value that stands for a number in a trace."""
    return float(number.node.hint)


def named_places(calls: Sequence[Mapping[int, Sequence[int]]]) -> list[frozenset[Place]]:
    """The sizes to know by name, given the shapes of calls; those that change alike in one set.

    Args:
        calls: the shapes of each call's tensors by their positions, alike but for sizes.
    """
    alike: dict[tuple[int, ...], set[Place]] = {}
    for position, shape in calls[-1].items():
        for dimension in range(len(shape)):
            sizes = tuple(shapes[position][dimension] for shapes in calls)
            if len(set(sizes)) > 1:
                alike.setdefault(sizes, set()).add((position, dimension))
    return [frozenset(places) for places in alike.values()]


class NamedNumbers:
    """The numbers that a trace knows by name.

    Args:
        given: the arguments by position, and by name.
        places: the sizes to know by name; those of a set have one name.

    Attributes:
        given: the arguments, with names for floats.
        mode: the mode to trace in.
        hints: the values that stand for the floats.
    """

    def __init__(self, given: tuple[Any, Any], places: Iterable[frozenset[Place]] = ()) -> None:
        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        leaves, spec = pytree.tree_flatten(given)
        self._shapes = {k: tuple(x.shape) for k, x in enumerate(leaves) if is_tensor(x)}
        self._sizes: dict[Place, Any] = {}
        self._symbols: dict[Place, Any] = {}
        for group in places:
            position, dimension = min(group)
            self._name_size(group, int(leaves[position].shape[dimension]))
        hints: list[float] = []
        changed = [self._named_float(each, hints) if is_float(each) else each for each in leaves]
        self.given = pytree.tree_unflatten(changed, spec)
        self.hints = tuple(hints)

    def _name_size(self, group: frozenset[Place], size: int) -> None:
        source = ConstantSource(f"size{len(self._sizes)}")
        symbol = self._env.create_symbol(size, source, dynamic_dim=DimDynamic.DYNAMIC)
        number = self._env.create_symintnode(symbol, hint=size, source=source)
        self._sizes.update(dict.fromkeys(group, number))
        self._symbols.update(dict.fromkeys(group, symbol))

    def _named_float(self, value: float, hints: list[float]) -> Any:
        hints.append(_FIRST_HINT + len(hints) * _NEXT_HINT)
        source = ConstantSource(f"float{len(hints)}")
        symbol = self._env.create_unspecified_symbol(hints[-1], source, DimDynamic.DYNAMIC)
        return self._env.create_symfloatnode(symbol, hint=hints[-1], source=source)

    def shape(self, position: int, tensor: Any) -> tuple[Any, ...]:
        """The shape of the tensor at a position among all arguments, with names for sizes."""
        return tuple(self._sizes.get((position, d), n) for d, n in enumerate(tensor.shape))

    def check(self, module: str) -> None:
        """Raise GraphError if the trace is for some values only: of floats, or for one size.

        Args:
            module: the module's name.
        """
        sizes = set(self._symbols.values())
        for expression in self._decisions():
            if not expression.free_symbols <= sizes:
                raise GraphError(f"{module}: what forward does depends on the values of floats")
        for symbol in sizes & set(self._env.replacements):
            if self._env.replacements[symbol].is_number:
                raise GraphError(f"{module}: what forward does depends on the values of sizes")

    def _decisions(self) -> list[Any]:
        """The conditions under which the trace holds."""
        same = [sympy.Eq(one, other) for one, other in self._env.replacements.items()]
        return [*(guard.expr for guard in self._env.guards), *same]

    def values(self, shapes: Mapping[int, Sequence[int]]) -> Optional[dict[Any, int]]:
        """The value of each name in a call; None if the trace is not for it.

        Args:
            shapes: the shapes of the call's tensors by position.
        """
        values: dict[Any, int] = {}
        for position, shape in self._shapes.items():
            for dimension, known in enumerate(shape):
                size, symbol = shapes[position][dimension], self._symbols.get((position, dimension))
                if (known if symbol is None else values.setdefault(symbol, size)) != size:
                    return None
        for symbol, size in values.items():
            if size < LEAST_SIZE or size not in self._env.var_to_range[symbol]:
                return None
        holds = all(each.xreplace(values) == True for each in self._decisions())  # noqa: E712
        return values if holds else None


@contextlib.contextmanager
def as_numbers() -> Iterator[None]:
    """Have the code of scripts find numbers with names to be numbers.

    Their class is that of numbers, also for ``isinstance``; only ``type`` tells them. A text or a
    comparison decides by the number. torch's own code finds its own numbers.
    """
    with contextlib.ExitStack() as stack:
        for kind, plain in _NUMBERS.items():
            seen: dict[str, Any] = {"__getattribute__": _classed(plain)}
            for name in ("__str__", "__repr__", "__format__"):
                seen[name] = _told(name, getattr(kind, name), plain)
            for name in _COMPARISONS:
                seen[name] = _decided(getattr(kind, name))
            for name, method in seen.items():
                stack.enter_context(mock.patch.object(kind, name, method))
        yield


def _classed(plain: type) -> Any:
    def attribute(self: Any, name: str) -> Any:  # isinstance reads the class, too
        if name == "__class__" and _is_for_a_script():
            return plain
        return object.__getattribute__(self, name)

    return attribute


def _told(name: str, own: Any, plain: type) -> Any:
    def text(self: Any, *given: str) -> Any:
        return getattr(plain(self), name)(*given) if _is_for_a_script() else own(self, *given)

    return text


def _decided(own: Any) -> Any:
    def compared(self: Any, other: Any) -> Any:
        found = own(self, other)
        is_open = type(found) is torch.SymBool
        return bool(found) if is_open and _is_for_a_script() else found

    return compared


def _is_for_a_script() -> bool:
    """Whether code that is not torch's, nor ours, calls the function that asks."""
    caller = str(sys._getframe(2).f_globals.get("__name__"))
    return caller.partition(".")[0] not in ("torch", "tofu")
