"""benchmarks/recompute.py runs, and its results are correct. Timings are not checked."""

import json

import pytest


@pytest.fixture(scope="module")
def recompute(import_script):
    return import_script("recompute")


def test_ratios_are_paired_with_the_run_that_keeps_all(recompute):
    turns = [{"plain": 0.9, "none": 1.0, "all": 1.2}, {"plain": 2.0, "none": 2.0, "all": 2.8}]
    kinds = {"plain": {}, "none": {"activations": 100}, "all": {"activations": 40}}
    plain, kept, most = recompute.records("bert", kinds, turns)
    assert plain["activations_bytes"] is None
    assert plain["cpu_ratio"] == pytest.approx(0.95)
    assert (kept["run"], kept["activations_bytes"], kept["cpu_ratio"]) == ("none", 100, 1.0)
    assert (most["activations_bytes"], most["cpu_ratio"]) == (40, pytest.approx(1.3))


@pytest.mark.whole
def test_smoke(run_script, tmp_path):
    output = tmp_path / "recompute.json"
    run_script(
        "benchmarks/recompute.py", "--smoke", "--rounds=1", "--networks=bert", "--output", output
    )
    rows = {row["run"]: row for row in json.loads(output.read_text(encoding="utf-8"))["records"]}
    assert rows["all"]["activations_bytes"] < rows["none"]["activations_bytes"]
