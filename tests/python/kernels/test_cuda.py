"""MultiFetch's CUDA kernels: compiled if there is a compiler, and run if there is a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tofu import _core, models
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import GraphError, TofuError
from tofu.planner.compile_plan import compile_graph
from tofu.plans.fetch import Fetch

# The emitter's special cases: copies, a fill value, several cells of one form, rows whose
# length is no multiple of a vector, half precision, integers, 64-bit indices.
SPECS = {
    "copy": "dtype=0 shape=8,64 sources=8,32;8,32; pieces=0@0,0>0,0:8,32;1@0,0>0,32:8,32",
    "halo": "dtype=1 shape=2,7,9 sources=2,6,12;2,1,9; "
    "pieces=0@0,0,3>0,0,0:2,6,9;1@0,0,0>0,6,0:2,1,9",
    "fill": "dtype=3 shape=1027 sources=1000; pieces=0@0>0:1000;-@>1000:27 fill=3",
    "half": "dtype=2 shape=6,48 sources=6,64;6,48; "
    "pieces=0@0,16>0,0:6,48#0;1@0,0>0,0:6,40#1;-@>0,40:6,8#1 terms=2 reduce=sum fill=0.5",
    "bfloat": "dtype=12 shape=33 sources=33;33;33; "
    "pieces=0@0>0:33#0;1@0>0:33#1;2@0>0:33#2 terms=3 reduce=prod",
    "whole": "dtype=5 shape=5,16 sources=5,16;5,16; "
    "pieces=0@0,0>0,0:5,16#0;1@0,0>0,0:5,16#1 terms=2 reduce=max",
    "bool": "dtype=7 shape=64 sources=64;64; pieces=0@0>0:64#0;1@0>0:64#1 terms=2 reduce=sum",
    "large": "dtype=6 shape=2,3 sources=70000,4096; pieces=0@69998,4000>0,0:2,3",
}
TYPES = {0: "float32", 1: "float64", 2: "float16", 3: "uint8", 5: "int8", 6: "int64", 7: "bool"}


def kernels() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in SPECS.items():
        yield name, _core.cuda_kernel(spec)
    for name in ("copy", "half", "whole"):
        yield f"{name}_generic", _core.cuda_kernel(SPECS[name], generic=True)


def together() -> str:
    """All kernels as one source, each with its own name."""
    return "".join(
        f"#define tofu_fetch fetch_{name}\nnamespace in_{name} {{\n{kernel['source']}}}\n"
        "#undef tofu_fetch\n"
        for name, kernel in kernels()
    )


def nvrtc_libraries() -> dict[str, str]:
    """The NVRTC libraries of installed packages, and the system's."""
    found = {}
    try:
        spec = importlib.util.find_spec("nvidia")
    except ValueError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*")):
            found[path.name] = str(path)
    for name in ("libnvrtc.so.11.2", "libnvrtc.so.13"):
        if name not in found:
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            found[name] = name
    return found


# --- text ---------------------------------------------------------------------------------


def test_a_kernel_says_how_to_launch_it() -> None:
    kernel = _core.cuda_kernel(SPECS["copy"])
    assert (kernel["name"], kernel["num_sources"], kernel["boxes"]) == ("tofu_fetch", 2, [])
    assert kernel["blocks"] * kernel["threads"] >= 8 * 64 * 4 // 16
    assert kernel == _core.cuda_kernel(SPECS["copy"])
    assert _core.cuda_kernel(SPECS["copy"], generic=True)["boxes"][:4] == [2, 1, 2, 2]


def test_every_fetch_of_a_plan_has_a_kernel_of_its_own() -> None:
    graph = models.build("mlp").training_graph()
    table, _ = strategy_table(graph)
    compiled = compile_graph(
        table, workers=8, fetch=Fetch("multifetch", crossing="plain_tiles"), joint=True
    )
    (joint,) = compiled.step.graphs
    fetches = joint.nodes_of({"_tofu_multifetch"})
    specs = {spec for node in fetches for spec in node.attrs["spec"].split("|")}
    emitted = [_core.cuda_kernel(spec) for spec in specs]
    assert len(emitted) > 10
    assert not any(kernel["boxes"] for kernel in emitted)
    assert any("IsAligned<16>" in kernel["source"] for kernel in emitted)


def test_text_that_is_no_specification() -> None:
    with pytest.raises(GraphError, match="expected key=value"):
        _core.cuda_kernel("nothing")


def test_a_missing_compiler() -> None:
    with pytest.raises(TofuError, match=r"found no /no/libnvrtc.so; MultiFetch on GPUs"):
        _core.compile_cuda("", arch=80, library="/no/libnvrtc.so")


# --- compiling ------------------------------------------------------------------------------


def test_nvcc_compiles_the_kernels(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True)
    known = [int(line.partition("_")[2]) for line in listed.stdout.split()]
    archs = [arch for arch in (min(known), 90) if arch in known]
    source = tmp_path / "kernels.cu"
    source.write_text(together())
    codes = [f"--generate-code=arch=compute_{arch},code=sm_{arch}" for arch in dict.fromkeys(archs)]
    command = [nvcc, "--std=c++14", "--fatbin", *codes, "-Werror=all-warnings", str(source)]
    result = subprocess.run(
        [*command, "-o", str(tmp_path / "kernels.fatbin")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "kernels.fatbin").stat().st_size > 0


@pytest.fixture(params=["libnvrtc.so.11.2", "libnvrtc.so.13"])
def nvrtc(request: pytest.FixtureRequest) -> str:
    libraries = nvrtc_libraries()
    if request.param not in libraries:
        pytest.skip(f"no {request.param}; pip install '.[nvrtc]' brings one of CUDA 11 and of 13")
    return libraries[request.param]


@pytest.mark.parametrize(("arch", "begins"), [(80, b"\x7fELF"), (999, b"//")])
def test_nvrtc_compiles_the_kernels(nvrtc: str, arch: int, begins: bytes) -> None:
    """It compiles to machine code if it knows the device, and to PTX for newer devices."""
    image = _core.compile_cuda(together(), arch=arch, library=nvrtc)
    assert image.lstrip().startswith(begins)
    assert all(f"fetch_{name}".encode() in image for name, _ in kernels())


def test_vectors_are_loaded_and_stored_whole(nvrtc: str) -> None:
    copy = "dtype=2 shape=8,64 sources=8,72;8,64; pieces=0@0,8>0,0:8,64"
    reduced = copy + "#0;1@0,0>0,0:8,64#1 terms=2 reduce=sum"
    for spec in (copy, reduced):
        ptx = _core.compile_cuda(_core.cuda_kernel(spec)["source"], arch=999, library=nvrtc)
        assert b".v4.u32" in ptx.replace(b".v4.b32", b".v4.u32")
        assert ptx.count(b"st.global.v4") == 1


def test_a_kernel_is_compiled_once(nvrtc: str, tmp_path: Path) -> None:
    source = _core.cuda_kernel(SPECS["copy"])["source"]
    first = _core.compile_cuda(source, arch=80, library=nvrtc, folder=str(tmp_path))
    (kept,) = tmp_path.iterdir()
    changed = kept.read_bytes()
    assert changed.endswith(first)
    before = kept.stat().st_ino  # a file that is written again is another one
    again = _core.compile_cuda(source, arch=80, library=nvrtc, folder=str(tmp_path))
    assert again == first and kept.stat().st_ino == before
    _core.compile_cuda(source, arch=86, library=nvrtc, folder=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_what_nvrtc_refuses(nvrtc: str) -> None:
    with pytest.raises(TofuError, match=r"(?s)rejects a kernel of tofu's for sm_80.*undeclared"):
        _core.compile_cuda("const int a = undeclared;", arch=80, library=nvrtc)


def test_a_device_that_is_too_old(nvrtc: str) -> None:
    with pytest.raises(TofuError, match=r"and later, but the device has 20; install an older CUDA"):
        _core.compile_cuda("", arch=20, library=nvrtc)


# --- running --------------------------------------------------------------------------------


class CuPy:
    """Arrays on a GPU, by CuPy."""

    def __init__(self) -> None:
        self.library = pytest.importorskip("cupy", reason="no CuPy")
        if not self.library.cuda.runtime.getDeviceCount():
            pytest.skip("CuPy finds no GPU")

    def put(self, array: np.ndarray) -> Any:
        return self.library.asarray(array)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def get(self, array: Any) -> np.ndarray:
        return self.library.asnumpy(array)


class PyTorch:
    """Arrays on a GPU, by PyTorch."""

    def __init__(self) -> None:
        self.library = pytest.importorskip("torch", reason="no PyTorch")
        if not self.library.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")

    def put(self, array: np.ndarray) -> Any:
        return self.library.from_numpy(array).cuda()

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def get(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()


def expected(name: str, tiles: list[np.ndarray]) -> np.ndarray:
    """The region of a specification, computed with NumPy."""
    if name == "copy":
        return np.concatenate(tiles, 1)
    if name == "halo":
        return np.concatenate([tiles[0][:, :, 3:], tiles[1]], 1)
    if name == "fill":
        return np.concatenate([tiles[0], np.full(27, 3, tiles[0].dtype)])
    if name == "half":
        other = np.full((6, 48), 0.5, "float32")
        other[:, :40] = tiles[1][:, :40]
        return (tiles[0][:, 16:].astype("float32") + other).astype("float16")
    return np.maximum(*tiles) if name == "whole" else np.logical_or(*tiles)


@pytest.mark.gpu
@pytest.mark.parametrize("arrays", [CuPy, PyTorch])
@pytest.mark.parametrize("name", ["copy", "halo", "fill", "half", "whole", "bool"])
def test_a_gpu_fetches_what_numpy_does(arrays: Any, name: str) -> None:
    made = arrays()
    library = ctypes.CDLL(str(Path(_core.__file__).parent / "libtofu_mxnet.so"))
    library.TofuRunMultiFetchOnGpu.restype = ctypes.c_char_p
    fields = dict(field.split("=", 1) for field in SPECS[name].split())
    shapes = [tuple(map(int, text.split(","))) for text in fields["sources"].rstrip(";").split(";")]
    dtype = TYPES[int(fields["dtype"])]
    random = np.random.RandomState(0)
    tiles = [random.randint(0, 9, shape).astype(dtype) for shape in shapes]
    placed = [made.put(tile) for tile in tiles]
    given = [made.address(tile) for tile in placed]
    right = expected(name, tiles)
    region = made.put(np.zeros_like(right))
    problem = library.TofuRunMultiFetchOnGpu(
        SPECS[name].encode(), 0, None, (ctypes.c_void_p * len(given))(*given), len(given),
        ctypes.c_void_p(made.address(region)),
    )  # fmt: skip
    assert problem is None
    np.testing.assert_array_equal(made.get(region), right)
