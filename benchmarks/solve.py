"""Solves a problem of costs and memory, and prints its choices.

    python benchmarks/solve.py problem.json.gz --time 30 --save solution.json

The file is a step problem (docs/formats.md) or one of the IOPDDL contest (_problem_files.py),
gzipped or not. Prints the cost of the best choice, a lower bound and the gap between them whenever
they improve, and at last the value of every variable. A separate checker recounts the result first.
Exits with status 1 if there is no choice, and prints the smallest limit that leaves one; with 2 if
the input is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _problem_files import read_text, step_problem_text
from _solution import check_solution

from tofu.errors import ConfigError, PlanError, TofuError
from tofu.plans.plan import gap_text

NO_CHOICE, BAD_INPUT = 1, 2  # exit status
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
        print(f"{seconds:8.2f} s  {_state_text(cost, bound)}")


def _state_text(cost: Optional[int], bound: int) -> str:
    if cost is None:
        return f"no choice yet  bound {bound:,}"
    return f"cost {cost:,}  bound {bound:,}  gap {gap_text(cost, bound)}"


def _parse_limit(text: Optional[str]) -> Optional[int]:
    """None: the problem's own; -1: no limit."""
    if text is None:
        return None
    if text == "none":
        return -1
    if not text.isdecimal():
        raise ConfigError(f'--limit: found {text!r}, expected a number of bytes or "none"')
    return int(text)


def solve_file(path: Path, options: argparse.Namespace) -> None:
    """Solve a file's problem as the options say."""
    from tofu import _core

    text = read_text(path)
    solution = json.loads(
        _core.solve(
            step_problem_text(text),
            limit=_parse_limit(options.limit),
            time_limit_s=options.time,
            threads=options.threads,
            on_progress=_Lines().heard,
        )
    )
    if solution["values"] is None:
        _refuse(solution, options.time)
    counted = check_solution(json.loads(text), solution, solution["limit"])
    if options.save is not None:
        _write(options.save, solution)
    print(
        f"{solution['status']}: {_state_text(solution['cost'], solution['bound'])}  "
        f"{solution['cpu_seconds']:.2f} s of processor time"
    )
    share = "no limit" if solution["limit"] is None else f"of {solution['limit']:,}"
    print(f"memory: {counted.peak:,} bytes at moment {counted.moment}, {share}")
    if options.save is not None:
        print(f"recounted; written to {options.save}")
    else:
        print(f"recounted; values: {json.dumps(solution['values'])}")


def _write(target: Path, solution: dict[str, Any]) -> None:
    try:
        target.write_text(json.dumps(solution) + "\n")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error}") from None


def _refuse(solution: dict[str, Any], seconds: float) -> None:
    """Print the reason why no choice exists, and end."""
    if solution["status"] == "unknown":
        raise PlanError(
            f"problem: no choice found in {seconds:g} s, and no proof that there is none; "
            "allow more with --time"
        )
    least = solution["least_limit"]
    if least is None:
        print("infeasible: forbidden costs leave no choice under any limit")
    else:
        print(f"infeasible: no choice fits into {solution['limit']:,} bytes")
        print(_least_text(least))
    sys.exit(NO_CHOICE)


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


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Solve the problem that the command line names; print errors as one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--limit", metavar="BYTES", help='memory at any moment, or "none"; default: the file\'s'
    )
    parser.add_argument(
        "--time", type=float, default=60.0, metavar="S", help="take the best choice after S seconds"
    )
    parser.add_argument("--threads", type=int, default=1, help="the answer does not depend on it")
    parser.add_argument("--save", type=Path, metavar="SOLUTION", help="file for the solution")
    parser.add_argument("file", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        solve_file(options.file, options)
    except TofuError as error:
        print(f"solve: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
