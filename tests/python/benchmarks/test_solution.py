"""The checker of solutions: its counts, and the solutions that it rejects."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

import pytest

from tofu.errors import PlanError


@pytest.fixture(scope="module")
def checker(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("_solution")


PROBLEM: dict[str, Any] = {
    "format": "tofu-step-problem",
    "version": 2,
    "constant": 1,
    "domains": [2, 3],
    "unary": [[], [5, 0, 10**18]],
    "pairs": [[0, 1, [4, 4, 0, 10**19, 0, 9]]],
    "memory": {
        "limit": 10,
        "uses": [[0, 0, 4, [3, 6]], [1, 2, 5, [1, 8, 7]], [1, 4, 4, [90, 90, 90]]],
    },
}


def test_costs_and_bytes_are_added_up(checker: ModuleType) -> None:
    problem = checker.read_problem(PROBLEM)
    assert checker.count(problem, [0, 0]) == checker.Count(
        cost=10, forbidden=None, peak=4, moment=2
    )
    assert checker.count(problem, [1, 1]) == checker.Count(
        cost=1, forbidden=None, peak=14, moment=2
    )
    assert checker.count(problem, [0, 1]).peak == 11
    assert checker.count(problem, [0, 2]).forbidden == "value 2 of variable 1"
    assert checker.count(problem, [1, 0]).forbidden == "values 1 and 0 of variables 0 and 1"


def test_the_moment_of_a_peak_is_its_first(checker: ModuleType) -> None:
    uses = [[0, 2, 3, [5, 5]], [0, 7, 9, [5, 5]], [1, 4, 5, [4, 4, 4]]]
    found = checker.count(checker.read_problem({**PROBLEM, "memory": {"uses": uses}}), [0, 0])
    assert (found.peak, found.moment) == (5, 2)


def test_version_1_knows_no_memory(checker: ModuleType) -> None:
    old = {**PROBLEM, "version": 1}
    assert checker.read_problem(old).limit is None
    assert checker.count(checker.read_problem(old), [1, 1]).peak == 0


def solution(values: list[int], cost: int, peak: int) -> dict[str, Any]:
    return {"values": values, "cost": cost, "peak_bytes": peak}


def test_a_solution_as_stated_passes(checker: ModuleType) -> None:
    assert checker.check_solution(PROBLEM, solution([0, 0], 10, 4), 10).cost == 10
    assert checker.check_solution(PROBLEM, solution([1, 1], 1, 14), None).peak == 14
    assert checker.check_solution(PROBLEM, solution([1, 1], 1, 14), 14).peak == 14, "just fits"


@pytest.mark.parametrize(
    ("stated", "limit", "complaint"),
    [
        (solution([0, 0], 9, 4), 10, "found cost 9, counted 10"),
        (solution([0, 0], 10, 3), 10, "found peak_bytes 3, counted 4"),
        (solution([1, 1], 1, 14), 13, "found 14 bytes at moment 2, expected at most 13"),
        (solution([1, 0], 10**19, 7), 10, "values 1 and 0 of variables 0 and 1, which are not"),
        (solution([0], 5, 3), 10, "found 1 values, expected 2"),
        (solution([0, 3], 5, 3), 10, "variable 1: found value 3, expected 0 to 2"),
    ],
)
def test_any_other_is_refused(
    checker: ModuleType, stated: dict[str, Any], limit: int, complaint: str
) -> None:
    with pytest.raises(PlanError, match=complaint):
        checker.check_solution(PROBLEM, stated, limit)


def test_another_format_is_refused(checker: ModuleType) -> None:
    with pytest.raises(PlanError, match="found format 'tofu-plan'"):
        checker.read_problem({"format": "tofu-plan"})
