"""The training graphs of a script: those of its first training step."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from tofu.config import Config
from tofu.errors import ConfigError, TofuError
from tofu.installation import check_mxnet
from tofu.plans import Problem
from tofu.uncaught import without_ours

if TYPE_CHECKING:
    from tofu.gluon.blocks.dry_run import DryRun

__all__ = ["Found", "first_of_script", "graphs_of_script"]

_WHO = "tofu plan"
_INPUT = "data"  # the role of a block's inputs


class _FirstFound(BaseException):
    """Ends a script as soon as one graph is known."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The graphs that a script trains.

    Attributes:
        problems: its graphs.
        states: see DryRun.
    """

    problems: Sequence[Problem]
    states: Optional[int]


def first_of_script(script: Path, args: Sequence[str]) -> Found:
    """The graph of a script's first training call; see ``graphs_of_script``."""
    return _graphs(script, args, most=1)


def graphs_of_script(script: Path, args: Sequence[str]) -> Found:
    """Run `script` until the end of its first training step, and return the graphs it trains.

    Blocks compute nothing meanwhile (tofu.gluon.blocks.dry_run). What the script prints goes to
    standard error. If there are several graphs, the name of each says which block it is of.

    Args:
        script: its path.
        args: its arguments.

    Raises:
        ConfigError: the script came to its end before its first training call.
        SystemExit: it failed before, or ended with another status than 0.
    """
    return _graphs(script, args)


def _graphs(script: Path, args: Sequence[str], *, most: int = 0) -> Found:
    """Find all graphs of a script, or as many as are enough."""
    check_mxnet(_WHO, load=False)
    from tofu import _import_hook

    if Config.from_environment().workers is not None:
        # Nothing will run, so planning works with fewer GPUs than workers.
        os.environ["TOFU_DEVICE"] = "cpu"
    sys.argv = [str(script), *args]
    sys.path[0] = str(script.resolve().parent)
    problems: list[Problem] = []

    def note(graph: Problem) -> None:
        problems.append(graph)
        if len(problems) == most:
            raise _FirstFound

    ended: BaseException = SystemExit(0)
    runs: list[DryRun] = []
    with contextlib.ExitStack() as dry, contextlib.redirect_stdout(sys.stderr):

        def begin() -> None:
            from tofu.gluon.blocks.dry_run import DryRun

            runs.append(dry.enter_context(DryRun(note)))

        _import_hook.install(begin)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except BaseException as error:
            ended = error
    if isinstance(ended, KeyboardInterrupt):
        raise ended
    status = _status(ended) if isinstance(ended, SystemExit) else 0
    if problems:
        if isinstance(ended, Exception) or status:
            click.echo(_cut_short(script, ended), err=True)
        return Found(_named(script.name, problems), runs[0].states)
    if isinstance(ended, TofuError):
        raise ended
    if isinstance(ended, Exception):
        _show_own(ended, script)
        raise SystemExit(1)
    nothing = (
        f"{script} ended (status {status}) before its first partitioned training call: nothing to "
        "plan"
    )
    if status:
        click.echo(f"tofu: {nothing}", err=True)
        raise SystemExit(status)
    raise ConfigError(
        f"{nothing}; its net must be a HybridBlock, or a Sequential of them, and called under "
        "autograd.record(); one with operators of your own that is not hybridized is partitioned "
        "from its second step on"
    )


def _status(ended: SystemExit) -> int:
    """The status with which Python would end the process."""
    code = ended.code
    if code is None or isinstance(code, int):
        return code or 0
    click.echo(code, err=True)
    return 1


def _cut_short(script: Path, error: BaseException) -> str:
    text = str(error).strip().splitlines() or [""]
    return (
        f"tofu: {script} ended within its first training step, in which blocks give zeros "
        f"({type(error).__name__}: {text[-1]}); there may be more graphs than those found"
    )


def _named(script: str, graphs: Sequence[Problem]) -> list[Problem]:
    """The problems, with names that tell several graphs apart."""
    if len(graphs) == 1:
        return [dataclasses.replace(graphs[0], name=script)]
    problems = []
    for graph in graphs:
        roles = set(graph.graph.head_roles)
        inputs = [
            node.name
            for node in graph.graph.nodes
            if not node.op and f"gradient:{node.name}" in roles
            and node.attrs.get("__tofu_role__") == _INPUT
        ]  # fmt: skip
        name = f"{script}, {graph.name}"
        if inputs:
            name += f" with the gradient of {', '.join(inputs)}"
        problems.append(dataclasses.replace(graph, name=name))
    seen: dict[str, int] = {}
    for number, problem in enumerate(problems):
        seen[problem.name] = seen.get(problem.name, 0) + 1
        if seen[problem.name] > 1:
            name = f"{problem.name} ({seen[problem.name]})"
            problems[number] = dataclasses.replace(problem, name=name)
    return problems


def _show_own(error: Exception, script: Path) -> None:
    """Print the traceback of a script as Python would, without the frames that started it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, without_ours(frames))
