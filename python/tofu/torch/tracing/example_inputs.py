"""Takes a module's example inputs as people have them: a tensor, a tuple, or a dict of a loader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import torch

from tofu.errors import ConfigError

__all__ = ["Inputs", "by_position_and_name"]

Inputs = Union[torch.Tensor, Sequence[Any], Mapping[str, Any]]


def by_position_and_name(
    inputs: Inputs, named: Optional[Mapping[str, Any]] = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs by position, and those by name.

    Args:
        inputs: one tensor, some inputs, or a dict of inputs by name.
        named: more inputs by name.

    Raises:
        ConfigError: they are something else.
    """
    more = dict(named or {})
    if isinstance(inputs, Mapping):
        return (), {**inputs, **more}
    if isinstance(inputs, torch.Tensor):
        return (inputs,), more
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        return tuple(inputs), more
    raise ConfigError(
        f"example inputs are a {type(inputs).__name__}; expected a tensor, a tuple of inputs, or a "
        "dict of inputs by name"
    )
