"""Recounts the cost and memory of a solution from the problem's text.

    problem = read_problem(json.load(open("problem.json")))
    count(problem, solution["values"])  # Count(cost=532843, peak=14161040, ...)

Reads step problems (docs/formats.md) and those of the contest (_problem_files.py). Shares no code
with the solver, nor with the conversion of the contest's problems for it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from tofu.errors import PlanError

__all__ = ["FORBIDDEN", "Count", "Problem", "check_solution", "count", "read_problem"]

FORBIDDEN = 10**18


@dataclasses.dataclass(frozen=True)
class Problem:
    """Costs and memory uses of the variables' values.

    Attributes:
        constant: the part of the cost that does not depend on the choice.
        domains: number of values of each variable.
        unary: costs of each variable's values; an empty list stands for zeros.
        pairs: two variables and the costs of their pairs of values, row by row.
        uses: a variable, its first moment, the moment after its last, the bytes of each value.
        limit: bytes at any moment, or None.
    """

    constant: int
    domains: Sequence[int]
    unary: Sequence[Sequence[int]]
    pairs: Iterable[tuple[int, int, Sequence[int]]]
    uses: Iterable[tuple[int, int, int, Sequence[int]]]
    limit: Optional[int]


@dataclasses.dataclass(frozen=True)
class Count:
    """The cost of a choice, and the most bytes it uses at any moment.

    Attributes:
        cost: sum of all costs.
        forbidden: the first cost of the sum that is not allowed, in words, or None.
        peak: most bytes at any moment.
        moment: the first moment of the peak.
    """

    cost: int
    forbidden: Optional[str]
    peak: int
    moment: int


def read_problem(document: Mapping[str, Any]) -> Problem:
    """The problem of a parsed text. Raises PlanError for another format."""
    if "problem" in document:
        return _contest(document["problem"])
    if document.get("format") != "tofu-step-problem":
        format_name = document.get("format")
        raise PlanError(
            f'problem: found format {format_name!r}, expected "tofu-step-problem" or a contest\'s '
            '"problem"; see docs/formats.md'
        )
    memory = document.get("memory", {}) if document["version"] >= 2 else {}
    return Problem(
        document["constant"],
        document["domains"],
        document["unary"],
        document["pairs"],
        memory.get("uses", ()),
        memory.get("limit"),
    )


def _contest(problem: Mapping[str, Any]) -> Problem:
    nodes, edges = problem["nodes"], problem["edges"]
    pairs = [(a, b, cells) for (a, b), cells in zip(edges["nodes"], edges["costs"])]
    uses = [
        (v, begin, end, usage)
        for v, ((begin, end), usage) in enumerate(zip(nodes["intervals"], nodes["usages"]))
    ]
    domains = [len(costs) for costs in nodes["costs"]]
    return Problem(0, domains, nodes["costs"], pairs, uses, problem["usage_limit"])


def count(problem: Problem, values: Sequence[int]) -> Count:
    """Add up the cost and memory of a choice.

    Raises:
        PlanError: there is not one value for each variable, or one is not of its domain.
    """
    _check_values(problem, values)
    cost = problem.constant
    forbidden = None
    for name, cell in _cells(problem, values):
        if cell >= FORBIDDEN and forbidden is None:
            forbidden = name
        cost += cell
    change: dict[int, int] = defaultdict(int)
    for v, begin, end, usage in problem.uses:
        if begin < end:
            change[begin] += usage[values[v]]
            change[end] -= usage[values[v]]
    moments = sorted(change)
    loads = itertools.accumulate(change[moment] for moment in moments)
    peak, moment = max(zip(loads, moments), key=lambda pair: (pair[0], -pair[1]), default=(0, 0))
    return Count(cost, forbidden, peak, moment)


def _check_values(problem: Problem, values: Sequence[int]) -> None:
    if len(values) != len(problem.domains):
        raise PlanError(
            f"solution: found {len(values)} values, expected {len(problem.domains)}, one for "
            "each variable"
        )
    for v, (value, domain) in enumerate(zip(values, problem.domains)):
        if not 0 <= value < domain:
            raise PlanError(
                f"solution: variable {v}: found value {value}, expected 0 to {domain - 1}"
            )


def _cells(problem: Problem, values: Sequence[int]) -> Iterable[tuple[str, int]]:
    for v, costs in enumerate(problem.unary):
        if costs:
            yield f"value {values[v]} of variable {v}", costs[values[v]]
    for a, b, cells in problem.pairs:
        name = f"values {values[a]} and {values[b]} of variables {a} and {b}"
        yield name, cells[values[a] * problem.domains[b] + values[b]]


def check_solution(
    document: Mapping[str, Any], solution: Mapping[str, Any], limit: Optional[int]
) -> Count:
    """Recount a solution, and compare the result with the cost and the peak that it states.

    Args:
        document: the problem.
        solution: the document that solve.py writes.
        limit: bytes that the choice may use at any moment; None: no limit.

    Raises:
        PlanError: the solution is not allowed, exceeds the limit, or states another cost or
            peak than the problem's text says.
    """
    counted = count(read_problem(document), solution["values"])
    if counted.forbidden is not None:
        raise PlanError(f"solution: found {counted.forbidden}, which are not allowed together")
    if limit is not None and counted.peak > limit:
        raise PlanError(
            f"solution: found {counted.peak} bytes at moment {counted.moment}, expected at "
            f"most {limit}"
        )
    for name, counted_value in (("cost", counted.cost), ("peak_bytes", counted.peak)):
        if solution[name] != counted_value:
            raise PlanError(f"solution: found {name} {solution[name]}, counted {counted_value}")
    return counted
