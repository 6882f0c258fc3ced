"""benchmarks/simulation.py runs, and its summary is correct. Timings are not checked."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tofu.simulate

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "simulation.py"
MACHINE = Path(tofu.simulate.__file__).parent / "machines" / "p3.16xlarge.json"


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("simulation", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    del sys.modules[spec.name], sys.modules["_training"]


def test_the_summary_leaves_out_what_was_calibrated(simulation):
    def record(error, calibrated):
        errors = {"step": error, "workers_cpu": -2 * error, "memory": error / 10}
        return {"calibrated": calibrated, "error": errors}

    records = [record(9.0, True), record(0.1, False), record(-0.2, False), record(0.4, False)]
    found = simulation.summary(records)
    assert found["step"] == pytest.approx({"median": 0.2, "worst": 0.4})
    assert found["workers_cpu"] == pytest.approx({"median": 0.4, "worst": 0.8})


def test_smoke(tmp_path):
    output = tmp_path / "results" / "simulation.json"
    command = [SCRIPT, "--smoke", "--machine", MACHINE, "--workers", "1", "2", "--steps", "2"]
    ran = subprocess.run(
        [sys.executable, *map(str, command), "--output", str(output)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    document = json.loads(output.read_text(encoding="utf-8"))
    found = [(each["workers"], each["objective"]) for each in document["configurations"]]
    assert found == [(1, "bytes"), (2, "bytes"), (2, "time")]
    for record in document["configurations"]:
        assert record["predicted"].keys() == record["measured"].keys() == record["error"].keys()
        assert all(value > 0 for value in record["predicted"].values())
    assert ran.stdout.count("median error") == 3
