"""MultiFetch on the CPU compared with memcpy of the same bytes.

    python benchmarks/multifetch.py                  # a table
    python benchmarks/multifetch.py --format json    # the same with machine and versions
    python benchmarks/multifetch.py --cold           # on arrays that are not in the core's caches
    python benchmarks/multifetch.py --smoke          # a few seconds, to check that it runs
    python benchmarks/multifetch.py --gpu            # on GPUs, compared with the driver's copies

Patterns: ``gather`` joins two adjacent tiles, so each row of a tile becomes part of a row of the
region; ``slice`` takes half of every row of one tile. Every measurement
alternates memcpy and MultiFetch; NumPy then copies the same boxes. Medians are compared.
Calls reuse their arrays, so arrays of up to 1 MiB stay in the core's caches; with ``--cold``
every call uses other arrays, as when a worker reads a tensor that another wrote.
One thread; expected time: under a minute. _gpu.py describes the comparison of ``--gpu``.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import itertools
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Callable

import numpy as np

GOALS = {32: 0.6, 256: 0.9, 1024: 0.9, 4096: 0.9}  # share of memcpy's bandwidth, by row bytes
ROWS = (32, 64, 128, 256, 1024, 4096)
FLOAT_BYTES = 4
COLD_BYTES = 2**27  # of arrays used in turn: far more than a core's own caches hold


@dataclasses.dataclass(frozen=True)
class Case:
    """One pattern: rows of `row_bytes`, `region_bytes` in all."""

    pattern: str
    row_bytes: int
    region_bytes: int

    def spec_and_sources(self) -> tuple[str, list[tuple[int, int]], tuple[int, int]]:
        """The specification, the sources' shapes and the region's."""
        row = self.row_bytes // FLOAT_BYTES
        if self.pattern == "gather":
            rows = self.region_bytes // (2 * self.row_bytes)
            sources, region = [(rows, row)] * 2, (rows, 2 * row)
            pieces = f"0@0,0>0,0:{rows},{row};1@0,0>0,{row}:{rows},{row}"
        else:
            rows = self.region_bytes // self.row_bytes
            sources, region = [(rows, 2 * row)], (rows, row)
            pieces = f"0@0,0>0,0:{rows},{row}"
        listed = "".join(f"{n},{width};" for n, width in sources)
        shape = f"{region[0]},{region[1]}"
        return f"dtype=0 shape={shape} sources={listed} pieces={pieces}", sources, region


def library() -> ctypes.CDLL:
    """Tofu's extension library; running a fetch does not need MXNet."""
    import importlib.util

    spec = importlib.util.find_spec("tofu._core")
    if spec is None or spec.origin is None:
        raise SystemExit("benchmarks/multifetch.py: tofu is not installed; run make build")
    loaded = ctypes.CDLL(str(Path(spec.origin).parent / "libtofu_mxnet.so"))
    loaded.TofuRunMultiFetch.restype = ctypes.c_char_p
    return loaded


def aligned(shape: tuple[int, int]) -> np.ndarray:
    """Random floats aligned to 64 bytes, like MXNet's arrays."""
    count = shape[0] * shape[1]
    raw = np.empty(count + 64 // FLOAT_BYTES, "float32")
    begin = -raw.ctypes.data % 64 // FLOAT_BYTES
    array = raw[begin : begin + count].reshape(shape)
    array[:] = np.random.rand(*shape)
    return array


def seconds(run: Callable[[], object], calls: int) -> float:
    """CPU seconds per call, of `calls` calls; other programs do not count."""
    begin = time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - begin) / calls


class Arrays:
    """The arrays that one call of each candidate reads and writes."""

    def __init__(self, case: Case, loaded: ctypes.CDLL) -> None:
        spec, shapes, shape = case.spec_and_sources()
        self.sources = [aligned(source) for source in shapes]
        self.region, self.flat, self.same = aligned(shape), aligned(shape), aligned(shape)
        self._fetch, self._spec = loaded.TofuRunMultiFetch, spec.encode()
        self._from = (ctypes.c_void_p * len(shapes))(*(a.ctypes.data for a in self.sources))
        self._to = ctypes.c_void_p(self.region.ctypes.data)
        self._copy = (self.flat.ctypes.data, self.same.ctypes.data, self.region.nbytes)
        width = shape[1] // len(shapes)
        self._boxes = [
            (self.region[:, i * width : (i + 1) * width], source[:, :width])
            for i, source in enumerate(self.sources)
        ]

    def fetch(self) -> None:
        """Copy the boxes with MultiFetch."""
        problem = self._fetch(self._spec, self._from, self._to)
        if problem:
            raise SystemExit(problem.decode())

    def copy(self) -> None:
        """Copy the same number of contiguous bytes with memcpy."""
        ctypes.memmove(*self._copy)

    def rows(self) -> None:
        """Copy the boxes with NumPy, row by row."""
        for to, source in self._boxes:
            np.copyto(to, source)

    def are_right(self) -> bool:
        """Whether `fetch` writes the correct values."""
        self.rows()
        expected = self.region.copy()
        self.region[:] = 0
        self.fetch()
        return np.array_equal(self.region, expected)


def measure(case: Case, loaded: ctypes.CDLL, repetitions: int, is_cold: bool) -> dict[str, object]:
    """Medians of all, and MultiFetch's bandwidth as a share of memcpy's."""
    first = Arrays(case, loaded)
    if not first.are_right():
        raise SystemExit(f"{case}: MultiFetch's values are wrong")
    arrays = [*first.sources, first.region, first.flat, first.same]
    one = sum(array.nbytes for array in arrays)
    count = max(1, COLD_BYTES // one) if is_cold else 1
    turns = itertools.cycle([first, *(Arrays(case, loaded) for _ in range(count - 1))])
    calls = max(1, int(2**26 // first.region.nbytes))
    kinds: dict[str, Callable[[], None]] = {
        "memcpy": lambda: next(turns).copy(),
        "multifetch": lambda: next(turns).fetch(),
        "numpy": lambda: next(turns).rows(),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    # NumPy goes last: it leaves data in shared caches that would slow the next memcpy down.
    for together in (("memcpy", "multifetch"), ("numpy",)):
        for _ in range(repetitions):
            for kind in together:
                times[kind].append(seconds(kinds[kind], calls))
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    rates = {f"{kind}_gb_per_s": first.region.nbytes / t / 1e9 for kind, t in medians.items()}
    spread = {f"{k}_spread": (max(v) - min(v)) / medians[k] for k, v in times.items()}
    pairs = zip(times["memcpy"], times["multifetch"])
    return {
        **dataclasses.asdict(case),
        "is_cold": is_cold,
        **rates,
        "ratio": statistics.median(copy / fetch for copy, fetch in pairs),
        **spread,
        "goal": GOALS.get(case.row_bytes),
    }


def machine() -> dict[str, str]:
    """The machine and versions, on which the numbers depend."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "processor": names[0].partition(":")[2].strip() if names else platform.processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def measure_gpu(args: argparse.Namespace) -> None:
    """Measure on GPUs and print, or say that there is none."""
    import _gpu  # next to this file

    sizes = _gpu.SIZES[:1] if args.smoke else _gpu.SIZES
    repetitions = 2 if args.smoke else args.repetitions
    cases = [_gpu.GpuCase(p, row, n) for p in _gpu.PATTERNS for n in sizes for row in _gpu.ROWS]
    loaded = library()
    loaded.TofuRunMultiFetchOnGpu.restype = ctypes.c_char_p
    try:
        driver = _gpu.Driver()
        results = [_gpu.measure(case, driver, loaded, repetitions) for case in cases]
    except _gpu.NoGpuError as error:
        raise SystemExit(f"benchmarks/multifetch.py --gpu: nothing measured: {error}") from error
    if args.format == "json":
        print(json.dumps({"machine": {**machine(), **driver.describe()}, "results": results}))
    else:
        print(driver.describe())
        print(_gpu.table(results))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--smoke", action="store_true", help="one small size, two repetitions")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--cold", action="store_true", help="use other arrays in every call")
    parser.add_argument("--gpu", action="store_true", help="measure on GPUs")
    args = parser.parse_args()
    if args.gpu:
        return measure_gpu(args)
    sizes = (2**16,) if args.smoke else (2**16, 2**20, 2**25)
    repetitions = 2 if args.smoke else args.repetitions
    cases = [Case(p, row, size) for p in ("gather", "slice") for size in sizes for row in ROWS]
    loaded = library()
    results = [measure(case, loaded, repetitions, args.cold) for case in cases]
    if args.format == "json":
        print(json.dumps({"machine": machine(), "results": results}))
        return
    print("| pattern | region | row | MultiFetch GB/s | NumPy GB/s | memcpy GB/s | ratio | goal |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for r in results:
        print(
            f"| {r['pattern']} | {r['region_bytes'] // 1024:,} KiB | {r['row_bytes']} B "
            f"| {r['multifetch_gb_per_s']:.1f} | {r['numpy_gb_per_s']:.1f} "
            f"| {r['memcpy_gb_per_s']:.1f} "
            f"| {r['ratio']:.2f} | {r['goal'] or ''} |"
        )


if __name__ == "__main__":
    main()
