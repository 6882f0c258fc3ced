"""Measures the analysis of the whole inventory, and the length of descriptions.

    python benchmarks/analysis.py [--repetitions 5]

Prints a table: CPU seconds from scratch, for one example call of every described operator
and for all calls, each repetition in its own process; milliseconds from the cache on disk;
lines per description. Needs MXNet but no GPU; takes about a minute.
docs/results/analysis.md has the numbers.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import pickle
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

_FROM_SCRATCH = """
import pickle, sys, time
calls = pickle.load(open(sys.argv[1], "rb"))
begin = time.process_time()
import tofu.tdl
from tofu.analysis import row_for
from tofu.errors import TofuError
for op, attrs, ins, outs in calls:
    try:
        row_for(op, attrs, ins, outs)
    except TofuError:
        pass
print(time.process_time() - begin)
"""


def calls() -> list[tuple]:
    """The operator, attributes and shapes of every example call."""
    from tofu.verify.calls.operator_calls import cases_by_operator
    from tofu.verify.inventory.inventory import call_of

    operator_calls = []
    for cases in cases_by_operator().values():
        for each in cases:
            call = call_of(each)
            if call is not None:
                operator_calls.append((call.op, dict(call.attrs), call.ins, call.outs))
    return operator_calls


def from_scratch(operator_calls: list[tuple], repetitions: int) -> list[float]:
    """Seconds to import the descriptions and analyse the calls, in new processes."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "calls"
        document.write_bytes(pickle.dumps(operator_calls))
        command = [sys.executable, "-c", _FROM_SCRATCH, str(document)]
        options = {"check": True, "capture_output": True, "text": True}
        return [float(subprocess.run(command, **options).stdout) for _ in range(repetitions)]


def from_cache() -> float:
    """Seconds to read the inventory."""
    from tofu.verify.inventory.cache import cached_inventory

    begin = time.process_time()
    cached_inventory()
    return time.process_time() - begin


def lines_of(function) -> int:
    """A description's lines of code, without decorator, docstring and blank lines."""
    source = textwrap.dedent(inspect.getsource(function))
    (tree,) = ast.parse(source).body
    body = tree.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    lines = source.splitlines()
    code = lines[tree.lineno - 1 : tree.lineno] + lines[body[0].lineno - 1 : tree.end_lineno]
    return sum(bool(line.strip()) for line in code)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    operator_calls = calls()
    first = list({call[0]: call for call in reversed(operator_calls)}.values())
    once, scratch = from_scratch(first, repetitions), from_scratch(operator_calls, repetitions)
    from_cache()
    cache = [from_cache() for _ in range(repetitions)]
    from tofu.lang import registered

    descriptions = {id(d): d for d in registered().values()}.values()
    lines = [lines_of(d._function) for d in descriptions]
    rows = [
        ("operators described", len(registered())),
        ("descriptions", len(descriptions)),
        ("example calls", len(operator_calls)),
        ("one call of each, median (s)", f"{statistics.median(once):.2f}"),
        ("one call of each, range (s)", f"{min(once):.2f} to {max(once):.2f}"),
        ("all calls, median (s)", f"{statistics.median(scratch):.2f}"),
        ("from the cache, median (ms)", f"{1e3 * statistics.median(cache):.1f}"),
        ("lines of a description, median", statistics.median(lines)),
        ("lines of a description, largest", max(lines)),
    ]
    for name, value in rows:
        print(f"{name:34}{value}")


if __name__ == "__main__":
    main()
