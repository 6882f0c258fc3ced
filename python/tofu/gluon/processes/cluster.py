"""This process's connection to MXNet's parameter server, and to the other worker processes.

ps-lite, the library under MXNet's ``dist`` kvstores, allows one connection in a process, and
one optimizer on the servers. Trainers share it, each with keys of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Optional

import numpy as np
from mxnet import nd
from mxnet.base import _LIB, check_call
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

from tofu import exit_status, server_process
from tofu.errors import ConfigError
from tofu.gluon.session.session import active

from . import heartbeats

__all__ = ["MEETINGS", "Cluster", "check_environment", "connected", "connecting", "meeting"]

# The functions of MXNet's library in which a process waits until all others call them, too.
MEETINGS = (
    "MXKVStoreBarrier",
    "MXKVStoreInit",
    "MXKVStoreInitEx",
    "MXKVStoreBroadcast",
    "MXKVStoreBroadcastEx",
)

_VARIABLES = (
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
)
# MXNet multiplies keys by 9973 in 32 bits to choose a server; beyond, that overflows.
_MAX_KEYS = 2**31 // 9973
_FIRST_KEY = 2**16  # below are those of Trainers without tofu, and the script's own
_LENGTH = 4  # bytes of a message's length
_TO_PYTHON = 0  # the kind of commands that MXNet's servers hand to Python
_GOODBYE_S = 60.0

_connection: Optional[Cluster] = None  # the process's, as ps-lite's is


def connected() -> Optional[Cluster]:
    """The connection, or None before there is one."""
    return _connection


def connecting(original: Callable[..., int]) -> Callable[..., int]:
    """MXKVStoreCreate, which does not wait for the other processes for longer than it may."""

    @functools.wraps(original, assigned=(), updated=())
    def create(name: Any, handle: Any) -> int:
        session = active()
        kind = name.value.decode()
        if session is None or "dist" not in kind:
            return original(name, handle)
        check_environment(kind)
        watchdog = heartbeats.Watchdog("a worker process", session.timeout_s)
        try:
            with watchdog.waiting(f"the other processes to start ({server_process.address()})"):
                status = original(name, handle)
                if status == 0:
                    _leaving()
                    _tell_rank(handle._obj)  # the object that byref() refers to
        finally:
            watchdog.stop()
        return status

    return create


def meeting(original: Callable[..., int]) -> Callable[..., int]:
    """A function of kvstores that waits for all processes, for no longer than it may."""

    @functools.wraps(original, assigned=(), updated=())
    def meet(handle: Any, *args: Any) -> int:
        session = active()
        is_ours = _connection is not None and _connection.watchdog.is_waiting()
        if session is None or is_ours or not _is_distributed(handle):
            return original(handle, *args)
        watchdog = heartbeats.Watchdog(f"worker process {_rank(handle)}", session.timeout_s)
        try:
            with watchdog.waiting("the other processes in a call of the script's kvstore"):
                return original(handle, *args)
        finally:
            watchdog.stop()

    return meet


def _is_distributed(handle: Any) -> bool:
    kind = ctypes.c_char_p()
    check_call(_LIB.MXKVStoreGetType(handle, ctypes.byref(kind)))
    return b"dist" in (kind.value or b"")


def _rank(handle: Any) -> int:
    rank = ctypes.c_int()
    check_call(_LIB.MXKVStoreGetRank(handle, ctypes.byref(rank)))
    return rank.value


def _tell_rank(handle: Any) -> None:
    """Tell ``tofu run`` and the servers the rank that ps-lite has given to this process."""
    text = str(_rank(handle)).encode()
    pipe = os.environ.get(server_process.RANK_PIPE)
    if pipe is not None:
        os.write(int(pipe), text + b"\n")
    check_call(
        _LIB.MXKVStoreSendCommmandToServers(handle, _TO_PYTHON, server_process.GREETING + text)
    )


def check_environment(kind: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError unless the variables say where the parameter server is."""
    missing = [name for name in _VARIABLES if not environ.get(name)]
    if missing:
        raise ConfigError(
            f"kvstore {kind!r}: {', '.join(missing)} not set; start the processes with tofu run "
            "--processes N, or with a launcher that sets MXNet's DMLC_* variables"
        )


class Cluster:
    """The worker processes, connected through the parameter server.

    Args:
        connect: makes the kvstore; it waits until all processes have started.
        limit_s: for how long to wait for the others, in seconds; 0: without limit.
    """

    def __init__(self, connect: Callable[[], Any], limit_s: float) -> None:
        global _connection
        if _connection is not None:
            raise ConfigError(
                "gluon.Trainer(kvstore=...): a second distributed kvstore in this process; MXNet "
                "connects once. Give all Trainers the same kvstore object, or the same name"
            )
        self.watchdog = heartbeats.Watchdog("a worker process", limit_s)
        self._leaving = _leaving()
        try:
            with self.watchdog.waiting("the other processes to start"):
                self.kvstore: Any = connect()
        except BaseException:
            self.watchdog.stop()
            raise
        self.rank = int(self.kvstore.rank)
        self.size = int(self.kvstore.num_workers)
        self.has_optimizer = False
        self._keys = _FIRST_KEY
        self.watchdog.name = f"worker process {self.rank} of {self.size}"
        self.watchdog.dead = lambda: heartbeats.dead_processes(self.kvstore, "worker")
        atexit.register(self._end)
        _connection = self

    def new_keys(self, count: int) -> list[int]:
        """Keys that nothing has used yet; the same ones in every process.

        Raises:
            ConfigError: there are too many for MXNet.
        """
        keys = list(range(self._keys, self._keys + count))
        self._keys += count
        if self._keys > _MAX_KEYS:
            raise ConfigError(
                f"gluon.Trainer: {self._keys - _FIRST_KEY:,} tiles of parameters, and MXNet's "
                f"parameter server has keys for {_MAX_KEYS - _FIRST_KEY:,}; use fewer workers in "
                "each process"
            )
        return keys

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all processes, by rank."""
        sizes = self._gather(len(message).to_bytes(_LENGTH, "big"), [_LENGTH] * self.size)
        return self._gather(message, [int.from_bytes(size, "big") for size in sizes])

    def _gather(self, message: bytes, sizes: Sequence[int]) -> list[bytes]:
        """The messages of all processes, whose sizes are known.

        The servers take a key's value from the first push, before any optimizer is asked. So
        each process gives a key of its own its value. Servers take floats, here one per byte.
        """
        keys = self.new_keys(self.size)
        messages = [nd.zeros(size) for size in sizes]
        with self.watchdog.waiting("the other processes to describe their parameters"):
            self.kvstore.push(keys[self.rank], dense_array(list(message)))
            nd.waitall()
            self.kvstore._barrier()
            self.kvstore.pull(keys, [[each] for each in messages])
            return [each.asnumpy().astype(np.uint8).tobytes() for each in messages]

    def broadcast(
        self, keys: Sequence[int], values: Sequence[Any], outs: Sequence[Sequence[Any]]
    ) -> None:
        """Give every process the values of process 0.

        Args:
            keys: new ones.
            values: arrays; those of process 0 count.
            outs: for each, where every process writes it.
        """
        if keys:
            with self.watchdog.waiting("the values of process 0"):
                self.kvstore.broadcast(list(keys), list(values), [list(each) for each in outs])
                wait_for(array for each in outs for array in each)

    def exchange(self, key: int, value: Any, outs: Sequence[Any], priority: int) -> None:
        """Push a value, and pull the server's combination of all processes' values.

        That is their sum, or the weight that its optimizer has updated. The value is copied
        where MXNet would write the result over it and the caller does not.
        """
        if value.context.device_type != "gpu" and all(value is not out for out in outs):
            value = value.copy()
        self.kvstore.pushpull(key, value, out=list(outs), priority=priority)

    def _end(self) -> None:
        """At exit: wait for the others while heartbeats are still watched."""
        self._leaving.end_if_failed()
        with self.watchdog.waiting("the other processes to end", limited=False):
            self.kvstore._barrier()
        self.watchdog.stop()
        # If the script still held the kvstore when Python ends, MXNet would abort. All
        # processes say goodbye now; one that dies at this moment must not keep the others.
        last = threading.Timer(
            _GOODBYE_S, heartbeats.give_up, [f"{self.watchdog.name}: the others do not end"]
        )
        last.daemon = True
        last.start()
        check_call(_LIB.MXKVStoreFree(self.kvstore.handle))
        self.kvstore.handle = None
        last.cancel()


class _Leaving:
    """Ends a connected process that fails at once: MXNet would wait for others that wait for it."""

    def __init__(self) -> None:
        self._script = exit_status.Script()
        self._status: Any = 0
        sys.excepthook = self._failing(sys.excepthook)
        atexit.register(self.end_if_failed)

    def _failing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*args: Any) -> None:
            self._status = heartbeats.FAILED
            try:
                original(*args)
            except SystemExit as error:
                self._status = error.code
                raise

        return hook

    def end_if_failed(self) -> None:
        """At exit: end the process with its status if that is not 0."""
        status = self._status or self._script.status()
        if status:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(status if isinstance(status, int) else heartbeats.FAILED)


@functools.lru_cache(maxsize=1)
def _leaving() -> _Leaving:
    """The process's."""
    return _Leaving()


def wait_for(arrays: Iterable[Any]) -> None:
    """Wait until arrays have their values, and raise any error of theirs."""
    for array in arrays:
        array.wait_to_read()
