"""Keeps results that take long to compute in files, for the next run of the same script.

    text = find("plan", key)
    if text is None:
        text = compute()
        keep("plan", key, text)

A file belongs to one key, which must say everything that the text depends on; ``version`` says
what this tofu is. Its name is a hash of the key, and it begins with a hash of its text: a file that
is torn or changed is not used. Files are written apart and renamed, so other processes see all of
one or nothing. The folder is the user's own, of at most 256 MiB; files that were not used for
longest go first. TOFU_CACHE=0 turns it off, and nothing here ever fails.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

from tofu import _core
from tofu.config import caches, private_directory

__all__ = ["FOLDER", "find", "keep", "record_finds", "version"]

FOLDER = "compiled"
MOST_BYTES = 2**28
_KEPT_SHARE = 0.75  # of the limit, when room is made
_records: list[set[str]] = []


def find(kind: str, key: Iterable[str]) -> Optional[str]:
    """The text kept under a key, or None.

    Args:
        kind: what it is, one word.
        key: all that it depends on.
    """
    path = _path(kind, key)
    if path is None:
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        if digest == _hash([text]):
            os.utime(path)
            for record in _records:
                record.add(kind)
            return text
    return None


def keep(kind: str, key: Iterable[str], text: str) -> None:
    """Keep a text under a key."""
    path = _path(kind, key)
    if path is None:
        return
    with contextlib.suppress(OSError):
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f"{kind}-", suffix=".new")
        try:
            with open(number, "w", encoding="utf-8") as file:
                file.write(f"{_hash([text])}\n{text}")
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
        _make_room(path.parent)


@contextlib.contextmanager
def record_finds() -> Iterator[set[str]]:
    """Collect the kinds of texts that are found while the block runs."""
    record: set[str] = set()
    _records.append(record)
    try:
        yield record
    finally:
        _records[:] = [other for other in _records if other is not record]


@functools.cache
def version() -> str:
    """Says which build of the C++ library this is."""
    status = os.stat(_core.__file__)
    return f"{_core.__file__} {status.st_size} {status.st_mtime_ns}"


def _path(kind: str, key: Iterable[str]) -> Optional[Path]:
    folder = private_directory(FOLDER) if caches() else None
    return None if folder is None else folder / f"{kind}-{_hash(key)}"


def _hash(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _make_room(folder: Path) -> None:
    """Remove the files that were not used for longest, if all take too much."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # another process has removed it
            status = entry.stat(follow_symlinks=False)
            files.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    if total <= MOST_BYTES:
        return
    for _, size, path in sorted(files):
        if total <= _KEPT_SHARE * MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
            total -= size
