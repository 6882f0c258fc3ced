"""Loads modules for ``tofu plan --mesh``: from a function, or from a saved program."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import torch

from tofu.errors import ConfigError
from tofu.torch.commands.config_file import load_config_file
from tofu.torch.commands.without_gpus import without_gpus
from tofu.torch.tracing.example_inputs import by_position_and_name

__all__ = ["load"]

_EXPECTED = "expected package.module:function, which returns a module and its inputs, or FILE.pt2"


def load(
    target: str, shape: tuple[int, ...] = (), lora: Optional[str] = None
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Loads a module with its example inputs, by position and by name.

    Args:
        target: ``package.module:function``, whose function returns a module and its inputs, as a
            tuple or a dict by name, and perhaps a dict of more; or a file that
            ``torch.export.save`` wrote; or a configuration of Hugging Face's transformers.
        shape: of the inputs of a configuration, as for ``load_config_file``.
        lora: of a configuration, as for ``load_config_file``.

    Raises:
        ConfigError: there is no such module, or it returns something else.
    """
    if target.endswith(".json"):
        return load_config_file(Path(target), shape, lora)
    if target.endswith(".pt2"):
        return _saved(Path(target))
    where, colon, name = target.partition(":")
    if not colon or not name or where[:1] in ("", "."):
        raise ConfigError(f"{target}: {_EXPECTED}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(where), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{target}: cannot be imported ({error}); {_EXPECTED}") from error
    with without_gpus():
        return _checked(target, function())


def _saved(path: Path) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    if not os.path.isfile(path):  # also if the name is too long
        raise ConfigError(f"{path}: no such file; {_EXPECTED}")
    try:
        program = torch.export.load(path)
    except Exception as error:  # whatever torch raises for a damaged file
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(
            f"{path}: cannot be loaded ({reason}); expected a file that torch.export.save wrote"
        ) from error
    if program.example_inputs is None:
        raise ConfigError(f"{path}: has no example inputs; export it with this torch again")
    args, kwargs = program.example_inputs
    return program.module(), tuple(args), dict(kwargs)


def _checked(target: str, result: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    fits = (
        isinstance(result, tuple)
        and len(result) in (2, 3)
        and isinstance(result[0], torch.nn.Module)
    )
    if not fits or not isinstance(result[1], (tuple, list, Mapping)):
        raise ConfigError(
            f"{target}: returned {type(result).__name__}; expected (module, inputs) or (module, "
            "inputs, named inputs), with a tuple or a dict of inputs"
        )
    return (result[0], *by_position_and_name(*result[1:]))
