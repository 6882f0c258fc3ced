"""benchmarks/simulation.py runs, and its summary is correct. Timings are not checked."""

import json
from pathlib import Path

import pytest

import tofu.simulate

MACHINE = Path(tofu.simulate.__file__).parent / "machines" / "p3.16xlarge.json"


@pytest.fixture(scope="module")
def simulation(import_script):
    return import_script("simulation")


def test_the_summary_leaves_out_what_was_calibrated(simulation):
    def record(error, calibrated):
        errors = {"step": error, "workers_cpu": -2 * error, "memory": error / 10}
        return {"calibrated": calibrated, "error": errors}

    records = [record(9.0, True), record(0.1, False), record(-0.2, False), record(0.4, False)]
    found = simulation.summary(records)
    assert found["step"] == pytest.approx({"median": 0.2, "worst": 0.4})
    assert found["workers_cpu"] == pytest.approx({"median": 0.4, "worst": 0.8})


@pytest.mark.whole
def test_smoke(run_script, tmp_path):
    output = tmp_path / "results" / "simulation.json"
    options = ["--smoke", "--machine", MACHINE, "--workers", "1", "2", "--steps", "2"]
    printed = run_script("benchmarks/simulation.py", *options, "--output", output)
    document = json.loads(output.read_text(encoding="utf-8"))
    found = [(each["workers"], each["objective"]) for each in document["configurations"]]
    assert found == [(1, "bytes"), (2, "bytes"), (2, "time")]
    for record in document["configurations"]:
        assert record["predicted"].keys() == record["measured"].keys() == record["error"].keys()
        assert all(value > 0 for value in record["predicted"].values())
    assert printed.count("median error") == 3
