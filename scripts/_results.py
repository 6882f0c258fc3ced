"""Writes the raw data of results: JSON with a row per line, to read and to compare.

A result names the script that made it, the commit, the seconds that it took, and the code: a
digest that changes with any file that the script depends on. scripts/results.py compares it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _sources import ROOT, digest, script_of, sources_of

__all__ = ["to_text", "write_json"]

_ROW = 600  # characters of a line, at most, if its value can be divided
_BEGIN = time.monotonic()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document into a file; if a script has the file's name, add its making to it."""
    script = script_of(path.stem)
    if script is not None:
        document = {"made": _made(script), **document}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_text(document) + "\n", encoding="utf-8")


def to_text(value: Any, indent: str = "") -> str:
    """A value as JSON: divided if it is the whole document, or too long for a line.

    Args:
        value: numbers, strings, lists and dictionaries.
        indent: of its lines but the first; empty: the value is the whole document.
    """
    line = json.dumps(value)
    is_short = bool(indent) and len(indent) + len(line) <= _ROW
    if is_short or not isinstance(value, (dict, list, tuple)) or not value:
        return line
    inner = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(k))}: {to_text(v, inner)}" for k, v in value.items()]
    else:
        parts = [to_text(each, inner) for each in value]
    between = f",\n{inner}"
    return f"{line[0]}\n{inner}{between.join(parts)}\n{indent}{line[-1]}"


def _made(script: Path) -> dict[str, Any]:
    return {
        "by": str(script.relative_to(ROOT)),
        "commit": _commit(),
        "code": digest(sources_of(script)),
        "seconds": round(time.monotonic() - _BEGIN),
    }


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "unknown"
