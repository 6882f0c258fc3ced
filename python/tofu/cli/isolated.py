"""Runs a function that may crash MXNet in a separate process.

MXNet ends the process on some damaged symbols and on some calls of operators. A command that may
meet one forks before MXNet is loaded; the child does the work, and the parent says in one line
if it did not come to its end.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from typing import Callable

from tofu.errors import ConfigError, InternalError, TofuError
from tofu.plans import progress
from tofu.uncaught import BAD_INPUT

__all__ = ["isolated"]

_ENDED = b"."  # the child writes it before it ends normally


def isolated(run: Callable[[], None], crashed: str) -> None:
    """Run a function in a forked process, with its output and its exit status.

    If MXNet is loaded, its threads do not survive a fork, so the function runs here.

    Args:
        run: the function.
        crashed: the message if the process does not end by itself; "{}" becomes the cause.

    Raises:
        ConfigError: the process was ended by a signal or by MXNet.
        SystemExit: the process ended with another status than 0.
    """
    if "mxnet" in sys.modules:
        run()
        return
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as messages:
        child = os.fork()
        if child == 0:
            os.close(reader)
            progress.hold_terminal()
            os.dup2(messages.fileno(), 2)
            _serve(run, writer)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        with open(reader, "rb") as pipe:
            ended = pipe.read() == _ENDED
        if not ended:
            progress.clear(of_another=True)
            raise ConfigError(crashed.format(_cause(status)))
        messages.seek(0)
        sys.stderr.write(messages.read().decode(errors="replace"))
        sys.stderr.flush()
    code = os.WEXITSTATUS(status)
    if code:
        raise SystemExit(code)


def _serve(run: Callable[[], None], writer: int) -> None:
    """Run the function in the child and end, without the parent's own clean-up."""
    code = 1
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except InternalError:
        traceback.print_exc()
    except TofuError as error:
        print(f"tofu: {error}", file=sys.stderr)
        code = BAD_INPUT
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(writer, _ENDED)
        os._exit(code)


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.WEXITSTATUS(status)}"
