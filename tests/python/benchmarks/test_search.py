"""benchmarks/search.py runs, and its results are correct. Timings are not checked."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "search.py"


@pytest.fixture(scope="module")
def search():
    spec = importlib.util.spec_from_file_location("search", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_exponent_is_that_of_the_power(search):
    records = [{"nodes": n, "median_seconds": 3e-6 * n**1.25} for n in (1000, 4000, 90000)]
    assert search.exponent(records) == pytest.approx(1.25)


@pytest.mark.parametrize("depth", [20, 50, 152, 2000])
def test_residual_networks_have_the_depth_they_are_named_after(search, depth):
    blocks = search.resnet(depth).full.options["blocks"]
    assert len(blocks) == 4 and min(blocks) >= 1
    assert 3 * sum(blocks) + 2 == depth
    if depth == 152:
        assert blocks == (3, 8, 36, 3)


def test_smoke(tmp_path):
    output = tmp_path / "results" / "search.json"
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "--smoke", "--repeats", "1", "--output", str(output)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(output.read_text(encoding="utf-8"))
    assert {"machine", "cores", "python", "mxnet", "scipy", "commit", "load_before"} <= set(found)
    assert [record["model"] for record in found["plans"]] == ["wresnet-152-10", "rnn-10-8k"]
    assert all(plan["peak_bytes"] > 0 and plan["median_seconds"] > 0 for plan in found["plans"])
    assert len(found["steps"]) == 6 and all(step["ratio"] > 0 for step in found["steps"])
    for growth in found["growth"].values():
        first, second = growth["points"]
        assert first["nodes"] < second["nodes"] and first["workers"] == 8
