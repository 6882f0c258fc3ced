"""The checks of gpu_check.py: each takes a machine and returns figures, or raises FailedError."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import _gpu

# By MXNet's type flag: how struct packs an element; bfloat16 is the upper half of a float.
FORMATS = {0: "f", 1: "d", 2: "e", 3: "B", 4: "i", 5: "b", 6: "q", 7: "?"}
BFLOAT16 = 12
# The emitter's special cases. The last case has more kinds of boxes than a kernel of its own takes.
_MANY = [(i, i * (i - 1) // 2) for i in range(1, 26)]
SPECS = {
    "copy": "dtype=0 shape=8,64 sources=8,32;8,32; pieces=0@0,0>0,0:8,32;1@0,0>0,32:8,32",
    "halo": "dtype=1 shape=2,7,9 sources=2,6,12;2,1,9; "
    "pieces=0@0,0,3>0,0,0:2,6,9;1@0,0,0>0,6,0:2,1,9",
    "fill": "dtype=3 shape=1027 sources=1000; pieces=0@0>0:1000;-@>1000:27 fill=3",
    "long": "dtype=0 shape=1027 sources=1027; pieces=0@0>0:1027",
    "rows": "dtype=0 shape=3000,3 sources=3000,7; pieces=0@0,2>0,0:3000,3",
    "half": "dtype=2 shape=6,48 sources=6,64;6,48; "
    "pieces=0@0,16>0,0:6,48#0;1@0,0>0,0:6,40#1;-@>0,40:6,8#1 terms=2 reduce=sum fill=0.5",
    "bfloat": "dtype=12 shape=33 sources=33;33;33; "
    "pieces=0@0>0:33#0;1@0>0:33#1;2@0>0:33#2 terms=3 reduce=prod",
    "maximum": "dtype=5 shape=5,16 sources=5,16;5,16; "
    "pieces=0@0,0>0,0:5,16#0;1@0,0>0,0:5,16#1 terms=2 reduce=max",
    "minimum": "dtype=1 shape=5,7 sources=5,7;5,7; "
    "pieces=0@0,0>0,0:5,7#0;1@0,0>0,0:5,7#1 terms=2 reduce=min",
    "boolean": "dtype=7 shape=64 sources=64;64; pieces=0@0>0:64#0;1@0>0:64#1 terms=2 reduce=sum",
    "integers": "dtype=6 shape=4,4 sources=4,4;4,4; "
    "pieces=0@0,0>0,0:4,4#0;1@0,0>0,0:4,4#1 terms=2 reduce=sum",
    "far": "dtype=6 shape=2,3 sources=70000,4096; pieces=0@69998,4000>0,0:2,3",
    "generic": "dtype=0 shape=325 sources=325; pieces="
    + ";".join(f"0@{at}>{at}:{size}" for size, at in _MANY),
}
_LARGEST = 2**26  # bytes of a source that `values` fills; of larger ones it fills the end
WIDE_BYTES = 5 * 10**9
_BLOCK = 2**20
_ALIGNED = 256
_WAITS = 2000
_THREADS = 16


class FailedError(Exception):
    """A check found an error, which the text names."""


class Machine:
    """A GPU, and tofu's library."""

    def __init__(self, driver: _gpu.Driver, library: ctypes.CDLL) -> None:
        self.driver, self.library = driver, library
        for name in ("TofuRunMultiFetch", "TofuRunMultiFetchOnGpu"):
            getattr(library, name).restype = ctypes.c_char_p

    def put(self, data: bytes, shift: int = 0, size: int = 0) -> int:
        """The address of a copy of `data`, `shift` bytes after an aligned one, on the GPU."""
        address = self.driver.allocate(0, max(size, len(data)) + shift + _ALIGNED) + shift
        if data:
            self.driver.write(address, data)
        return address

    def get(self, address: int, size: int) -> bytes:
        """`size` bytes of the GPU's memory, after all work there."""
        self.driver.call("cuStreamSynchronize", None)
        data = ctypes.create_string_buffer(max(size, 1))
        source = ctypes.c_uint64(address)
        self.driver.call("cuMemcpyDtoH_v2", data, source, ctypes.c_size_t(size))
        return data.raw[:size]

    def fetch(self, spec: str, sources: list[int], region: int, stream: Any = None) -> None:
        """Run a kernel."""
        pointers = (ctypes.c_void_p * max(1, len(sources)))(*sources)
        problem = self.library.TofuRunMultiFetchOnGpu(
            spec.encode(), 0, stream, pointers, len(sources), ctypes.c_void_p(region)
        )
        if problem:
            raise FailedError(problem.decode())


class Spec:
    """The fields of a specification that the checks need."""

    def __init__(self, text: str) -> None:
        fields = dict(field.split("=", 1) for field in text.split())
        self.text, self.dtype = text, int(fields["dtype"])
        self.element = 2 if self.dtype == BFLOAT16 else struct.calcsize(FORMATS[self.dtype])
        self.sources = [self._bytes(s) for s in fields["sources"].rstrip(";").split(";")]
        self.region = self._bytes(fields["shape"])

    def _bytes(self, shape: str) -> int:
        count = self.element
        for extent in filter(None, shape.split(",")):
            count *= int(extent)
        return count

    def random(self, size: int, rng: random.Random) -> bytes:
        """`size` bytes of small whole numbers."""
        numbers = [rng.randrange(9) for _ in range(size // self.element)]
        if self.dtype == BFLOAT16:
            return b"".join(struct.pack("<f", number)[2:] for number in numbers)
        if self.dtype == 7:
            numbers = [number % 2 for number in numbers]
        return struct.pack(f"={len(numbers)}{FORMATS[self.dtype]}", *numbers)


def values(machine: Machine) -> dict[str, Any]:
    """Check that every kind of kernel reads the same values as the CPU, at two alignments."""
    rng = random.Random(5)
    for name, text in SPECS.items():
        spec = Spec(text)
        for shift in (0, spec.element):
            _compare(machine, name, spec, shift, rng)
    return {"kernels": len(SPECS)}


def _compare(machine: Machine, name: str, spec: Spec, shift: int, rng: random.Random) -> None:
    tails = [min(size, _LARGEST // 64) for size in spec.sources]
    data = [spec.random(tail, rng) for tail in tails]
    tiles, hosts = [], []
    for size, tail, content in zip(spec.sources, tails, data):
        tile = machine.put(b"", shift, size)
        machine.driver.write(tile + size - tail, content)
        tiles.append(tile)
        host = ctypes.create_string_buffer(size)
        ctypes.memmove(ctypes.addressof(host) + size - tail, content, tail)
        hosts.append(host)
    expected = ctypes.create_string_buffer(spec.region)
    pointers = (ctypes.c_void_p * max(1, len(hosts)))(*map(ctypes.addressof, hosts))
    machine.library.TofuRunMultiFetch(spec.text.encode(), pointers, expected)
    region = machine.put(bytes(spec.region), shift)
    machine.fetch(spec.text, tiles, region)
    if machine.get(region, spec.region) != expected.raw:
        raise FailedError(f"{name}, {shift} bytes after an aligned address: wrong values")
    for address in (*tiles, region):
        machine.driver.free(0, address - shift)


def wide(machine: Machine) -> dict[str, Any]:
    """Check regions of more than 2^31 elements and 4 GiB, contiguous and strided."""
    rng = random.Random(7)
    width = 2**16
    rows = WIDE_BYTES // width
    specs = {
        "contiguous": (f"shape={rows * width} sources={rows * width}; "
                       f"pieces=0@0>0:{rows * width}", width, 0),
        "strided": (f"shape={rows},{width} sources={rows},{width + 16}; "
                    f"pieces=0@0,16>0,0:{rows},{width}", width + 16, 16),
    }  # fmt: skip
    for name, (spec, pitch, skipped) in specs.items():
        tile = machine.driver.allocate(0, rows * pitch + _ALIGNED)
        region = machine.driver.allocate(0, rows * width + _ALIGNED)
        places = [0, 2**31 // width - 1, 2**32 // width - 1, 2**32 // width, rows - 1]
        data = {row: rng.randbytes(width) for row in places}
        for row, content in data.items():
            machine.driver.write(tile + row * pitch + skipped, content)
        machine.fetch(f"dtype=3 {spec}", [tile], region)
        for row, content in data.items():
            if machine.get(region + row * width, width) != content:
                raise FailedError(f"{name}: wrong bytes from number {row * width:,} on")
        for address in (tile, region):
            machine.driver.free(0, address)
    return {"bytes": rows * width}


def kernels(machine: Machine, count: int = 64) -> dict[str, Any]:
    """Measure kernels: seconds to compile and load, first and later launches, memory."""
    region, tile = (machine.driver.allocate(0, _BLOCK) for _ in range(2))
    before = machine.driver.free_bytes()
    first, later = [], []
    for number in range(count):
        width = 16 + number
        spec = f"dtype=0 shape=8,{width} sources=8,256; pieces=0@0,{number}>0,0:8,{width}"
        for seconds in (first, later):
            begin = time.perf_counter()
            machine.fetch(spec, [tile], region)
            machine.driver.call("cuStreamSynchronize", None)
            seconds.append(time.perf_counter() - begin)
    return {
        "kernels": count,
        "first_launch_s": sorted(first)[count // 2],
        "later_launch_s": sorted(later)[count // 2],
        "bytes_per_kernel": (before - machine.driver.free_bytes()) / count,
    }


def host(machine: Machine, waits: int = _WAITS) -> dict[str, Any]:
    """Measure the host's calls in microseconds, on one thread and on several with own streams."""
    driver = machine.driver
    tile, region = (driver.allocate(0, _BLOCK) for _ in range(2))
    spec = "dtype=0 shape=16 sources=16; pieces=0@0>0:16"

    def copy(stream: Any) -> None:
        driver.call("cuMemcpyAsync", ctypes.c_uint64(region), ctypes.c_uint64(tile),
                    ctypes.c_size_t(8), stream)  # fmt: skip

    def clear(stream: Any) -> None:
        driver.call("cuMemsetD8Async", ctypes.c_uint64(region), ctypes.c_ubyte(0),
                    ctypes.c_size_t(8), stream)  # fmt: skip

    calls: dict[str, Callable[[Any], None]] = {
        "fetch": lambda stream: machine.fetch(spec, [tile], region, stream),
        "copy_of_8_bytes": copy,
        "memset_of_8_bytes": clear,
    }
    return {
        f"{name}_us_{threads}_threads": _microseconds(driver, call, threads, waits)
        for name, call in calls.items()
        for threads in (1, _THREADS)
    }


def _microseconds(
    driver: _gpu.Driver, call: Callable[[Any], None], threads: int, waits: int
) -> float:
    """Measure one call and the wait for its stream, on each of so many threads at once."""
    seconds = []

    def work() -> None:
        driver.use(0)
        stream = driver.stream()
        for rounds in (10, waits):
            begin = time.perf_counter()
            for _ in range(rounds):
                call(stream)
                driver.call("cuStreamSynchronize", stream)
        seconds.append((time.perf_counter() - begin) / waits)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if len(seconds) < threads:
        raise FailedError("a thread failed")
    return 1e6 * max(seconds)


def _cases(sizes: tuple[int, ...]) -> Iterator[_gpu.GpuCase]:
    for size in sizes:
        yield _gpu.GpuCase("whole", 4096, size)
        for pattern in _gpu.PATTERNS:
            for row in _gpu.ROWS:
                yield _gpu.GpuCase(pattern, row, size)


def bandwidths(
    machine: Machine, sizes: tuple[int, ...] = (2**24, 2**28), repetitions: int = 9
) -> dict[str, Any]:
    """Compare MultiFetch with a copy within the device, and with slice, copy and concatenation."""
    results = [
        _gpu.measure(case, machine.driver, machine.library, repetitions) for case in _cases(sizes)
    ]
    missed = [text for result in results for text in judge(result)]
    if missed:
        raise FailedError("; ".join(missed), {"results": results})
    return {"results": results}


# Shares of a copy's bandwidth. Rows of less than a sector of memory waste part of it.
GOALS = {"whole": 0.9, "gather": 0.8, "slice": 0.8}
GOAL_ROW_BYTES, GOAL_REGION_BYTES = 256, 2**28


def judge(result: dict[str, Any]) -> list[str]:
    """The goals that a measurement misses; small regions and short rows have none."""
    if result["region_bytes"] < GOAL_REGION_BYTES or result["row_bytes"] < GOAL_ROW_BYTES:
        return []
    where = f"{result['pattern']}, rows of {result['row_bytes']} bytes"
    goal, missed = GOALS[result["pattern"]], []
    if result["ratio_to_copy"] < goal:
        missed.append(f"{where}: {result['ratio_to_copy']:.2f} of a copy, expected {goal}")
    if result["pattern"] != "whole" and result["ratio_to_chain"] <= 1:
        missed.append(f"{where}: {result['ratio_to_chain']:.2f} of the chain, expected more than 1")
    return missed
