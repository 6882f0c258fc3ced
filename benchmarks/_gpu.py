"""MultiFetch on GPUs compared with copies by CUDA's driver; multifetch.py --gpu starts it.

The tiles are on a second GPU if there is one that the first can read, else on the first.
Every round times four ways in turn, with CUDA events:

``multifetch``  one kernel, which reads the tiles in place,
``copy``        one contiguous copy of the same number of bytes from the tiles' GPU,
``strided``     a two-dimensional copy per tile, straight to its destination,
``chain``       the same with stock operators: slice each tile on its owner, copy the
                slice, and concatenate the slices.
"""

from __future__ import annotations

import ctypes
import dataclasses
import statistics
from typing import Any, Callable

PATTERNS = ("gather", "slice")
ROWS = (32, 256, 1024, 4096)  # bytes
SIZES = (2**20, 2**24, 2**28)  # bytes of a region
_UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: an address of any device
_WARM_UP = 3


class NoGpuError(Exception):
    """There is no GPU to measure; the text says why."""


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D: `height` rows of `width` bytes."""

    _fields_ = (
        [
            (f"{side}_{name}", kind)
            for side in ("from", "to")
            for name, kind in (
                ("x", ctypes.c_size_t),
                ("y", ctypes.c_size_t),
                ("type", ctypes.c_uint),
                ("host", ctypes.c_void_p),
                ("device", ctypes.c_uint64),
                ("array", ctypes.c_void_p),
                ("pitch", ctypes.c_size_t),
            )
        ]
        + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]
    )  # fmt: skip


class Driver:
    """The functions of CUDA's driver that this module needs."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpuError(f"NVIDIA's driver is not installed ({error})") from error
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.devices = count.value
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise NoGpuError with CUDA's error number if it fails."""
        result = getattr(self._library, name)(*arguments)
        if result:
            raise NoGpuError(f"{name} failed with CUDA's error {result}")

    def describe(self) -> dict[str, object]:
        """The devices and the driver, on which the numbers depend."""
        version, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        names = []
        for device in range(self.devices):
            self.call("cuDeviceGetName", name, len(name), device)
            names.append(name.value.decode())
        return {"gpus": names, "cuda_driver": version.value}

    def use(self, device: int) -> None:
        """Make a device's primary context the current one."""
        if device not in self._contexts:
            self._contexts[device] = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._contexts[device]), device)
        self.call("cuCtxSetCurrent", self._contexts[device])

    def allocate(self, device: int, size: int) -> int:
        """Zeroed memory on a device."""
        self.use(device)
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return address.value

    def free(self, device: int, address: int) -> None:
        """Free memory."""
        self.use(device)
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to a device."""
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def free_bytes(self) -> int:
        """The memory that is left on the device in use."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def stream(self) -> ctypes.c_void_p:
        """A new stream of the device in use."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 0)
        return stream

    def reaches(self, reader: int, owner: int) -> bool:
        """Whether kernels on one device can read the memory of another."""
        can = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(can), reader, owner)
        return bool(can.value)

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes, between any two devices, in the default stream."""
        self.call(
            "cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size),
            None,
        )  # fmt: skip

    def copy_rows(self, to: int, pitch: int, source: int, from_pitch: int, rows: Rows) -> None:
        """Copy rows that are `from_pitch` bytes apart to rows that are `pitch` apart."""
        copy = _Copy2D(
            from_type=_UNIFIED, from_device=source, from_pitch=from_pitch,
            to_type=_UNIFIED, to_device=to, to_pitch=pitch, width=rows.bytes, height=rows.count,
        )  # fmt: skip
        self.call("cuMemcpy2DAsync_v2", ctypes.byref(copy), None)

    def seconds(self, run: Callable[[], None], calls: int) -> float:
        """Seconds per call, of `calls` calls between two events of the default stream."""
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in events:
            self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuEventRecord", events[0], None)
        for _ in range(calls):
            run()
        self.call("cuEventRecord", events[1], None)
        self.call("cuEventSynchronize", events[1])
        elapsed = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(elapsed), *events)
        for event in events:
            self.call("cuEventDestroy_v2", event)
        return elapsed.value / 1e3 / calls


@dataclasses.dataclass(frozen=True)
class Rows:
    """A number of rows of a number of bytes."""

    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class GpuCase:
    """A pattern of multifetch.py on GPUs, with float32 tiles."""

    pattern: str
    row_bytes: int
    region_bytes: int

    @property
    def tiles(self) -> int:
        """Number of tiles: two adjacent ones, or one, of which "slice" reads half of every row."""
        return 2 if self.pattern == "gather" else 1

    @property
    def rows(self) -> Rows:
        """The part of one tile that is read."""
        return Rows(self.region_bytes // (self.tiles * self.row_bytes), self.row_bytes)

    @property
    def tile_pitch(self) -> int:
        """Bytes from row to row of a tile."""
        return self.row_bytes * (2 if self.pattern == "slice" else 1)

    @property
    def region_pitch(self) -> int:
        """Bytes from row to row of the region."""
        return self.row_bytes * self.tiles

    def spec(self) -> str:
        """The specification, with all tiles given by their addresses."""
        count, width, wide = self.rows.count, self.row_bytes // 4, self.tile_pitch // 4
        pieces = ";".join(f"{t}@0,0>0,{t * width}:{count},{width}" for t in range(self.tiles))
        sources = f"{count},{wide};" * self.tiles
        return f"dtype=0 shape={count},{self.tiles * width} sources={sources} pieces={pieces}"


def place(driver: Driver) -> tuple[int, int]:
    """The reader's device, 0, and the owner's."""
    if not driver.devices:
        raise NoGpuError("the driver finds no GPU")
    others = [device for device in range(1, driver.devices) if driver.reaches(0, device)]
    return 0, others[0] if others else 0


def measure(
    case: GpuCase, driver: Driver, library: ctypes.CDLL, repetitions: int
) -> dict[str, object]:
    """Medians of all four ways, in GB/s of the region's bytes."""
    reader, owner = place(driver)
    rows, text = case.rows, case.spec().encode()
    size = rows.count * case.tile_pitch
    tiles = [driver.allocate(owner, size) for _ in range(case.tiles)]
    slices = [driver.allocate(owner, rows.count * rows.bytes) for _ in tiles]
    copies = [driver.allocate(reader, rows.count * rows.bytes) for _ in tiles]
    flat = driver.allocate(owner, case.region_bytes)
    region = driver.allocate(reader, case.region_bytes)
    pointers = (ctypes.c_void_p * len(tiles))(*tiles)
    library.TofuConnectGpus.restype = ctypes.c_char_p
    problem = library.TofuConnectGpus((ctypes.c_int * 2)(reader, owner), 2, bytes(4))
    if problem:
        raise NoGpuError(problem.decode())

    def multifetch() -> None:
        problem = library.TofuRunMultiFetchOnGpu(
            text, reader, None, pointers, len(tiles), ctypes.c_void_p(region)
        )
        if problem:
            raise NoGpuError(problem.decode())

    def strided() -> None:
        for number, tile in enumerate(tiles):
            to = region + number * rows.bytes
            driver.copy_rows(to, case.region_pitch, tile, case.tile_pitch, rows)

    def chain() -> None:
        for tile, part, copy in zip(tiles, slices, copies):
            driver.copy_rows(part, rows.bytes, tile, case.tile_pitch, rows)
            driver.copy(copy, part, rows.count * rows.bytes)
        for number, copy in enumerate(copies):
            to = region + number * rows.bytes
            driver.copy_rows(to, case.region_pitch, copy, rows.bytes, rows)

    ways = {
        "multifetch": multifetch,
        "copy": lambda: driver.copy(region, flat, case.region_bytes),
        "strided": strided,
        "chain": chain,
    }
    driver.use(reader)
    times = _times(driver, ways, max(1, 2**28 // case.region_bytes), repetitions)
    for device, arrays in ((owner, [*tiles, *slices, flat]), (reader, [*copies, region])):
        for address in arrays:
            driver.free(device, address)
    medians = {way: case.region_bytes / statistics.median(found) for way, found in times.items()}
    return {
        **dataclasses.asdict(case),
        "reader": reader,
        "owner": owner,
        **{f"{way}_gb_per_s": median / 1e9 for way, median in medians.items()},
        "ratio_to_copy": medians["multifetch"] / medians["copy"],
        "ratio_to_chain": medians["multifetch"] / medians["chain"],
    }


def _times(
    driver: Driver, ways: dict[str, Callable[[], None]], calls: int, repetitions: int
) -> dict[str, list[float]]:
    for run in ways.values():
        driver.seconds(run, _WARM_UP)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repetitions):
        for way, run in ways.items():
            times[way].append(driver.seconds(run, calls))
    return times


def table(results: list[dict[str, Any]]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| pattern | region | row | owner | MultiFetch GB/s | copy | strided | chain "
        "| to copy | to chain |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {r['pattern']} | {r['region_bytes'] // 1024:,} KiB | {r['row_bytes']} B "
        f"| GPU {r['owner']} | {r['multifetch_gb_per_s']:.1f} | {r['copy_gb_per_s']:.1f} "
        f"| {r['strided_gb_per_s']:.1f} | {r['chain_gb_per_s']:.1f} "
        f"| {r['ratio_to_copy']:.2f} | {r['ratio_to_chain']:.2f} |"
        for r in results
    ]
    return "\n".join(lines)
