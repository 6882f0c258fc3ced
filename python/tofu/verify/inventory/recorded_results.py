"""The recorded results of ``tofu verify``, which are part of the package."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["PATH", "recorded", "write_record"]

PATH = Path(__file__).with_name("recorded.json")


@functools.cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Returns operator -> fingerprint of its verified description, seed and number of checks."""
    if not PATH.exists():
        return {}
    operators: Mapping[str, Mapping[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return operators


def write_record(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Add these results to those of other operators; an empty result removes one."""
    merged = {**recorded(), **results}
    lines = [f"  {json.dumps(op)}: {json.dumps(merged[op])}" for op in sorted(merged) if merged[op]]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    recorded.cache_clear()
