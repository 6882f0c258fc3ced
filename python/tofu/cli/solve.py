"""``tofu solve``: reads a problem of costs and memory, solves it, and tells the choices."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from pathlib import Path
from typing import Any, Optional

import click

from tofu.errors import ConfigError, PlanError
from tofu.plans.plan import gap_text

__all__ = ["NO_CHOICE", "solve"]

NO_CHOICE = 1  # exit status
_MOST_NEEDS = 10  # lines
_BETWEEN_LINES_S = 1.0  # if only the bound improves


class _Lines:
    """Prints cost, bound, gap and time as the search improves them."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._cost: Optional[int] = None
        self._next = 0.0

    def heard(self, cost: Optional[int], bound: int) -> None:
        seconds = time.monotonic() - self._begin
        if cost == self._cost and seconds < self._next:
            return
        self._cost = cost
        self._next = seconds + _BETWEEN_LINES_S
        click.echo(f"{seconds:8.2f} s  {_state_text(cost, bound)}")


def _state_text(cost: Optional[int], bound: int) -> str:
    if cost is None:
        return f"no choice yet  bound {bound:,}"
    return f"cost {cost:,}  bound {bound:,}  gap {gap_text(cost, bound)}"


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; expected a problem's JSON") from None


def _parse_limit(text: Optional[str]) -> Optional[int]:
    """None: the problem's own; -1: no limit."""
    if text is None:
        return None
    if text == "none":
        return -1
    if not text.isdecimal():
        raise ConfigError(f'--limit: found {text!r}, expected a number of bytes or "none"')
    return int(text)


@click.command(short_help="Solve a problem of costs and memory.")
@click.option(
    "--limit", metavar="BYTES", help='Memory at any moment, or "none". Default: the file\'s.'
)
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop after this many seconds and take the best choice so far.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1, max=64),
    default=1,
    show_default=True,
    help="Number of threads; the answer does not depend on it.",
)
@click.option("--save", metavar="SOLUTION", help="Write the solution to this file.")
@click.argument("file", metavar="FILE")
def solve(
    limit: Optional[str], seconds: float, threads: int, save: Optional[str], file: str
) -> None:
    """Solve a problem of costs and memory, and print its choices.

    FILE is a step problem or one of the IOPDDL contest (docs/formats.md), gzipped or not.
    Prints the cost of the best choice, a lower bound and the gap between them whenever they
    improve, and at last the value of every variable. A separate checker recounts the result
    first. Exits with status 1 if there is no choice, and prints the smallest limit that leaves
    one.
    """
    from tofu import _core
    from tofu.verify.solution import check_solution

    path = Path(file)
    text = _read_text(path)
    solution = json.loads(
        _core.solve(
            text,
            limit=_parse_limit(limit),
            time_limit_s=seconds,
            threads=threads,
            on_progress=_Lines().heard,
        )
    )
    if solution["values"] is None:
        _refuse(solution, seconds)
    counted = check_solution(json.loads(text), solution, solution["limit"])
    if save is not None:
        _write(Path(save), solution)
    click.echo(
        f"{solution['status']}: {_state_text(solution['cost'], solution['bound'])}  "
        f"{solution['cpu_seconds']:.2f} s of processor time"
    )
    share = "no limit" if solution["limit"] is None else f"of {solution['limit']:,}"
    click.echo(f"memory: {counted.peak:,} bytes at moment {counted.moment}, {share}")
    if save is not None:
        click.echo(f"recounted; written to {save}")
    else:
        click.echo(f"recounted; values: {json.dumps(solution['values'])}")


def _write(target: Path, solution: dict[str, Any]) -> None:
    try:
        target.write_text(json.dumps(solution) + "\n")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error}") from None


def _refuse(solution: dict[str, Any], seconds: float) -> None:
    """Say why there are no values, and end."""
    if solution["status"] == "unknown":
        raise PlanError(
            f"problem: no choice found in {seconds:g} s, and no proof that there is none; "
            "allow more with --time"
        )
    least = solution["least_limit"]
    if least is None:
        click.echo("infeasible: forbidden costs leave no choice under any limit")
    else:
        click.echo(f"infeasible: no choice fits into {solution['limit']:,} bytes")
        click.echo(_least_text(least))
    raise SystemExit(NO_CHOICE)


def _least_text(least: dict[str, Any]) -> str:
    if least["bytes"] is None:
        return f"the smallest limit that leaves one: {least['bound']:,} bytes or more"
    lines = [f"the smallest limit that leaves one: {least['bytes']:,} bytes"]
    if least["bound"] < least["bytes"]:
        lines[0] += f" or less, {least['bound']:,} at least"
    lines.append(f"at moment {least['moment']}, these need it:")
    for variable, used in least["needs"][:_MOST_NEEDS]:
        lines.append(f"{used:>16,} bytes  variable {variable}")
    rest = least["needs"][_MOST_NEEDS:]
    if rest:
        lines.append(f"{sum(used for _, used in rest):>16,} bytes  {len(rest)} more variables")
    return "\n".join(lines)
