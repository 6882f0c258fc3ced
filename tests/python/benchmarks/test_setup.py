"""benchmarks/setup.py runs, and its results are correct. Timings are not checked."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "setup.py"


@pytest.fixture(scope="module")
def setup():
    spec = importlib.util.spec_from_file_location("setup_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


@pytest.mark.parametrize(("model", "runs"), [("resnet-50", ["0", "2"]), ("rnn-10-8k", ["2"])])
def test_smoke(model, runs, tmp_path):
    output = tmp_path / "results" / "setup.json"
    command = [SCRIPT, "--smoke", "--models", model, "--workers", "2", "--repeats", "1"]
    ran = subprocess.run(
        [sys.executable, *map(str, command), "--output", str(output)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (record,) = json.loads(output.read_text(encoding="utf-8"))["models"]
    assert record["model"] == model
    assert list(record["runs"]) == runs
    found = record["runs"]["2"]
    assert {"strategy table", "search", "partition", "schedule"} <= set(found["parts"])
    assert all(seconds >= 0 for seconds in found["parts"].values())
    assert sum(found["parts"].values()) == pytest.approx(found["total"], rel=0.2)
    assert "2 workers" in ran.stdout
