"""benchmarks/solver.py runs, and its results are correct. Timings are not checked."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "solver.py"
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
def solver():
    spec = importlib.util.spec_from_file_location("solver", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_share_is_reached_by_the_first_cost_that_is_near_enough(solver):
    costs = [(0.1, None), (0.2, 130), (0.3, 101), (0.4, 100)]
    assert solver.reached(costs, 100, 0.01) == 0.3
    assert solver.reached(costs, 100, 0.005) == 0.4
    assert solver.reached(costs, 90, 0.01) is None
    assert solver.reached(costs, None, 0.01) is None


def test_smoke(tmp_path):
    problem = tmp_path / "small.json"
    problem.write_text(json.dumps(PROBLEM), encoding="utf-8")
    output = tmp_path / "results" / "solver.json"
    command = [sys.executable, str(SCRIPT), "--smoke", "--output", str(output), str(problem)]
    subprocess.run(command, check=True)
    document = json.loads(output.read_text(encoding="utf-8"))
    assert [(r["limited"], r["cost"]) for r in document["files"]] == [(True, 3), (False, 1)]
    assert all(record["status"] == "optimal" for record in document["files"])
    assert [record["seed"] for record in document["random"]] == [1, 2]
