"""A server or the scheduler of MXNet's parameter server, which notices that a process has died.

``python -m tofu.gluon.processes.parameter_server server`` does what
``DMLC_ROLE=server python -c 'import mxnet'`` does, and watches heartbeats. The scheduler gets the
heartbeats of all processes, and names the one that has died; all others get the scheduler's.

A server also knows which worker processes run under tofu, as these greet it. Others use other keys,
and MXNet ends a server that is asked for a key that it does not have.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

import mxnet as mx
from mxnet.kvstore.kvstore_server import KVStoreServer

from tofu import server_process
from tofu.config import Config

from . import heartbeats

__all__ = ["main"]

_POLL_S = 1.0
# ps-lite takes its time of start only after it has found the others, and until then everyone for
# dead. So only what it says for this many polls counts.
_POLLS = 5


def main(role: str) -> None:
    """Run as a server or scheduler until all workers have ended, or one has died."""
    limit_s = Config.from_environment().timeout_s
    if role == "scheduler":
        _check_address()
    # Only now: MXNet starts a plain server while it is imported in a process with a role.
    os.environ["DMLC_ROLE"] = role
    kvstore = mx.kv.create("dist")
    threading.Thread(target=_watch, args=(kvstore, role, limit_s), daemon=True).start()
    server = _Server(kvstore)
    with _explained(server):
        server.run()


class _Server(KVStoreServer):  # type: ignore[misc]
    """MXNet's server, which also counts the worker processes that greet it."""

    def __init__(self, kvstore: Any) -> None:
        super().__init__(kvstore)
        self._greeted: set[int] = set()

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        original = super()._controller()

        def controller(command: int, body: bytes, handle: Any) -> None:
            if body.startswith(server_process.GREETING):
                self._greeted.add(int(body[len(server_process.GREETING) :]))
            else:
                original(command, body, handle)

        return controller

    def without_tofu(self) -> list[int]:
        """Ranks of the worker processes that have not greeted."""
        return sorted(set(range(int(os.environ["DMLC_NUM_WORKER"]))) - self._greeted)


@contextlib.contextmanager
def _explained(server: _Server) -> Iterator[None]:
    """Let an error in a thread of MXNet end this process with a line that says why."""
    set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE  # std::set_terminate
    set_terminate.restype = ctypes.c_void_p
    set_terminate.argtypes = [ctypes.c_void_p]

    def explain() -> None:
        plain = server.without_tofu()
        if plain:
            heartbeats.give_up(
                "server: MXNET_GRAPH_PASS=tofu is not set in worker process "
                f"{', '.join(map(str, plain))}, which has other keys than the rest; set it in all "
                "processes or in none, and end that one yourself, as plain MXNet waits forever"
            )
        ctypes.CFUNCTYPE(None)(original)()

    handler = ctypes.CFUNCTYPE(None)(explain)
    original = set_terminate(ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        set_terminate(original)


def _check_address() -> None:
    """Give up if the scheduler cannot listen at its address."""
    host, port = os.environ["DMLC_PS_ROOT_URI"], os.environ["DMLC_PS_ROOT_PORT"]
    advice = {
        errno.EADDRINUSE: "the port is in use; end the process that listens there, or choose "
        "another DMLC_PS_ROOT_PORT in all processes",
        errno.EADDRNOTAVAIL: "no address of this machine; start the scheduler on the machine that "
        "DMLC_PS_ROOT_URI names",
    }
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            if error.errno in advice:  # ps-lite reports other errors
                heartbeats.give_up(f"scheduler: {host}:{port}: {advice[error.errno]}")


def _watch(kvstore: Any, role: str, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    time.sleep(_POLL_S)  # ps-lite must exist before it can be asked
    while not heartbeats.has_started(kvstore):
        time.sleep(_POLL_S)
        if limit_s and time.monotonic() > until:
            heartbeats.give_up(_lonely(role, limit_s))
    polls = 0
    while polls < _POLLS:
        time.sleep(_POLL_S)
        dead = heartbeats.dead_processes(kvstore, role)
        polls = polls + 1 if dead else 0
    heartbeats.give_up(f"{role}: {heartbeats.describe(dead)}")


def _lonely(role: str, limit_s: float) -> str:
    workers, servers = (os.environ[f"DMLC_NUM_{kind}"] for kind in ("WORKER", "SERVER"))
    return (
        f"{role}, waiting for the other processes to start ({server_process.address()}): nothing "
        f"for {limit_s:g} s. Expected {workers} worker and {servers} server processes and a "
        "scheduler with the same DMLC_* variables (a TOFU_TIMEOUT of more seconds would wait "
        "longer)"
    )


if __name__ == "__main__":
    main(sys.argv[1])
