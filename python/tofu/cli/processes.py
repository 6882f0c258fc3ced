"""``tofu run --processes N``: distributed training on one machine.

Starts MXNet's parameter server and N worker processes on the loopback address, with the same
variables (DMLC_*) as MXNet's own launchers. When a process fails, the others are ended; when the
launcher is killed, the system ends them.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import click

from tofu import server_process
from tofu.config import parse_workers
from tofu.errors import ConfigError

__all__ = ["parse_processes", "parse_workers_of_each", "run_processes"]

_HOST = "127.0.0.1"
_POLL_S = 0.1
_END_S = 10.0  # time for the parameter server, or a killed process, to end
_MAX_PROCESSES = 1024
_PR_SET_PDEATHSIG = 1  # of prctl
_PORTS = range(20000, 32768)  # Linux hands out 32768 to 60999


def parse_processes(text: str, option: str) -> int:
    """The number of processes that an option gives. Raises ConfigError."""
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= _MAX_PROCESSES:
        raise ConfigError(
            f"{option} {text}: expected a whole number of processes, 1 to {_MAX_PROCESSES:,}"
        )
    return count


def parse_workers_of_each(text: str, count: int) -> list[str]:
    """The numbers of workers that --workers gives each process. Raises ConfigError."""
    numbers = [str(parse_workers(each.strip(), "--workers")) for each in text.split(",")]
    if len(numbers) == 1:
        numbers *= count
    if len(numbers) != count:
        raise ConfigError(
            f"--workers {text}: {len(numbers)} numbers; expected one, or one for each of the "
            f"{count} processes of --processes"
        )
    return numbers


def run_processes(
    line: Sequence[str],
    count: int,
    servers: int,
    environ: Mapping[str, str],
    workers: Sequence[str] = (),
) -> int:
    """Run a command in `count` worker processes; the exit status.

    Args:
        line: the command line of each worker process.
        count: how many.
        servers: the number of server processes.
        environ: the environment of the run.
        workers: the number of workers of each process; (): as `environ` says.

    Raises:
        ConfigError: there are fewer GPUs than the processes need.
    """
    common = {
        **server_process.HEARTBEATS,
        **environ,
        "DMLC_PS_ROOT_URI": _HOST,
        "DMLC_PS_ROOT_PORT": str(_free_port()),
        "DMLC_NODE_HOST": _HOST,
        "DMLC_NUM_WORKER": str(count),
        "DMLC_NUM_SERVER": str(servers),
    }
    overrides = [{"TOFU_WORKERS": number} for number in workers] or [{}] * count
    environs = _with_gpus([{**common, **each} for each in overrides])
    # The launcher ends what waits too long, and a script may prepare its data for long.
    patient = {**common, "TOFU_TIMEOUT": "0"}
    with _Group() as group:
        for role in ("scheduler", *["server"] * servers):
            group.start(role, *server_process.command(role, patient))
        for task in range(count):
            roles = {"DMLC_ROLE": "worker", "DMLC_TASK_ID": str(task)}
            group.start_worker(line, {**environs[task], **roles})
        status = group.wait()
    if status == 0 and count > 1 and not group.has_ranks():
        click.echo(
            f"tofu: the script has made no distributed kvstore: its {count} processes have each "
            "trained alone, and the same if they read the same data. Expected gluon.Trainer("
            "kvstore='dist_sync'), or no --processes",
            err=True,
        )
    return status


@dataclasses.dataclass(eq=False)
class _Process:
    """One process of a run.

    Attributes:
        role: its role.
        process: the process itself.
        ranks: where a worker process writes its rank, or None.
        rank: the rank that it has written.
    """

    role: str
    process: subprocess.Popen[bytes]
    ranks: Optional[int] = None
    rank: str = ""

    def read_rank(self) -> str:
        """Reads the rank that ps-lite gave to a worker process; "" if it has none (yet)."""
        if self.ranks is not None and not self.rank:
            with contextlib.suppress(BlockingIOError):
                self.rank = os.read(self.ranks, 64).decode().strip()
        return self.rank

    @property
    def name(self) -> str:
        """Name in messages: MXNet numbers worker processes by rank, and so does tofu."""
        if self.ranks is None:
            return self.role
        rank = self.read_rank()
        return f"worker process {rank}" if rank else f"a worker process (pid {self.process.pid})"


class _Group:
    """The processes of a run; those left are ended at the end of this context."""

    def __init__(self) -> None:
        self._processes: list[_Process] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> _Group:
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        for child in self._processes:
            if child.process.poll() is None:
                child.process.terminate()
        until = time.monotonic() + _END_S
        for child in self._processes:
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.read_rank()
            if child.ranks is not None:
                os.close(child.ranks)
                child.ranks = None
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(self, role: str, line: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start a process of the parameter server."""
        process = subprocess.Popen(line, env=dict(environ), preexec_fn=_ending_with(os.getpid()))
        self._processes.append(_Process(role, process))

    def start_worker(self, line: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start a worker process, which will tell its rank."""
        ranks, write_end = os.pipe()
        os.set_blocking(ranks, False)
        process = subprocess.Popen(
            line,
            env={**environ, server_process.RANK_PIPE: str(write_end)},
            pass_fds=[write_end],
            preexec_fn=_ending_with(os.getpid()),
        )
        os.close(write_end)
        self._processes.append(_Process("worker", process, ranks))

    def has_ranks(self) -> bool:
        """Whether a worker process has connected to the parameter server."""
        return any(each.read_rank() for each in self._processes)

    def wait(self) -> int:
        """Wait for all workers, or for the first process that fails; the exit status."""
        while True:
            failed = {each: status for each in self._processes if (status := each.process.poll())}
            if failed:
                return _tell(failed)
            workers = (each.process for each in self._processes if each.role == "worker")
            if all(process.poll() is not None for process in workers):
                break
            time.sleep(_POLL_S)
        if not self.has_ranks():
            return 0  # the parameter server waits for workers that have never connected
        # It ends when all workers have said goodbye.
        until = time.monotonic() + _END_S
        for child in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - time.monotonic()))
        return 0


def _tell(failed: Mapping[_Process, int]) -> int:
    """Say which processes have failed; the exit status. A signal comes first: it is no effect."""
    cause, *effects = sorted(failed, key=lambda each: failed[each] > 0)
    failures = [f"{each.name} {_describe(failed[each])}" for each in (cause, *effects)]
    rest = f" ({', '.join(failures[1:])})" if effects else ""
    click.echo(f"tofu: {failures[0]}; ending the others{rest}", err=True)
    status = failed[cause]
    return status if status > 0 else 128 - status


def _ending_with(launcher: int) -> Callable[[], None]:
    """Returns a function for a new process to call first: it dies with its launcher."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux has it

    def bind() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:  # it has died before
                os._exit(1)

    return bind


def _interrupt(number: int, frame: Optional[object]) -> None:
    raise SystemExit(128 + number)


def _describe(status: int) -> str:
    if status > 0:
        return f"ended with exit status {status}"
    return f"was ended by {signal.Signals(-status).name}"


def _free_port() -> int:
    """A free port that the system hands to no process that asks for any.

    ps-lite's processes ask for any. One of another run may get the port before the scheduler of
    this run listens there, and ends when this run's processes take it for their scheduler.
    """
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((_HOST, port))
            return port
    raise ConfigError(f"--processes: no port from {_PORTS[0]} to {_PORTS[-1]} is free")


def _with_gpus(environs: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Give each process GPUs of its own, in its environment; on CPUs change nothing."""
    count, environ = len(environs), environs[0]
    gpus = _gpus(environ)
    if environ.get("TOFU_DEVICE") == "cpu" or (not gpus and environ.get("TOFU_DEVICE") != "gpu"):
        return list(environs)
    numbers = [int(each.get("TOFU_WORKERS") or len(gpus) // count) for each in environs]
    if sum(numbers) > len(gpus) or not all(numbers):
        raise ConfigError(
            f"--processes {count}: they need {sum(max(each, 1) for each in numbers)} GPUs, one for "
            f"each worker, and there are {len(gpus)}; use fewer processes or --workers, or "
            "--device cpu"
        )
    rest = iter(gpus)
    return [
        {**env, "CUDA_VISIBLE_DEVICES": ",".join(itertools.islice(rest, number))}
        for env, number in zip(environs, numbers)
    ]


def _gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs of the run, as CUDA_VISIBLE_DEVICES names them."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    try:
        return [str(i) for i in range(len(list(Path("/proc/driver/nvidia/gpus").iterdir())))]
    except OSError:
        return []
