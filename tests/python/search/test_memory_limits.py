"""Problems with memory limits: the solver, its checker and an integer program agree."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Optional

import pytest

from tofu import _core
from tofu.errors import PlanError

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = 10**18
NUM_PROBLEMS = 200


@pytest.fixture(scope="module")
def highs(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("_integer_program")


@pytest.fixture(scope="module")
def problems(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("_random_problems")


@pytest.fixture(scope="module", autouse=True)
def _benchmarks_can_be_imported(import_script: Callable[[str], ModuleType]) -> None:
    """Let tests import the readers and the checker of benchmarks/."""


def solve(problem: dict[str, Any], **options: Any) -> dict[str, Any]:
    from _problem_files import step_problem_text
    from _solution import check_solution

    text = step_problem_text(json.dumps(problem))
    solution = json.loads(_core.solve(text, **options))
    if solution["values"] is not None:
        check_solution(problem, solution, solution["limit"])
    return solution


def test_random_problems_cost_what_an_integer_program_finds(
    highs: ModuleType, problems: ModuleType, full: bool
) -> None:
    """Problems of 50 to 500 variables; one of twenty unless with --full."""
    statuses = []
    for seed in range(1, NUM_PROBLEMS + 1) if full else range(11, NUM_PROBLEMS, 20):
        problem = problems.random_problem(seed)
        best: Optional[int]
        try:
            best = highs.solve(problem).cost
        except highs.InfeasibleError:
            best = None
        solution = solve(problem, time_limit_s=300)
        assert solution["cost"] == best, f"seed {seed}"
        assert solution["status"] == ("infeasible" if best is None else "optimal"), f"seed {seed}"
        statuses.append(solution["status"])
    assert 1 < statuses.count("optimal") < len(statuses)


def contest(problem: dict[str, Any]) -> dict[str, Any]:
    """The problem in the contest's format, which gives every variable one use."""
    domains = problem["domains"]
    memory = problem["memory"]
    assert [use[0] for use in memory["uses"]] == list(range(len(domains)))
    return {
        "problem": {
            "name": "made",
            "nodes": {
                "costs": [cells or [0] * n for cells, n in zip(problem["unary"], domains)],
                "usages": [use[3] for use in memory["uses"]],
                "intervals": [use[1:3] for use in memory["uses"]],
            },
            "edges": {
                "nodes": [pair[:2] for pair in problem["pairs"]],
                "costs": [pair[2] for pair in problem["pairs"]],
            },
            "usage_limit": memory["limit"],
        }
    }


def with_memory(problems: ModuleType, seeds: range) -> list[dict[str, Any]]:
    found = [problems.random_problem(seed) for seed in seeds]
    return [problem for problem in found if "memory" in problem]


def test_both_formats_say_the_same(problems: ModuleType) -> None:
    for problem in with_memory(problems, range(300, 306)):
        own, other = solve(problem), solve(contest(problem))
        if own["cost"] is not None:
            other["cost"] += problem["constant"]
        assert own["cost"] == other["cost"]
        assert own["values"] == other["values"]


def test_one_thread_or_two_find_the_same(problems: ModuleType) -> None:
    branched = 0
    for seed in (2, 5, 12, 13, 17, 26):
        problem = problems.random_problem(seed)
        one, two = (solve(problem, threads=threads) for threads in (1, 2))
        branched += one["nodes"] > 8
        for solution in (one, two):
            del solution["cpu_seconds"]
        assert one == two, f"seed {seed}"
    assert branched > 2


SMALL = {
    "format": "tofu-step-problem",
    "version": 2,
    "constant": 1,
    "domains": [2, 3],
    "unary": [[], [5, 0, 2]],
    "pairs": [[0, 1, [4, 4, 0, 1, 0, 9]]],
    "memory": {"limit": 10, "uses": [[0, 0, 4, [3, 6]], [1, 2, 5, [1, 8, 7]]]},
}


def test_the_limit_decides() -> None:
    assert solve(SMALL)["values"] == [0, 2]
    assert solve(SMALL, limit=14)["values"] == [1, 1]
    assert solve(SMALL, limit=-1)["values"] == [1, 1]
    assert solve(SMALL, limit=9)["values"] == [1, 0]
    assert solve(SMALL, limit=6)["values"] == [0, 0]
    assert solve(SMALL)["limit"] == 10 and solve(SMALL, limit=-1)["limit"] is None


def test_where_nothing_fits_the_least_limit_is_named() -> None:
    solution = solve(SMALL, limit=3)
    assert solution["status"] == "infeasible" and solution["values"] is None
    assert solution["cost"] is None
    assert solution["least_limit"] == {
        "bytes": 4,
        "bound": 4,
        "moment": 2,
        "needs": [[0, 3], [1, 1]],
    }


def test_where_no_limit_would_do_none_is_named() -> None:
    problem = {**SMALL, "unary": [[], [FORBIDDEN] * 3]}
    solution = solve(problem, limit=3)
    assert solution["status"] == "infeasible" and solution["least_limit"] is None


def test_costs_are_safe_at_the_edge_of_what_is_allowed() -> None:
    huge = FORBIDDEN // 2 + 1
    problem = {**SMALL, "constant": 0, "unary": [[], [huge, huge - 3, FORBIDDEN * 40]]}
    problem["pairs"] = [[0, 1, [huge, huge, 0, 7, huge - 4, 0]]]
    del problem["memory"]
    solution = solve(problem)
    assert solution["status"] == "optimal"
    assert solution["cost"] == huge + 7 and solution["values"] == [1, 0]


def test_progress_is_told_and_ends_the_search(problems: ModuleType) -> None:
    problem = problems.random_problem(13)  # the first bounds leave a gap
    heard: list[tuple[Optional[int], int]] = []
    solution = solve(problem, on_progress=lambda cost, bound: heard.append((cost, bound)))
    costs = [cost for cost, _ in heard if cost is not None]
    bounds = [bound for _, bound in heard]
    assert costs == sorted(costs, reverse=True) and costs[-1] == solution["cost"]
    assert bounds == sorted(bounds) and bounds[-1] <= solution["cost"]
    assert bounds[-1] <= solution["bound"]
    assert all(cost is None or bound <= cost for cost, bound in heard)

    def stop(cost: Optional[int], bound: int) -> bool:
        return cost is None

    assert solution["nodes"] > 20
    stopped = solve(problem, on_progress=stop)
    assert stopped["status"] == "feasible" and stopped["nodes"] < solution["nodes"]
    assert heard[0][1] <= stopped["bound"] < stopped["cost"]

    def fail(cost: Optional[int], bound: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _core.solve(json.dumps(problem), on_progress=fail)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "tofu-plan"}, 'expected "tofu-step-problem"'),
        ({"version": 3}, "an integer from 1 to 2"),
        ({"domains": [2, 0]}, r"domains\[1\]"),
        ({"unary": [[]]}, "expected an array of 2, one a variable"),
        ({"unary": [[], [5, 0]]}, r"unary\[1\].*expected an array of 3"),
        ({"unary": [[], [5, 0, 1.5]]}, r"unary\[1\]\[2\].*an integer from 0 up"),
        ({"pairs": [[1, 1, [0] * 9]]}, "expected another variable than the pair's first"),
        ({"pairs": [[0, 1, [1, 2]]]}, "expected an array of 6"),
        ({"pairs": [[0, 1, [4, 4, 0, 1, 0, -9]]]}, r"pairs\[0\]\[2\]\[5\]"),
        ({"memory": {"limit": -1, "uses": []}}, r"memory\.limit"),
        ({"memory": {"limit": 1, "uses": [[2, 0, 1, [1, 1]]]}}, r"memory\.uses\[0\]\[0\]"),
        ({"memory": {"limit": 1, "uses": [[0, 0, 1, [1]]]}}, r"memory\.uses\[0\]\[3\]"),
        ({"memory": {"limit": 1, "uses": [[0, 0, [1, 1]]]}}, "a variable, a begin, an end"),
        (
            {"memory": {"limit": 1, "uses": [[0, 0, 1, [2**61, 0]], [0, 3, 4, [2**61, 0]]]}},
            r"memory\.uses\[1\].*less than 2\^62",
        ),
    ],
)
def test_a_damaged_problem_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        _core.solve(json.dumps({**SMALL, **change}))


def test_a_damaged_problem_of_the_contest_is_refused(problems: ModuleType) -> None:
    whole = contest(with_memory(problems, range(300, 306))[0])
    for part, key, value, complaint in (
        ("nodes", "usages", [], r"nodes\.usages.*as many as nodes\.costs"),
        ("nodes", "intervals", [], r"nodes\.intervals.*as many as nodes\.costs"),
        ("edges", "costs", [], r"edges\.costs.*as many as edges\.nodes"),
    ):
        damaged = json.loads(json.dumps(whole))
        damaged["problem"][part][key] = value
        with pytest.raises(PlanError, match=complaint):
            solve(damaged)


def test_the_solution_of_random_values_is_counted_as_it_is(problems: ModuleType) -> None:
    """Compares the checker with a count moment by moment, on values that are not optimised."""
    from _solution import count, read_problem

    rng = random.Random(5)
    for problem in with_memory(problems, range(500, 510)):
        values = [rng.randrange(size) for size in problem["domains"]]
        counted = count(read_problem(problem), values)
        assert counted == count(read_problem(contest(problem)), values) or problem["constant"]
        loads = [
            sum(u[values[v]] for v, begin, end, u in problem["memory"]["uses"] if begin <= t < end)
            for t in range(600)
        ]
        assert counted.peak == max(loads) and counted.moment == loads.index(max(loads))
