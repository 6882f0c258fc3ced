"""Checkpoint files: a crash while one is written leaves the old one whole.

MXNet overwrites files in place. Under tofu each file is written next to its place, and takes
that place in one move when it is complete. All that MXNet's Python saves goes through two
functions of its library (arrays and symbols) and Trainer.save_states. Of the processes of
distributed training, one writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import re
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from typing import Any, Callable, Union

from tofu.gluon.processes import cluster
from tofu.gluon.session import messages

__all__ = ["is_left_out", "once", "replacing", "saving_arrays", "saving_symbol"]

_SUFFIX = "tofu-partial"


@contextlib.contextmanager
def replacing(path: Union[str, os.PathLike[str]]) -> Iterator[str]:
    """Yield a path to write to, which becomes the file `path` when this context ends.

    A target that is no regular file (a pipe, a URL that MXNet knows), or in a folder that takes
    no new files, is written in place. An error in this context leaves the old file as it was.
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    if "://" in name or not _can_replace(target):
        yield name
        return
    partial = _partial(target)
    _remove_left_over(target)
    try:
        yield partial
        if os.path.exists(target):
            shutil.copymode(target, partial)
        _sync(partial)
        os.replace(partial, target)
        _sync(os.path.dirname(target))
    finally:
        with contextlib.suppress(OSError):
            os.remove(partial)


def saving_arrays(original: Callable[..., int]) -> Callable[..., int]:
    """Wrap MXNDArraySave, whose first argument is the file's name."""

    @functools.wraps(original, assigned=(), updated=())
    def save(name: Any, *others: Any) -> int:
        return _written(lambda partial: original(partial, *others), name)

    return save


def saving_symbol(original: Callable[..., int]) -> Callable[..., int]:
    """Wrap MXSymbolSaveToFile, whose second argument is the file's name."""

    @functools.wraps(original, assigned=(), updated=())
    def save(handle: Any, name: Any) -> int:
        return _written(lambda partial: original(handle, partial), name)

    return save


def is_left_out(path: object) -> bool:
    """Whether another process writes this checkpoint: of several, process 0 does."""
    connection = cluster.connected()
    if connection is None or connection.rank == 0:
        return False
    messages.left_out(connection.rank, str(path))
    return True


def once(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method that saves a checkpoint to its first argument: one process writes it."""
    _, name, *_ = inspect.signature(original).parameters

    def save(self: Any, *args: Any, **kwargs: Any) -> None:
        path = args[0] if args else kwargs.get(name)
        if path is None or not is_left_out(path):
            original(self, *args, **kwargs)

    return save


class _StatusError(Exception):
    """A function of MXNet's library has returned an error."""


def _written(write: Callable[[Any], int], name: Any) -> int:
    """Write a file by a function of MXNet's library; return the function's status."""
    status = 0
    with contextlib.suppress(_StatusError), replacing(os.fsdecode(name.value)) as partial:
        status = write(ctypes.c_char_p(os.fsencode(partial)))
        if status != 0:
            raise _StatusError
    return status


def _can_replace(target: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(target).st_mode):
            return False
    except FileNotFoundError:
        pass
    except OSError:
        return False
    folder = os.path.dirname(target)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _partial(target: str) -> str:
    """A name next to the target that no other process or thread uses."""
    folder, name = os.path.split(target)
    writer = f"{socket.gethostname()}-{os.getpid()}-{threading.get_ident()}"
    return os.path.join(folder, f".{name}.{writer}.{_SUFFIX}")


def _remove_left_over(target: str) -> None:
    """Remove partial files of the same target that killed processes of this machine left."""
    folder, name = os.path.split(target)
    pattern = re.compile(
        re.escape(f".{name}.{socket.gethostname()}-") + rf"(\d+)-\d+\.{re.escape(_SUFFIX)}"
    )
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            match = pattern.fullmatch(entry)
            if match is not None and not _is_alive(int(match.group(1))):
                os.remove(os.path.join(folder, entry))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _sync(path: str) -> None:
    """Flush a file, or a folder's list of names, to the disk if its file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
