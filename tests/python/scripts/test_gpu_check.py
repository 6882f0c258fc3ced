"""make gpu-check, on libraries that stand in for CUDA's."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "tests/cpp/kernels/gpu/fake"
SCRIPT = ROOT / "scripts/gpu_check.py"
COMPILER = os.environ.get("CXX", "c++")
ALL = ["values", "kernels", "host", "bandwidths"]

sys.path.insert(0, str(ROOT / "scripts"))
gpu_check = importlib.import_module("gpu_check")
checks = importlib.import_module("_gpu_checks")


def _library(name: str, sources: list[str], folder: Path) -> None:
    command = [COMPILER, "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
    includes = [f"-I{ROOT / 'tests/cpp'}", f"-I{ROOT / 'src'}"]
    paths = [str(FAKE / source) for source in sources]
    subprocess.run([*command, *includes, *paths, "-ldl", "-o", folder / name], check=True)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which CUDA's libraries are the stand-ins."""
    folder = tmp_path_factory.mktemp("cuda")
    driver = ["fake_driver.cc", "fake_measuring.cc", "compiled_kernels.cc"]
    _library("libcuda.so.1", driver, folder)
    _library("libnvrtc.so.11.2", ["fake_nvrtc.cc"], folder)
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_GPUS": "1",
        "FAKE_CXX": COMPILER,
        "FAKE_KERNELS": str(folder),
        "FAKE_INCLUDE": str(ROOT / "tests/cpp"),
    }


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tofu's library, as the script builds it."""
    return gpu_check.build(tmp_path_factory.mktemp("build"))


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    """The loader finds a file that is no library, as if there were no driver."""
    (tmp_path / "libcuda.so.1").write_text("")
    done = run({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu_check: no GPU to check: NVIDIA's driver is not installed")


def test_without_gpus_of_the_driver_it_says_so(stand_in: dict[str, str]) -> None:
    done = run({**stand_in, "FAKE_GPUS": "0"})
    assert (done.returncode, done.stderr) == (
        2,
        "gpu_check: no GPU to check: the driver finds no GPU\n",
    )


def test_without_nvrtc_it_fails(stand_in: dict[str, str], tmp_path: Path) -> None:
    """Tests that are skipped without NVRTC would prove nothing."""
    (tmp_path / "libcuda.so.1").symlink_to(Path(stand_in["LD_LIBRARY_PATH"]) / "libcuda.so.1")
    done = run({**stand_in, "LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.startswith("gpu_check: found no NVRTC, expected libnvrtc.so of CUDA 11.2")


@pytest.mark.whole
def test_all_checks_run_and_say_what_they_found(
    stand_in: dict[str, str], library: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results" / "gpu.json"
    done = run(stand_in, "--smoke", "--library", str(library), "--out", str(out))
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["machine"]["gpus"] == ["stand-in"]
    assert found["machine"]["nvrtc"] == "libnvrtc.so.11.2"
    assert list(found["checks"]) == ALL
    assert all(check["passed"] for check in found["checks"].values())
    assert {r["pattern"] for r in found["checks"]["bandwidths"]["found"]["results"]} == {
        *("whole", "gather", "slice")
    }
    assert found["checks"]["host"]["found"]["fetch_us_16_threads"] > 0


@pytest.mark.whole
def test_a_kernel_that_does_not_run_fails_the_check(
    stand_in: dict[str, str], library: Path, tmp_path: Path
) -> None:
    """The stand-in compiles nothing, so no kernel loads."""
    environment = {**stand_in, "FAKE_CXX": "false", "FAKE_KERNELS": str(tmp_path)}
    done = run(environment, "--smoke", "--library", str(library), "--only", "values")
    assert done.returncode == 1
    assert "values: FAILED: CUDA's driver failed at loading a kernel" in done.stderr
    assert json.loads(done.stdout)["checks"]["values"]["passed"] is False


def _result(pattern: str, copy: float, chain: float, **fields: int) -> dict[str, object]:
    sizes = {"row_bytes": 1024, "region_bytes": 2**28, **fields}
    return {"pattern": pattern, "ratio_to_copy": copy, "ratio_to_chain": chain, **sizes}


@pytest.mark.parametrize(
    ("result", "missed"),
    [
        (_result("whole", 0.9, 0.5), []),
        (_result("whole", 0.89, 2), ["whole, rows of 1024 bytes: 0.89 of a copy, expected 0.9"]),
        (_result("slice", 0.8, 1.1), []),
        (_result("slice", 0.79, 1.1), ["slice, rows of 1024 bytes: 0.79 of a copy, expected 0.8"]),
        (
            _result("gather", 0.9, 1),
            ["gather, rows of 1024 bytes: 1.00 of the chain, expected more than 1"],
        ),
        (_result("gather", 0.1, 0.1, row_bytes=32), []),
        (_result("gather", 0.1, 0.1, region_bytes=2**24), []),
    ],
)  # fmt: skip
def test_bandwidths_are_judged_by_their_goals(result: dict[str, object], missed: list[str]) -> None:
    assert checks.judge(result) == missed


def test_what_does_not_fit_into_the_time_fails() -> None:
    result = gpu_check.run_check(lambda _: {}, None, 0)  # type: ignore[arg-type]
    assert result == {"passed": False, "problem": "not run: the 600 seconds were over"}


def test_memcheck_needs_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(gpu_check.os, "access", lambda *_: False)
    with pytest.raises(checks.FailedError, match="found no compute-sanitizer"):
        gpu_check.memcheck(None, Path("library"))  # type: ignore[arg-type]
