"""Reads the cuts of a plan that another program made (docs/formats.md, "Cuts")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tofu.errors import ConfigError

from .plan import FORMAT as PLAN_FORMAT
from .plan import TERMS_NAME, VERSION

__all__ = ["CutsFile", "read_cuts_file"]

FORMAT = "tofu-cuts"


class CutsFile(NamedTuple):
    """Cuts of tensors.

    Attributes:
        parts: the number of parts of each step.
        pins: tensor and the dimension that each step cuts, -1 for none.
    """

    parts: tuple[int, ...]
    pins: tuple[tuple[str, tuple[int, ...]], ...]


def read_cuts_file(path: Path, where: str) -> CutsFile:
    """Read a document of cuts, or the plan of ``tofu plan --format json``.

    Args:
        path: the file.
        where: the name of its source in errors.

    Raises:
        ConfigError: there is no such file, or it holds something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where} {path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} {path}: not JSON ({error})") from None
    if isinstance(document, dict) and isinstance(document.get("plan"), dict):
        document = document["plan"]  # in the document of a module's plan
    kind = document.get("format") if isinstance(document, dict) else None
    if kind not in (FORMAT, PLAN_FORMAT) or document.get("version") != VERSION:
        raise ConfigError(
            f'{where} {path}: expected "format": "{FORMAT}" or "{PLAN_FORMAT}", '
            f'and "version": {VERSION}'
        )
    try:
        parts = tuple(_whole(each, 2) for each in document["parts"])
        pins = tuple(_pin(name, cuts, len(parts)) for name, cuts in _cuts(document, kind))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{where} {path}: {error!r}; expected the parts of each step, and for each tensor the "
            "dimension that each step cuts, or -1"
        ) from None
    return CutsFile(parts, pins)


def _cuts(document: dict[str, Any], kind: str) -> list[tuple[str, list[Any]]]:
    """Each tensor with its cuts; without tensors that are terms of a sum, which no pin makes."""
    if kind == FORMAT:
        return list(document["cuts"].items())
    named = [
        (f"{each['node']}[{each['output']}]" if each["output"] else each["node"], each["cuts"])
        for each in document["tensors"]
    ]
    return [(name, cuts) for name, cuts in named if TERMS_NAME not in cuts]


def _pin(name: str, cuts: list[Any], steps: int) -> tuple[str, tuple[int, ...]]:
    if len(cuts) != steps:
        raise ValueError(f"{name}: {len(cuts)} cuts for {steps} steps")
    return name, tuple(_whole(cut, -1) for cut in cuts)


def _whole(number: object, least: int) -> int:
    if type(number) is not int or number < least:
        raise ValueError(f"{number!r} is no whole number from {least} on")
    return number
