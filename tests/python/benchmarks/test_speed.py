"""benchmarks/speed.py runs, and its results are correct. Timings are not checked."""

import json

import pytest


@pytest.fixture(scope="module")
def speed(import_script):
    return import_script("speed")


def test_ratios_are_medians_of_the_rounds(speed):
    def turn(seconds, cpu_seconds=1.0):
        return speed.Turn(seconds, cpu_seconds, 0.0)

    turns = [
        {"serial_2_threads": turn(two), "serial_1_thread": turn(2.0), "tofu_2_workers": turn(1.0)}
        for two in (0.7, 0.95, 9.0)
    ]
    bound = [
        {"serial_1_thread": turn(9.0, 1.0), "tofu_2_workers": turn(9.0, cpu)}
        for cpu in (1.1, 1.2, 3.0)
    ]
    found = list(speed.ratios(turns, bound).values())
    assert [ratio["median"] for ratio in found] == pytest.approx([0.95, 2.0, 1.2])
    assert [ratio["met"] for ratio in found] == [True, True, False]
    assert found[0]["quartiles"] == pytest.approx([0.7, 9.0])


@pytest.mark.whole
def test_smoke(run_script, tmp_path):
    output = tmp_path / "results" / "speed.json"
    options = ["--smoke", "--models", "rnn", "--rounds", "1", "--steps", "1"]
    printed = run_script("benchmarks/speed.py", *options, "--output", output)
    (record,) = json.loads(output.read_text(encoding="utf-8"))["models"]
    assert record["model"] == "rnn-6-4k" and record["reduced"]
    assert set(record["step_seconds"]) == {"serial_2_threads", "serial_1_thread", "tofu_2_workers"}
    assert all(ratio["median"] > 0 for ratio in record["ratios"].values())
    assert printed.count("goal") == 3
