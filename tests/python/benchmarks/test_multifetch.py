"""benchmarks/multifetch.py runs, or says why it cannot. Timings are not checked."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tofu import _core

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(FOLDER / "multifetch.py"), "--smoke", *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture
def gpu(import_script):
    return import_script("_gpu")


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("arguments", [[], ["--cold"]], ids=["warm", "cold"])
def test_the_cpu_part_measures_every_pattern(arguments):
    ran = run("--format", "json", *arguments)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)["results"]
    assert {result["pattern"] for result in results} >= {"gather", "slice"}
    for name in ("multifetch", "numpy", "memcpy"):
        assert all(result[f"{name}_gb_per_s"] > 0 for result in results)
    assert {result["is_cold"] for result in results} == {bool(arguments)}


def test_the_gpu_part_measures_or_says_that_there_is_none():
    ran = run("--gpu")
    if ran.returncode == 0:
        assert "| gather | 1,024 KiB |" in ran.stdout
    else:
        assert "benchmarks/multifetch.py --gpu: nothing measured: " in ran.stderr
        assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("pattern", ["gather", "slice"])
def test_what_is_fetched_and_copied_is_the_same(gpu, pattern):
    case = gpu.GpuCase(pattern, 256, 2**20)
    kernel = _core.cuda_kernel(case.spec())
    assert "IsAligned<16>" in kernel["source"]
    assert case.rows.count * case.rows.bytes * case.tiles == case.region_bytes
    assert kernel["num_sources"] == case.tiles
    # The layout in CUDA's headers: two sides of 56 bytes, and the size of the copy.
    assert ctypes.sizeof(gpu._Copy2D) == 2 * 56 + 16
    assert gpu._Copy2D.to_device.offset == 56 + 32
