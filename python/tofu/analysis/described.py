"""Loads descriptions from tofu itself, installed packages, and the user's files."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from tofu.analysis.strategies import check_opaque
from tofu.config import Config
from tofu.errors import ConfigError, TofuError
from tofu.lang.description import Description, lookup, registered

__all__ = ["ENTRY_POINTS", "description_of", "is_random", "is_shipped", "load_described"]

ENTRY_POINTS = "tofu.operators"


def description_of(op: str) -> Optional[Description]:
    """Returns an operator's description, after loading tofu's, those of packages, and of files.

    Raises:
        ConfigError: a package or file with descriptions cannot be loaded.
        TdlError: a description in it is wrong.
    """
    load_described()
    return lookup(op)


def is_shipped(op: str) -> bool:
    """Whether an operator has tofu's own description, or none."""
    description = description_of(op)
    return description is None or description.is_shipped


def is_random(op: str) -> bool:
    """Whether two runs of an operator may differ, judging by its description or name."""
    description = description_of(op)
    if description is not None:
        return description.random
    return any(word in op for word in ("random", "sample_", "shuffle"))


@functools.cache
def load_described() -> tuple[ModuleType, ...]:
    """Load tofu's descriptions, then packages, then files; returns the latter two's modules.

    Packages name a module in the entry point group ``tofu.operators``; TOFU_DESCRIBE or
    ``--describe`` names files. Each is loaded once.
    """
    importlib.import_module("tofu.tdl")
    shipped = set(registered())
    modules = [*_packages(), *map(_file, Config.from_environment().describe)]
    for name, description in registered().items():
        if name not in shipped:
            _check(description)
    return tuple(modules)


def _check(description: Description) -> None:
    """Reject errors that do not depend on shapes; others show when the description is used."""
    try:
        trace = description.trace()
    except TofuError:
        return
    check_opaque(trace)


def _packages() -> Iterator[ModuleType]:
    for point in _entry_points():
        try:
            yield point.load()
        except TofuError:
            raise
        except Exception as error:  # a package may raise anything
            raise ConfigError(
                f"entry point {point.name} = {point.value} of {ENTRY_POINTS}: cannot be loaded "
                f"({type(error).__name__}: {error}); fix or remove the package"
            ) from error


def _entry_points() -> list[Any]:
    points: Any = metadata.entry_points()
    if hasattr(points, "select"):  # from Python 3.10 on
        return sorted(points.select(group=ENTRY_POINTS), key=lambda point: point.name)
    return list(points.get(ENTRY_POINTS, ()))


def _file(path: Path) -> ModuleType:
    name = f"tofu_described_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: not a Python file; expected one with @tofu.op descriptions")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TofuError:
        raise
    except Exception as error:  # a file may raise anything
        raise ConfigError(
            f"{path}: cannot be executed ({type(error).__name__}: {error}); expected Python with "
            "@tofu.op descriptions"
        ) from error
    return module
