"""Caches the inventory on disk: analysing all operators takes seconds, reading it milliseconds.

A cached inventory is valid for one state of the descriptions, the analysis, the example calls,
the record and MXNet; a fingerprint of their files is part of its name. Older ones are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tofu.config import cache_directory
from tofu.plans.progress import stage

__all__ = ["cached_inventory"]

_ROOMS = ("lang", "analysis", "tdl", "verify")


def cached_inventory() -> list[dict[str, object]]:
    """The operators of ``tofu.verify.inventory.inventory.inventory``, as JSON documents."""
    path = cache_directory() / f"inventory-{_fingerprint()}.json"
    with contextlib.suppress(OSError, ValueError, RecursionError):
        cached = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(cached, dict) and cached.get("sha256") == _digest(cached.get("operators")):
            records: list[dict[str, object]] = cached["operators"]
            return records
    from tofu.verify.inventory.inventory import inventory

    with stage("analysing all operators of MXNet"):
        operators = [operator.to_document() for operator in inventory()]
    with contextlib.suppress(OSError):  # a read-only home directory is no reason to fail
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob("inventory-*.json"):
            older.unlink()
        new = path.with_suffix(f".{os.getpid()}")
        document = {"sha256": _digest(operators), "operators": operators}
        new.write_text(json.dumps(document), encoding="utf-8")
        new.replace(path)
    return operators


def _digest(operators: object) -> str:
    """Hashes the operators, so that a damaged file is noticed."""
    return hashlib.sha256(json.dumps(operators).encode()).hexdigest()


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in _files():
        digest.update(path.read_bytes())
    mxnet = importlib.util.find_spec("mxnet")
    if mxnet is not None and mxnet.origin is not None:
        digest.update(f"{mxnet.origin} {os.stat(mxnet.origin).st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _files() -> Iterator[Path]:
    for room in _ROOMS:
        spec = importlib.util.find_spec(f"tofu.{room}")
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        for place in places:
            yield from sorted(Path(place).rglob("*.py"))
            yield from sorted(Path(place).rglob("*.json"))
