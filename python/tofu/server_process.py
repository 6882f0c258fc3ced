"""Processes of MXNet's parameter server: the servers and the scheduler of distributed training.

MXNet turns every process with ``DMLC_ROLE=server`` or ``scheduler`` into one when it is
imported. Under the switch such a process starts tofu.gluon.processes.parameter_server instead,
which does the same, and ends when another process has died.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["GREETING", "HEARTBEATS", "RANK_PIPE", "ROLES", "address", "become", "command"]

ROLES = ("scheduler", "server")
# The variable by which `tofu run` tells worker processes where to write their rank.
RANK_PIPE = "_TOFU_RANK_PIPE"
# With it begins the command by which a worker process under tofu tells servers its rank.
GREETING = b"tofu worker process "
# In seconds. ps-lite, the library under MXNet's parameter server, sends none by default.
HEARTBEATS = {"PS_HEARTBEAT_INTERVAL": "2", "PS_HEARTBEAT_TIMEOUT": "30"}
# MXNet's server never sets its flag for "weights are kept in float32" and uses what was in that
# memory before: usually not 0, and float64 is rounded. New memory is zeros with these settings.
_ZEROED_MEMORY = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=255"


def address() -> str:
    """The scheduler's address, as the environment gives it."""
    host, port = (os.environ.get(f"DMLC_PS_ROOT_{name}", "") for name in ("URI", "PORT"))
    return f"scheduler at {host}:{port}"


def command(role: str, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of such a process.

    Args:
        role: one of ROLES.
        environ: the environment of the run; DMLC_* variables say where the scheduler is.
    """
    inherited = {name: value for name, value in environ.items() if name != "DMLC_ROLE"}
    tunables = [_ZEROED_MEMORY, *filter(None, [inherited.get("GLIBC_TUNABLES")])]
    settings = {
        "MXNET_GRAPH_PASS": "",
        "GLIBC_TUNABLES": ":".join(tunables),
        # An optimizer of the script's own modules has to be found there, too.
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    line = [sys.executable, "-m", "tofu.gluon.processes.parameter_server", role]
    return line, {**HEARTBEATS, **inherited, **settings}


def become(role: str) -> None:
    """Turn this process into one; does not return."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    line, environ = command(role, os.environ)
    os.execve(line[0], line, environ)
