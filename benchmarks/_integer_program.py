"""A step of the search as an integer program, solved by HiGHS (through SciPy).

    solution = solve(json.loads(plan.step_problem(step=0)))

It shares nothing with the search except the step's problem (docs/formats.md).
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

# HiGHS stops at an absolute gap of 1e-6, regardless of its relative gap. Costs are scaled to
# at most 1e4, which makes this gap less than 1e-10 of the largest.
_LARGEST_COST = 1e4
# Costs from here up are not allowed.
FORBIDDEN = 10**18
_INFEASIBLE = 2  # status of scipy.optimize.milp


class InfeasibleError(Exception):
    """No choice is allowed and fits."""


@dataclasses.dataclass(frozen=True)
class Solution:
    """The solution of HiGHS.

    Attributes:
        values: the value of each variable.
        cost: the cost of the values, counted in integers.
        seconds: CPU time of HiGHS alone.
    """

    values: list[int]
    cost: int
    seconds: float


def cost_of(problem: dict[str, Any], values: list[int]) -> int:
    """The cost of a choice of values."""
    unary = sum(cells[values[v]] for v, cells in enumerate(problem["unary"]) if cells)
    pairs = sum(
        cells[values[a] * problem["domains"][b] + values[b]] for a, b, cells in problem["pairs"]
    )
    return int(problem["constant"] + unary + pairs)


def solve(problem: dict[str, Any]) -> Solution:
    """Minimise a step's problem by the local polytope with integral variables.

    There is a binary variable for each value of each variable, and one from 0 to 1 for each pair
    of values of a pair of variables; the latter add up to the former along both sides. At each
    moment when a use begins, the bytes used are at most the limit.

    Raises:
        InfeasibleError: no choice is allowed and fits.
        RuntimeError: HiGHS did not prove an optimum.
    """
    costs, matrix, sums, starts = _program(problem)
    integral = np.zeros(len(costs))
    integral[: starts[-1]] = 1
    scale = max(float(costs[costs < FORBIDDEN].max(initial=0.0)), 1.0) / _LARGEST_COST
    constraints = [LinearConstraint(matrix, sums, sums)]
    if "memory" in problem:
        constraints += _memory_rows(problem, starts, len(costs))
    begin = time.process_time()
    result = milp(
        np.where(costs >= FORBIDDEN, 0, costs) / scale,
        constraints=constraints,
        bounds=Bounds(0, np.where(costs >= FORBIDDEN, 0, 1)),
        integrality=integral,
        options={"mip_rel_gap": 0},
    )
    seconds = time.process_time() - begin
    if result.status == _INFEASIBLE:
        raise InfeasibleError
    if result.status != 0:
        raise RuntimeError(f"HiGHS: found {result.message!r}, expected an optimum")
    values = [int(np.argmax(result.x[a:b])) for a, b in zip(starts, starts[1:])]
    return Solution(values, cost_of(problem, values), seconds)


def _program(problem: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Costs, equations and their sums, and where each variable's values start."""
    domains = problem["domains"]
    starts = np.concatenate([[0], np.cumsum(domains)]).astype(int)
    costs = [np.zeros(starts[-1])]
    rows: list[int] = []
    columns: list[int] = []
    signs: list[float] = []
    for v, size in enumerate(domains):
        if problem["unary"][v]:
            costs[0][starts[v] : starts[v + 1]] = problem["unary"][v]
        rows += [v] * size
        columns += range(starts[v], starts[v + 1])
        signs += [1.0] * size
    row, column = len(domains), int(starts[-1])
    for a, b, cells in problem["pairs"]:
        grid = np.arange(column, column + len(cells)).reshape(domains[a], domains[b])
        for v, lines in ((a, grid), (b, grid.T)):
            for x, line in enumerate(lines):
                rows += [row] * (len(line) + 1)
                columns += [*line.tolist(), starts[v] + x]
                signs += [1.0] * len(line) + [-1.0]
                row += 1
        costs.append(np.asarray(cells, float))
        column += len(cells)
    sums = np.zeros(row)
    sums[: len(domains)] = 1
    matrix = sparse.csr_matrix((signs, (rows, columns)), shape=(row, column))
    return np.concatenate(costs), matrix, sums, starts


def _memory_rows(problem: dict[str, Any], starts: Any, columns: int) -> list[Any]:
    """For each moment when a use begins, the bytes of all uses then alive."""
    memory = problem["memory"]
    moments = sorted({begin for _, begin, end, _ in memory["uses"] if begin < end})
    rows, places, bytes_used = [], [], []
    for row, moment in enumerate(moments):
        for v, begin, end, usage in memory["uses"]:
            if begin <= moment < end:
                rows += [row] * len(usage)
                places += range(starts[v], starts[v] + len(usage))
                bytes_used += usage
    if not moments:
        return []
    matrix = sparse.csr_matrix((bytes_used, (rows, places)), shape=(len(moments), columns))
    return [LinearConstraint(matrix, -np.inf, memory["limit"])]
