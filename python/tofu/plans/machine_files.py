"""Finds machine files: tofu's own by name, and the user's by path.

>>> read_machine("p2.8xlarge").devices
8
"""

from __future__ import annotations

import os
from pathlib import Path

from tofu import _core
from tofu.errors import ConfigError

__all__ = ["machine_text", "read_machine", "shipped_machines"]

_FOLDER = Path(__file__).parents[1] / "simulate" / "machines"


def shipped_machines() -> list[str]:
    """The names of the machines that tofu ships."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def read_machine(text: str, where: str = "--machine") -> _core.Machine:
    """The machine of a file, or the shipped one of that name.

    Args:
        text: the path or name.
        where: the option that gives it, for errors.

    Raises:
        ConfigError: there is no such file or name, or the file is not a machine's.
    """
    path = _path(text, where)
    return _core.Machine(machine_text(text, where), where=f"machine file {path}")


def machine_text(text: str, where: str = "--machine") -> str:
    """The text of a machine's file. Raises ConfigError as read_machine."""
    path = _path(text, where)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ConfigError(f"{where} {text}: cannot be read ({what})") from None


def _path(text: str, where: str) -> Path:
    path = Path(text)
    if text in shipped_machines():
        path = _FOLDER / f"{text}.json"
    elif not os.path.isfile(path):
        raise ConfigError(
            f"{where} {text}: found no such file or machine, expected a file that tofu "
            f"calibrate wrote, or one of {', '.join(shipped_machines())}"
        )
    return path
