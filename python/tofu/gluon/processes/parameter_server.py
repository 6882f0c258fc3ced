"""A server or the scheduler of MXNet's parameter server, which notices that a process has died.

``python -m tofu.gluon.processes.parameter_server server`` does what
``DMLC_ROLE=server python -c 'import mxnet'`` does, and watches heartbeats. The scheduler gets the
heartbeats of all processes, and names the one that has died; all others get the scheduler's.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import mxnet as mx
from mxnet.kvstore.kvstore_server import KVStoreServer

from . import heartbeats

__all__ = ["main"]

_POLL_S = 1.0
# ps-lite takes its time of start only after it has found the others, and until then everyone for
# dead. So only what it says for this many polls counts.
_POLLS = 5


def main(role: str) -> None:
    """Run as a server or scheduler until all workers have ended, or one has died."""
    # Only now: MXNet starts a plain server while it is imported in a process with a role.
    os.environ["DMLC_ROLE"] = role
    kvstore = mx.kv.create("dist")
    threading.Thread(target=_watch, args=(kvstore, role), daemon=True).start()
    KVStoreServer(kvstore).run()


def _watch(kvstore: Any, role: str) -> None:
    polls = 0
    while polls < _POLLS:
        time.sleep(_POLL_S)
        dead = heartbeats.dead_processes(kvstore, role)
        polls = polls + 1 if dead else 0
    heartbeats.give_up(f"{role}: {heartbeats.describe(dead)}")


if __name__ == "__main__":
    main(sys.argv[1])
