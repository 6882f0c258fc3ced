"""Watches whether the other processes of distributed training live, and ends without them.

A process that waits for a dead one waits inside MXNet, where no exception reaches it. So the
only way out is to say why and to end the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, NoReturn, Optional

from mxnet.base import _LIB, check_call

__all__ = ["FAILED", "Watchdog", "dead_processes", "describe", "give_up", "has_started"]

FAILED = 1  # exit status
_SCHEDULER = 1  # ps-lite's number of that node
_ALL = 7  # ps-lite's number of the scheduler, servers and workers together
_POLL_S = 0.5


def dead_processes(kvstore: Any, role: str) -> list[str]:
    """The processes that have sent no heartbeat for PS_HEARTBEAT_TIMEOUT seconds.

    The scheduler knows all of them; the others know of the scheduler only.
    """
    timeout = int(os.environ.get("PS_HEARTBEAT_TIMEOUT") or 0)
    if timeout <= 0 or int(os.environ.get("PS_HEARTBEAT_INTERVAL") or 0) <= 0:
        return []
    nodes = {"the scheduler": _SCHEDULER}
    if role == "scheduler":
        # ps-lite numbers servers 8, 10, ... and workers 9, 11, ...
        workers, servers = (int(os.environ[f"DMLC_NUM_{kind}"]) for kind in ("WORKER", "SERVER"))
        nodes = {f"worker process {rank}": 2 * rank + 9 for rank in range(workers)}
        nodes.update({f"server process {rank}": 2 * rank + 8 for rank in range(servers)})
    return [name for name, node in nodes.items() if _is_dead(kvstore, node, timeout)]


def has_started(kvstore: Any) -> bool:
    """Whether ps-lite has found all processes.

    Before, it knows of no dead process. Afterwards all are, for a heartbeat newer than now.
    """
    return _is_dead(kvstore, _ALL, -1)


def describe(dead: list[str]) -> str:
    """A message about dead processes, for the user."""
    text = f"no heartbeat from {', '.join(dead)} for {os.environ['PS_HEARTBEAT_TIMEOUT']} s"
    if dead == ["the scheduler"]:
        text += ", which ends when a process has died; its output names that one"
    return text


def give_up(reason: str) -> NoReturn:
    """Say why, and end the process at once."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        print(f"tofu: {reason}", file=sys.stderr, flush=True)
    os._exit(FAILED)


class Watchdog:
    """Ends this process when it waits for one that has died, or for too long.

    Args:
        name: this process, for messages.
        limit_s: for how long it may wait for the others, in seconds; 0: without limit.
    """

    def __init__(self, name: str, limit_s: float) -> None:
        self.name = name
        self.dead: Callable[[], list[str]] = list  # until the processes are connected
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._waiting: Optional[tuple[str, float]] = None  # for what, and until when
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tofu-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()

    @contextlib.contextmanager
    def waiting(self, what: str, *, limited: bool = True) -> Iterator[None]:
        """Inside this context the process waits for others.

        Args:
            what: the event that it waits for, for messages.
            limited: whether the time limit holds, or only heartbeats count.
        """
        limit = self._limit_s if limited and self._limit_s > 0 else float("inf")
        with self._lock:
            before, self._waiting = self._waiting, (what, time.monotonic() + limit)
        try:
            yield
        finally:
            with self._lock:
                self._waiting = before

    def is_waiting(self) -> bool:
        """Whether the process waits for others, as far as this watchdog knows."""
        with self._lock:
            return self._waiting is not None

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_S):
            dead = self.dead()
            with self._lock:
                what, until = self._waiting or ("", float("inf"))
            doing = f"{self.name}, waiting for {what}" if what else self.name
            if dead:
                give_up(f"{doing}: {describe(dead)}")
            elif time.monotonic() > until:
                give_up(
                    f"{doing}: nothing for {self._limit_s:g} s. Another process has ended, hangs, "
                    "or does something else (a TOFU_TIMEOUT of more seconds would wait longer)"
                )


def _is_dead(kvstore: Any, node: int, timeout: int) -> bool:
    number = ctypes.c_int()
    check_call(_LIB.MXKVStoreGetNumDeadNode(kvstore.handle, node, ctypes.byref(number), timeout))
    return number.value > 0
