"""The training graph of a script's first training call."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tofu import _core
from tofu.config import Config
from tofu.errors import ConfigError, TofuError
from tofu.installation import check_mxnet
from tofu.plan import Problem, intercept
from tofu.uncaught import without_ours

__all__ = ["from_script"]

_WHO = "tofu plan"


class _GraphReady(BaseException):
    """Ends a script as soon as the graph of its first training call is known."""

    def __init__(self, table: _core.StrategyTable, workers: int) -> None:
        super().__init__()
        self.table, self.workers = table, workers


def from_script(script: Path, args: Sequence[str]) -> Problem:
    """Run `script` until its first partitioned training call and return that call's graph.

    What the script prints goes to standard error.

    Raises:
        ConfigError: the script ended before that call.
    """
    check_mxnet(_WHO, load=False)
    from tofu import _import_hook

    _import_hook.install()
    if Config.from_environment().workers is not None:
        # Nothing will run, so planning works with fewer GPUs than workers.
        os.environ["TOFU_DEVICE"] = "cpu"
    sys.argv = [str(script), *args]
    sys.path[0] = str(script.resolve().parent)
    try:
        with contextlib.redirect_stdout(sys.stderr), intercept(_stop_at_training):
            runpy.run_path(str(script), run_name="__main__")
            status: object = 0
    except _GraphReady as ready:
        return Problem(script.name, ready.table, ready.workers)
    except SystemExit as end:
        status = end.code or 0
    except TofuError:
        raise
    except Exception as error:
        _show_own(error, script)
        raise SystemExit(1) from None
    raise ConfigError(
        f"{script} ended (status {status}) before its first partitioned training call: "
        "nothing to plan; its net must be a HybridBlock, or a Sequential of them, and called "
        "under autograd.record()"
    )


def _show_own(error: Exception, script: Path) -> None:
    """Print the traceback of a script as Python would, without the frames that started it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, without_ours(frames))


def _stop_at_training(table: _core.StrategyTable, workers: int) -> None:
    if any(role.startswith("gradient:") for role in table.graph.head_roles):
        raise _GraphReady(table, workers)
