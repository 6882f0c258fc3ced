"""Every step of the recursion, compared with an integer program that HiGHS solves."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Callable

import pytest

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import PlanError
from tofu.models import build

# One model of each kind.
REDUCED = (
    "wresnet-50-4",
    "rnn-6-4k",
    "alexnet",
    "vgg-16",
    "mlp",
    "densenet-121",
    "transformer",
    "gpt-24",
)


@pytest.fixture(scope="module")
def highs(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("_integer_program")


def check(highs: ModuleType, graph: str, workers: int, steps: int) -> None:
    """Check that the plan's steps, and a new search of each, cost exactly what HiGHS finds."""
    table, _ = strategy_table(graph)
    plan = _core.plan(table, workers=workers, mode="recursion")
    found = [step["bytes"] for step in json.loads(plan.to_json())["steps"]]
    assert len(found) == steps
    for step in range(steps):
        text = plan.step_problem(step=step)
        problem = json.loads(text)
        best = highs.solve(problem).cost
        assert best == sum(found[: step + 1]), f"step {step}"
        solved = json.loads(_core.solve(text))
        assert solved["status"] == "optimal" and solved["cost"] == best
        assert highs.cost_of(problem, solved["values"]) == best


@pytest.mark.parametrize("name", REDUCED)
def test_steps_of_a_reduced_model_are_optimal(name: str, highs: ModuleType) -> None:
    check(highs, build(name, batch_size=48, reduced=True).training_graph(), 12, 3)


@pytest.mark.whole(but=1)
@pytest.mark.parametrize(
    "name", ["rnn-10-8k", pytest.param("wresnet-152-10", marks=pytest.mark.slow)]
)
def test_steps_of_the_papers_largest_models_are_optimal(name: str, highs: ModuleType) -> None:
    check(highs, build(name).training_graph(), 8, 3)


def test_costs_of_a_problem_without_pairs_or_with_one(highs: ModuleType) -> None:
    alone = {"constant": 7, "domains": [2, 3], "unary": [[3, 1], []], "pairs": []}
    assert highs.solve(alone).cost == 8
    joined = {**alone, "pairs": [[0, 1, [4, 4, 0, 9, 9, 5]]]}
    solution = highs.solve(joined)
    assert solution.cost == 10 and solution.values == [0, 2]


def test_a_step_that_the_plan_lacks_is_refused() -> None:
    graph = build("mlp", reduced=True).training_graph()
    table, _ = strategy_table(graph)
    plan = _core.plan(table, workers=4)
    with pytest.raises(PlanError, match="found step 2, expected 0 to 1"):
        plan.step_problem(step=2)
