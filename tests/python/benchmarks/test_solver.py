"""benchmarks/solver.py runs, and its results are correct. Timings are not checked."""

import json

import pytest

PROBLEM = {
    "format": "tofu-step-problem",
    "version": 2,
    "constant": 1,
    "domains": [2, 3],
    "unary": [[], [5, 0, 2]],
    "pairs": [[0, 1, [4, 4, 0, 1, 0, 9]]],
    "memory": {"limit": 10, "uses": [[0, 0, 4, [3, 6]], [1, 2, 5, [1, 8, 7]]]},
}


@pytest.fixture(scope="module")
def solver(import_script):
    return import_script("solver")


def test_a_share_is_reached_by_the_first_cost_that_is_near_enough(solver):
    costs = [(0.1, None), (0.2, 130), (0.3, 101), (0.4, 100)]
    assert solver.reached(costs, 100, 0.01) == 0.3
    assert solver.reached(costs, 100, 0.005) == 0.4
    assert solver.reached(costs, 90, 0.01) is None
    assert solver.reached(costs, None, 0.01) is None


def test_a_goal_is_met_by_what_is_proven_and_quick(solver):
    small = {"file": "b", "limited": False, "variables": 816, "status": "optimal", "threads": 2}
    large = {**small, "file": "a", "limited": True, "variables": 34932, "median_seconds": 70.0}
    rows = solver.goals(
        [
            {**small, "median_seconds": 1.0},
            {**small, "median_seconds": 1.1},
            {**small, "median_seconds": 0.5, "status": "feasible"},
            {**large, "within": {"0.01": 30.0, "0.005": 60.0}},
            {**large, "within": {"0.01": 31.0, "0.005": 31.0}},
            {**large, "within": {"0.01": 9.0, "0.005": None}},
        ]
    )
    assert [row.met for row in rows] == [True, False, False, True, False, False]
    assert rows[0].work == "b, without a limit" and rows[0].measured == "proven after 1.00 s"
    assert rows[3].work == "a, with its limit, 2 threads"
    assert rows[3].goal == "1.0% in 30 s, 0.5% in 60 s"
    assert rows[5].measured == "1.0% after 9.00 s, 0.5% never, proven after 70.00 s"


def test_the_median_of_times_some_of_which_are_unknown_is_unknown(solver):
    assert solver.median_or_none([3.0, 1.0, 2.0]) == 2.0
    assert solver.median_or_none([3.0, None, 2.0]) is None


def test_smoke(run_script, tmp_path):
    problem = tmp_path / "small.json"
    problem.write_text(json.dumps(PROBLEM), encoding="utf-8")
    output = tmp_path / "results" / "solver.json"
    printed = run_script("benchmarks/solver.py", "--smoke", "--output", output, problem)
    document = json.loads(output.read_text(encoding="utf-8"))
    assert [(r["limited"], r["cost"]) for r in document["files"]] == [(True, 3), (False, 1)]
    assert all(record["status"] == "optimal" for record in document["files"])
    assert all(record["variables"] == 2 for record in document["files"])
    assert "| small.json, with its limit | proven after" in printed
    assert [row["work"] for row in document["goals"]] == [
        "small.json, with its limit",
        "small.json, without a limit",
    ]
    assert [record["seed"] for record in document["random"]] == [1, 2]
