"""Writes a readable file after every C++ pass (TOFU_LOG=dump:DIR)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Optional

__all__ = ["OnPass", "dumper"]

# Called with the name of a pass and the text of its result.
OnPass = Callable[[str, str], None]


def dumper(directory: Optional[Path]) -> Optional[OnPass]:
    """Return a callback that writes files numbered on from `directory`'s; None for no directory."""
    if directory is None:
        return None
    directory.mkdir(parents=True, exist_ok=True)

    def on_pass(name: str, text: str) -> None:
        numbers = (int(path.name.split("-", 1)[0]) for path in directory.glob("[0-9]*-*.txt"))
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        path = directory / f"{max(numbers, default=0) + 1:03d}-{slug}.txt"
        path.write_text(text, encoding="utf-8")

    return on_pass
