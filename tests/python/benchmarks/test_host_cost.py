"""benchmarks/host_cost.py runs, and its results are correct. Timings are not checked."""

import json

import pytest


@pytest.fixture(scope="module")
def host_cost(import_script):
    return import_script("host_cost")


def test_ratios_are_paired_and_goals_are_found(host_cost):
    # Rounds of (seconds, CPU seconds): serial, then 8 workers.
    turns = [[(0.1, 1.0), (0.2, 1.4)], [(0.1, 4.0), (0.2, 6.4)], [(0.3, 1.0), (0.2, 1.3)]]
    found = host_cost.records("resnet", [0, 8], turns)
    assert [record["workers"] for record in found] == [0, 8]
    assert [record["cpu_ratio"] for record in found] == pytest.approx([1.0, 1.4])
    assert [record["step_ms"] for record in found] == pytest.approx([100, 200])
    (goal,) = host_cost.goals(found)
    assert goal.met and goal.work == "resnet, 8 workers" and "1.4 times" in goal.measured
    slower = host_cost.records("dense", [0, 2, 8], [[(0.002, 1.0), (0.0091, 1.0), (0.046, 1.0)]])
    assert [goal.met for goal in host_cost.goals(slower)] == [False, True]


@pytest.mark.whole
def test_smoke(run_script, tmp_path):
    output = tmp_path / "results" / "host_cost.json"
    options = ["--smoke", "--networks", "dense", "--workers", "2", "--rounds", "1"]
    printed = run_script("benchmarks/host_cost.py", *options, "--output", output)
    records = json.loads(output.read_text(encoding="utf-8"))["records"]
    assert [record["workers"] for record in records] == [0, 2]
    assert all(record["cpu_ms"] > 0 for record in records)
    assert "dense, 2 workers" in printed
