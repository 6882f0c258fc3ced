"""Checks MultiFetch's kernels on this machine's GPU, without MXNet (make gpu-check).

    python scripts/gpu_check.py --out results.json

Needs NVIDIA's driver, NVRTC (the CUDA toolkit has it), a C++17 compiler and Python. Builds
tofu's extension library, and runs in at most ten minutes:

    values         every kind of kernel reads the same values as the CPU
    memcheck       this check under compute-sanitizer
    wide           regions of more than 2^31 elements and 4 GiB
    kernels        the time and memory that compiling and loading takes
    host           the time of launches, small copies and memsets
    bandwidths     compared with a copy (goals: 0.9 contiguous, 0.8 strided) and with slice,
                   copy and concatenation (goal: faster)

Writes the results, with the machine, as JSON. Exit status 0: all passed; 1: something failed,
or could not run; 2: there is no GPU.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import _gpu_checks as checks
from _gpu_checks import FailedError, Machine, _gpu

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600
# Folders in which to look for a CUDA toolkit's NVRTC if the loader does not find it.
TOOLKITS = ("$CUDA_HOME/lib64", "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64")
MEMCHECK = ("values",)


def build(folder: Path) -> Path:
    """Compile tofu's extension library, which needs no part of MXNet."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    folder.mkdir(parents=True, exist_ok=True)
    patterns = ("fetch/*.cc", "kernels/*.cc", "mxnet/multifetch*.cc")
    sources = [source for pattern in patterns for source in (ROOT / "src").glob(pattern)]
    options = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'src'}"]

    def compile_one(source: Path) -> str:
        target = str(folder / f"{source.stem}.o")
        subprocess.run([compiler, *options, "-c", str(source), "-o", target], check=True)
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sorted(sources)))
    library = folder / "libtofu_check.so"
    subprocess.run([compiler, "-shared", *objects, "-ldl", "-lpthread", "-o", library], check=True)
    return library


def find_nvrtc() -> Optional[str]:
    """Load NVRTC, by the loader's path or from a toolkit; return its name."""
    names = ["libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"]
    for pattern in TOOLKITS:
        names += sorted(glob.glob(os.path.expandvars(pattern) + "/libnvrtc.so.*"), reverse=True)
    for name in names:
        try:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return name
    return None


def memcheck(_: Machine, library: Path) -> dict[str, Any]:
    """Run the check of values in a process under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        raise FailedError("found no compute-sanitizer, expected it in the CUDA toolkit")
    command = [tool, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, __file__,
               "--library", str(library), "--only", *MEMCHECK]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if ran.returncode != 0:
        raise FailedError((ran.stdout + ran.stderr)[-2000:])
    return {}


def all_checks(library: Path, *, smoke: bool) -> dict[str, Callable[[Machine], dict[str, Any]]]:
    """The checks in the order in which they run, the most valuable first."""
    by_name: dict[str, Callable[[Machine], dict[str, Any]]] = {
        "values": checks.values,
        "memcheck": lambda machine: memcheck(machine, library),
        "wide": checks.wide,
        "kernels": checks.kernels,
        "host": checks.host,
        "bandwidths": checks.bandwidths,
    }
    if smoke:
        del by_name["memcheck"], by_name["wide"]
        by_name["kernels"] = lambda machine: checks.kernels(machine, 2)
        by_name["host"] = lambda machine: checks.host(machine, 2)
        by_name["bandwidths"] = lambda machine: checks.bandwidths(machine, (2**14,), 1)
    return by_name


def run_check(
    check: Callable[[Machine], dict[str, Any]], machine: Machine, left_s: float
) -> dict[str, Any]:
    """One result: whether the check passed, its figures, its time."""
    if left_s <= 0:
        return {"passed": False, "problem": f"not run: the {LIMIT_S} seconds were over"}
    begin = time.monotonic()
    result: dict[str, Any] = {"passed": True}
    try:
        result["found"] = check(machine)
    except (FailedError, _gpu.NoGpuError, subprocess.TimeoutExpired) as error:
        result = {"passed": False, "problem": str(error.args[0])}
        if len(error.args) > 1 and isinstance(error.args[1], dict):
            result["found"] = error.args[1]
    result["seconds"] = round(time.monotonic() - begin, 3)
    return result


def describe(driver: _gpu.Driver, nvrtc: str) -> dict[str, object]:
    """The machine, on which the figures depend."""
    return {
        **driver.describe(),
        "nvrtc": nvrtc,
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def parse(arguments: Optional[list[str]]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="where to write the results; otherwise printed")
    parser.add_argument("--build", type=Path, default=ROOT / "build/gpu_check")
    parser.add_argument("--library", type=Path, help="tofu's library, built before")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="run only these checks")
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see that it runs")
    return parser.parse_args(arguments)


def main(arguments: Optional[list[str]] = None) -> int:
    """Run the checks; return the exit status."""
    begin = time.monotonic()
    args = parse(arguments)
    try:
        driver = _gpu.Driver()
        if not driver.devices:
            raise _gpu.NoGpuError("the driver finds no GPU")
        driver.use(0)
    except _gpu.NoGpuError as error:
        print(f"gpu_check: no GPU to check: {error}", file=sys.stderr)
        return 2
    nvrtc = find_nvrtc()
    if nvrtc is None:
        print(
            "gpu_check: found no NVRTC, expected libnvrtc.so of CUDA 11.2 or later; install "
            "the CUDA toolkit, or put its folder on LD_LIBRARY_PATH",
            file=sys.stderr,
        )
        return 1
    library = args.library or build(args.build)
    machine = Machine(driver, ctypes.CDLL(str(library)))
    results = {}
    for name, check in all_checks(library, smoke=args.smoke).items():
        if args.only and name not in args.only:
            continue
        results[name] = run_check(check, machine, begin + LIMIT_S - time.monotonic())
        verdict = "passed" if results[name]["passed"] else f"FAILED: {results[name]['problem']}"
        print(f"{name}: {verdict}", file=sys.stderr)
    text = json.dumps({"machine": describe(driver, nvrtc), "checks": results}, indent=1)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0 if all(result["passed"] for result in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
