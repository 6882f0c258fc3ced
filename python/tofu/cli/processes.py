"""``tofu run --processes N``: distributed training on one machine.

Starts MXNet's parameter server and N worker processes on the loopback address, with the same
variables (DMLC_*) as MXNet's own launchers. When a process fails, the others are ended.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import click

from tofu import server_process
from tofu.errors import ConfigError

__all__ = ["parse_processes", "run_processes"]

_HOST = "127.0.0.1"
_POLL_S = 0.1
_END_S = 10.0  # what the parameter server, or an ended process, may take to end
_MAX_PROCESSES = 1024


def parse_processes(text: str, option: str) -> int:
    """The number of processes that an option gives. Raises ConfigError."""
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= _MAX_PROCESSES:
        raise ConfigError(
            f"{option} {text}: expected a whole number of processes, 1 to {_MAX_PROCESSES:,}"
        )
    return count


def run_processes(line: Sequence[str], count: int, servers: int, environ: Mapping[str, str]) -> int:
    """Run a command in `count` worker processes; the exit status.

    Args:
        line: the command line of each worker process.
        count: how many.
        servers: the number of server processes.
        environ: the environment of the run.

    Raises:
        ConfigError: there are fewer GPUs than the processes need.
    """
    common = {
        **environ,
        **server_process.HEARTBEATS,
        "DMLC_PS_ROOT_URI": _HOST,
        "DMLC_PS_ROOT_PORT": str(_free_port()),
        "DMLC_NODE_HOST": _HOST,
        "DMLC_NUM_WORKER": str(count),
        "DMLC_NUM_SERVER": str(servers),
    }
    devices = _devices(count, common)
    with _Group() as group:
        for role in ("scheduler", *["server"] * servers):
            group.start(role, *server_process.command(role, common))
        for task in range(count):
            own = {**common, "DMLC_ROLE": "worker", "DMLC_TASK_ID": str(task), **devices[task]}
            group.start(f"worker process {task}", line, own, is_worker=True)
        return group.wait()


class _Group:
    """The processes of a run; those left are ended at the end of this context."""

    def __init__(self) -> None:
        self._processes: list[tuple[str, bool, subprocess.Popen[bytes]]] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> _Group:
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        for _, _, process in self._processes:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + _END_S
        for _, _, process in self._processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(
        self, name: str, line: Sequence[str], environ: Mapping[str, str], *, is_worker: bool = False
    ) -> None:
        self._processes.append((name, is_worker, subprocess.Popen(line, env=dict(environ))))

    def wait(self) -> int:
        """Wait for all workers, or for the first process that fails; the exit status."""
        while True:
            for name, _, process in self._processes:
                status = process.poll()
                if status:
                    click.echo(f"tofu: {name} {_describe(status)}; ending the others", err=True)
                    return status if status > 0 else 128 - status
            if all(process.poll() is not None for _, worker, process in self._processes if worker):
                break
            time.sleep(_POLL_S)
        # The parameter server ends by itself when all workers have said goodbye.
        until = time.monotonic() + _END_S
        for _, _, process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        return 0


def _interrupt(number: int, frame: Optional[object]) -> None:
    raise SystemExit(128 + number)


def _describe(status: int) -> str:
    if status > 0:
        return f"ended with exit status {status}"
    return f"was ended by {signal.Signals(-status).name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _devices(count: int, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The variable that gives each process GPUs of its own; nothing on CPUs."""
    found = _gpus(environ)
    if environ.get("TOFU_DEVICE") == "cpu" or (not found and environ.get("TOFU_DEVICE") != "gpu"):
        return [{}] * count
    each = int(environ.get("TOFU_WORKERS") or len(found) // count)
    needed = max(each, 1) * count
    if each * count > len(found) or not each:
        raise ConfigError(
            f"--processes {count}: they need {needed} GPUs, one for each worker, and there are "
            f"{len(found)}; use fewer processes or --workers, or --device cpu"
        )
    shares = [found[task * each : (task + 1) * each] for task in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def _gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs of the run, as CUDA_VISIBLE_DEVICES names them."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    try:
        return [str(i) for i in range(len(list(Path("/proc/driver/nvidia/gpus").iterdir())))]
    except OSError:
        return []
