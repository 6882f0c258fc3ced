"""Problems of the IOPDDL contest become step problems."""

from __future__ import annotations

import copy
import json
from types import ModuleType
from typing import Any, Callable

import pytest

from tofu import _core
from tofu.errors import PlanError

CONTEST: dict[str, Any] = {
    "nodes": {
        "intervals": [[0, 2], [1, 3]],
        "costs": [[1, 2], [3, 4]],
        "usages": [[5, 6], [7, 8]],
    },
    "edges": {"nodes": [[0, 1], [1, 1]], "costs": [[0, 10, 20, 30], [100, 0, 0, 200]]},
    "usage_limit": 13,
}


@pytest.fixture(scope="module")
def files(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("_problem_files")


def test_a_loop_is_a_cost_of_its_node(files: ModuleType) -> None:
    assert files.to_step_problem(CONTEST) == {
        "format": "tofu-step-problem",
        "version": 2,
        "constant": 0,
        "domains": [2, 2],
        "unary": [[1, 2], [103, 204]],
        "pairs": [[0, 1, [0, 10, 20, 30]]],
        "memory": {"limit": 13, "uses": [[0, 0, 2, [5, 6]], [1, 1, 3, [7, 8]]]},
    }
    assert CONTEST["nodes"]["costs"] == [[1, 2], [3, 4]]


def test_the_solver_reads_it(files: ModuleType) -> None:
    text = files.step_problem_text(json.dumps({"problem": CONTEST}))
    solution = json.loads(_core.solve(text))
    assert solution["values"] == [0, 0] and solution["cost"] == 1 + 103
    unlimited = files.step_problem_text(json.dumps({"problem": {**CONTEST, "usage_limit": None}}))
    assert json.loads(_core.solve(unlimited))["values"] == [0, 0]
    assert files.step_problem_text("[1") == "[1"


@pytest.mark.parametrize(
    ("part", "name", "value", "complaint"),
    [
        ("nodes", "usages", [[5, 6]], "nodes.usages: expected as many"),
        ("nodes", "intervals", [[0], [1, 3]], "expected one of the contest's format"),
        ("edges", "costs", [[0, 1]], "edges.costs: expected as many"),
        ("edges", "costs", [[0, 10, 20, 30], [1]], "expected 4 costs from node 1 to itself"),
        ("edges", "nodes", [[0, 1], [2, 2]], "IndexError"),
        ("edges", "nodes", [[0, 1], [-1, -1]], "from node -1 to itself"),
        ("nodes", "costs", 7, "TypeError"),
    ],
)
def test_what_is_no_problem_is_refused(
    files: ModuleType, part: str, name: str, value: Any, complaint: str
) -> None:
    damaged = copy.deepcopy(CONTEST)
    damaged[part][name] = value
    with pytest.raises(PlanError, match=complaint):
        files.to_step_problem(damaged)
