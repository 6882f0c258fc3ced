"""Calls ATen operators on whole tensors or on tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch

from tofu.lang import parse_attribute
from tofu.torch.graphs.traced import Blank, Entry, Operator, Scalar

__all__ = ["arguments_of", "filled", "function_of", "is_input", "is_random", "places_of", "run_as"]


@dataclass(frozen=True)
class _Input:
    """Stands for an input in the arguments of a call."""

    number: int


def is_input(value: Any) -> bool:
    """Whether an argument stands for an input, whose `number` it has."""
    return isinstance(value, _Input)


# A tile may be a view of a larger tensor, so its elements cannot always be viewed.
_TILES_MAY_NEED = {
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default: torch.ops.aten.reshape.default,
}


def run_as(target: Any) -> Any:
    """The overload that runs in place of one."""
    return _TILES_MAY_NEED.get(target, target)


def function_of(operator: Operator) -> Any:
    """The function that runs an operator."""
    return run_as(operator.target)


def is_random(operator: Operator) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in operator.target.tags


def arguments_of(
    operator: Operator, changed: Mapping[str, str], device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position and by name, to be ``filled``, with a part's changes applied."""
    numbers = iter(range(len(operator.inputs)))

    def numbered(value: Any) -> Any:
        if isinstance(value, Entry):
            return _Input(next(numbers))
        if isinstance(value, list):
            return [numbered(each) for each in value if not _adds_nothing(operator, each)]
        if isinstance(value, Blank):
            return value.made(device)
        return device if isinstance(value, torch.device) else value

    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in operator.target._schema.arguments:
        if argument.name not in operator.arguments:
            continue
        value = numbered(operator.arguments[argument.name])
        if argument.name in changed:
            value = parse_attribute(changed[argument.name])
            if isinstance(operator.arguments[argument.name], list):
                value = list(value) if isinstance(value, tuple) else [value]
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return tuple(positional), named


def _adds_nothing(operator: Operator, value: Any) -> bool:
    """Whether a concatenation has no need of a part; its other sizes are those of a whole."""
    return isinstance(value, Blank) and operator.target == torch.ops.aten.cat.default


_NO_FLOATS: Mapping[int, float] = {}


def filled(value: Any, values: Sequence[Any], floats: Mapping[int, float] = _NO_FLOATS) -> Any:
    """Replaces the inputs and scalars in an argument by their values."""
    if isinstance(value, _Input):
        return values[value.number]
    if isinstance(value, list):
        return [filled(each, values, floats) for each in value]
    if isinstance(value, Scalar):
        return value.value(floats)
    return value


def places_of(
    positional: Sequence[Any], named: Mapping[str, Any]
) -> Optional[tuple[tuple[int, int], ...]]:
    """The places of inputs among arguments, and their numbers; None if `filled` does more."""
    alone = [(k, each.number) for k, each in enumerate(positional) if is_input(each)]
    others = [*(each for each in positional if not is_input(each)), *named.values()]
    return None if any(map(_is_open, others)) else tuple(alone)


def _is_open(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_open, value))
    return isinstance(value, (_Input, Scalar))
