"""Asks the server of ``forked`` for a process, waits for its end, and takes its exit status.

Also a program that stands in for Python if a forked process starts another:
``ask_forked.py SOCKET PYTHON ARGS``. It imports little, as it starts often.
"""

import array
import contextlib
import json
import os
import signal
import socket
import sys
import zlib

__all__ = ["MOST_BYTES", "ask", "tuned"]

MOST_BYTES = 1 << 20  # of a call
_APART = "tofu.trace.profiled_run"  # loads a library before MXNet


def tuned(folder, tunables):
    """The folder of the server of processes with a value of GLIBC_TUNABLES."""
    return os.path.join(folder, f"{zlib.crc32(tunables.encode()):x}") if tunables else folder


def ask(path, call, files, timeout=None):
    """The exit status of a process; negative: the signal that ended it. Raises TimeoutError.

    path: the server's socket.
    call: its arguments, folder and environment.
    files: its descriptors, each with the open file behind it.
    timeout: seconds until it is ended with all that it has started.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        connection.settimeout(timeout)
        call = {**call, "descriptors": list(files)}
        sent = array.array("i", files.values())
        connection.sendmsg(
            [json.dumps(call).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)]
        )
        return int(connection.recv(64) or -9)


def _inherited():
    """The descriptors that this process inherited. Python's own are not inherited."""
    numbers = map(int, os.listdir("/proc/self/fd"))
    return [number for number in numbers if os.path.exists(f"/proc/self/fd/{number}")]


def _main():
    path, python, *args = sys.argv[1:]
    is_plain = args and (args[0] in ("-m", "-c") or not args[0].startswith("-"))
    folder, name = os.path.split(path)
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    path = os.path.join(tuned(folder, tunables), name)
    is_plain = is_plain and ("PYTHONPATH" not in os.environ or tunables)  # it may shadow modules
    if not is_plain or _APART in args[:2] or not os.path.exists(path):
        os.execv(python, [python, *args])
    call = {"args": args, "cwd": os.getcwd(), "env": dict(os.environ)}
    status = ask(path, call, {number: number for number in _inherited()})
    if status < 0:
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    _main()
