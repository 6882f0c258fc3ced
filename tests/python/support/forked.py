"""Runs Python in processes that are forked from one with MXNet and tofu loaded.

A new process needs two seconds of processor time until its script begins. A forked one begins at
once: it has the arguments, environment, folder and files of the call, and `import mxnet` finds the
loaded module, so that the switch works as in a new process. Processes that it starts itself with
``sys.executable`` are forked, too. Tests of the start and end of Python, or of loading MXNet, still
start new processes.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

if __name__ == "__main__":
    from ask_forked import MOST_BYTES, ask
else:
    from .ask_forked import MOST_BYTES, ask, tuned

__all__ = ["prepare", "python", "run"]

_LOADED = (
    "mxnet", "tofu.cli.main", "tofu.cli.plan", "tofu.gluon.switch", "tofu.tdl",
    "tofu.planner.decide", "tofu.mx.graphs.training_graph", "tofu.mx.run.program", "tofu.simulate",
)  # fmt: skip
_MOST_FILES = 256  # of a call; all descriptors are below
_OF_A_SESSION = ("MXNET_", "TOFU_", "DMLC_")
_servers: dict[int, Path] = {}  # folders, by the process that started the server


def run(
    args: Sequence[object],
    *,
    cwd: Optional[object] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout: float = 300,
    stderr: Optional[int] = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGS`` and capture its output, as ``subprocess.run`` does.

    Args:
        args: Python's arguments: a script, -m and a module, or -c and a text, and their arguments.
        cwd: the folder to run in; None: this process's.
        env: the environment; None: this process's.
        timeout: seconds until the process and those that it has started are ended.
        stderr: subprocess.STDOUT captures standard error together with the output.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    words = [str(word) for word in args]
    environ = dict(os.environ if env is None else env)
    call = {"args": words, "cwd": str(cwd or os.getcwd()), "env": environ}
    with contextlib.ExitStack() as stack:
        none, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        files = dict(enumerate(each.fileno() for each in (none, out, out if stderr else err)))
        try:
            status = ask(str(_server() / "socket"), call, files, timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(words, timeout) from None
        for each in (out, err):
            each.seek(0)
        texts = [each.read().decode(errors="replace") for each in (out, err)]
    return subprocess.CompletedProcess([sys.executable, *words], status, *texts)


def python() -> str:
    """Path of a program that stands in for Python, with forked processes."""
    return str(_server() / "python")


def prepare(tunables: str) -> None:
    """Let ``python()`` fork processes with this GLIBC_TUNABLES, too, from a server of their own.

    The C library reads the variable when a program starts, so other servers cannot fork them.
    """
    if not (folder := Path(tuned(str(_server()), tunables))).exists():
        folder.mkdir()
        _start(folder, {"GLIBC_TUNABLES": tunables})


def _server() -> Path:
    """The folder of this process's server, which ends with it."""
    if os.getpid() not in _servers:
        _servers[os.getpid()] = folder = Path(tempfile.mkdtemp(prefix="forked"))
        _start(folder, {})
    return _servers[os.getpid()]


def _start(folder: Path, variables: Mapping[str, str]) -> None:
    """Start a server with a socket and a program in a folder."""
    python = folder / "python"
    asking = [sys.executable, "-IS", str(Path(__file__).with_name("ask_forked.py"))]
    words = " ".join(f'"{word}"' for word in (*asking, folder / "socket", sys.executable))
    python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    python.chmod(0o755)
    plain = {k: v for k, v in os.environ.items() if not k.startswith(_OF_A_SESSION)}
    reader, _ = os.pipe()
    line = [sys.executable, __file__, str(folder), str(reader)]
    with subprocess.Popen(
        line,
        env={**plain, "OMP_NUM_THREADS": "1", **variables},
        pass_fds=[reader],
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        server.returncode = 0  # it ends when this process does
    os.close(reader)


# --- in the server, and in the processes that it forks ------------------------------------------


def _serve(folder: Path, parent: int) -> dict[str, Any]:
    """Fork for each call, until the tests have ended; returns the call in the forked process."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / "socket"))
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for the waiting processes
    print("ready", flush=True)
    os.dup2(2, 1)
    while True:
        ready, _, _ = select.select([listener, parent], [], [])
        if parent in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.close(parent)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _fork(connection)
        connection.close()


def _fork(connection: socket.socket) -> dict[str, Any]:
    """Fork once more, and wait; returns the call in the forked process."""
    text, ancillary, _, _ = connection.recvmsg(MOST_BYTES, socket.CMSG_SPACE(4 * _MOST_FILES))
    files = array.array("i", ancillary[0][2])
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        call: dict[str, Any] = json.loads(text)
        apart = [fcntl.fcntl(file, fcntl.F_DUPFD, _MOST_FILES) for file in files]
        for file in files:
            os.close(file)
        for file, number in zip(apart, call["descriptors"]):
            os.dup2(file, number)
            os.close(file)
        return call
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, connection], [], [])
    if ended not in ready:  # the asking process is gone
        os.killpg(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.send(str(status).encode())
    os._exit(0)


def _leave_dirt() -> None:
    """Leave memory that is not 0 to the forked processes, as others find it after their start."""
    c = ctypes.CDLL(None)
    c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    sizes = [size for size in range(16, 2048, 16) for _ in range(40)]
    blocks = [c.malloc(size) for size in sizes]
    for block, size in zip(blocks, sizes):
        ctypes.memset(block, 255, size)
    for block in blocks[::2]:  # those in between keep them apart
        c.free(block)


class _Again:
    """Finds the loaded MXNet for an `import mxnet` that runs the hooks of a first one."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name == "mxnet" else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec  # which Python has just replaced


def _become(call: Mapping[str, Any], python: Path) -> None:
    """Run the call's script, module or text as Python would at its start."""
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["env"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.executable = str(python)
    for number in (signal.SIGSEGV, signal.SIGFPE, signal.SIGBUS):  # MXNet handles them
        signal.signal(number, signal.SIG_DFL)
    mxnet = sys.modules.pop("mxnet")  # first, as the switch acts at once if it is loaded
    if os.environ.get("MXNET_GRAPH_PASS"):
        from tofu import _import_hook

        _import_hook.install()
    sys.meta_path.insert(1, _Again(mxnet))
    try:
        _run(*call["args"])
    except SystemExit:
        raise
    except BaseException as error:
        own = error.__traceback__
        while own is not None and own.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            own = own.tb_next
        sys.excepthook(type(error), error, own)
        sys.exit(1)


def _run(first: str, *rest: str) -> None:
    if first == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = list(rest)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(first))
        sys.argv = [first, *rest]
        main.__file__ = first
        code = compile(Path(first).read_bytes(), first, "exec")
    exec(code, main.__dict__)


def _end(code: object) -> None:
    """End as Python does, but do not free the loaded modules, which takes half a second."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _main() -> None:
    folder, parent = sys.argv[1:]
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()
    _leave_dirt()
    call = _serve(Path(folder), int(parent))
    try:
        _become(call, Path(folder) / "python")
    except SystemExit as ended:
        _end(ended.code)
    _end(0)


if __name__ == "__main__":
    _main()
