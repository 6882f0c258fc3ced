"""A problem as a weighted constraint satisfaction problem, solved by toulbar2.

    cost, seconds = solve(json.loads(text))

Needs `pip install pytoulbar2`. Shares nothing with the solver except the problem's text
(docs/formats.md, "Step problem").
"""

from __future__ import annotations

import time
from typing import Any, Optional

FORBIDDEN = 10**18


def solve(problem: dict[str, Any], time_limit_s: int = 600) -> tuple[Optional[int], float]:
    """The least cost (None: no choice is allowed and fits), and seconds of processor time.

    Raises:
        ImportError: pytoulbar2 is not installed.
    """
    import pytoulbar2

    domains = problem["domains"]
    tables = [([v], cells) for v, cells in enumerate(problem["unary"]) if cells]
    tables += [([a, b], cells) for a, b, cells in problem["pairs"]]
    top = problem["constant"] + 1
    for _, cells in tables:
        top += max((cell for cell in cells if cell < FORBIDDEN), default=0)
    begin = time.process_time()
    network = pytoulbar2.CFN(top)
    for v, size in enumerate(domains):
        network.AddVariable(f"x{v}", range(size))
    for scope, cells in tables:
        network.AddFunction([f"x{v}" for v in scope], [min(cell, top) for cell in cells])
    _add_memory(network, problem)
    solution = network.Solve(timeLimit=time_limit_s)
    seconds = time.process_time() - begin
    return (None if solution is None else problem["constant"] + round(solution[1])), seconds


def _add_memory(network: Any, problem: dict[str, Any]) -> None:
    memory = problem.get("memory", {"uses": []})
    for moment in sorted({begin for _, begin, end, _ in memory["uses"] if begin < end}):
        terms = [
            (f"x{v}", value, used)
            for v, begin, end, usage in memory["uses"]
            if begin <= moment < end
            for value, used in enumerate(usage)
        ]
        network.AddGeneralizedLinearConstraint(terms, "<=", memory["limit"])
