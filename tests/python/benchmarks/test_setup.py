"""benchmarks/setup.py runs, and its results are correct. Timings are not checked."""

import json

import pytest


@pytest.fixture(scope="module")
def setup(import_script):
    return import_script("setup")


def test_calls_inside_calls_of_a_part_count_once(setup):
    clock = setup.Clock()
    inner = clock.timed("part", lambda: 1)
    outer = clock.timed("part", lambda: inner() + 1)
    assert outer() == 2
    once = clock.parts["part"]
    assert inner() == 1
    assert clock.parts["part"] > once


def test_errors_come_through_and_are_timed(setup):
    clock = setup.Clock()
    with pytest.raises(KeyError):
        clock.timed("part", {}.__getitem__)("absent")
    assert clock.parts["part"] > 0


@pytest.mark.whole
@pytest.mark.parametrize(("model", "runs"), [("resnet-50", ["0", "2"]), ("rnn-10-8k", ["2"])])
def test_smoke(model, runs, run_script, tmp_path):
    output = tmp_path / "results" / "setup.json"
    options = ["--smoke", "--models", model, "--workers", "2", "--repeats", "1"]
    printed = run_script("benchmarks/setup.py", *options, "--output", output)
    (record,) = json.loads(output.read_text(encoding="utf-8"))["models"]
    assert record["model"] == model
    assert list(record["runs"]) == runs
    found = record["runs"]["2"]
    assert {"strategy table", "search", "partition", "schedule"} <= set(found["parts"])
    assert all(seconds >= 0 for seconds in found["parts"].values())
    assert sum(found["parts"].values()) == pytest.approx(found["total"], rel=0.2)
    assert "2 workers" in printed
