"""Builds libraries that stand in for CUDA's, so MXNet's wheel for GPUs runs without one.

python build_libraries.py LIBMXNET FOLDER

The driver, the runtime, NVRTC and a part of cuDNN are the sources in
tests/cpp/kernels/gpu/fake. Every other function that LIBMXNET needs of a CUDA library does
nothing and returns 0, CUDA's success.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests/cpp/kernels/gpu/fake"
# Library -> prefixes of its functions' names, and the sources that stand in for some of them.
LIBRARIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "libcudart.so.11.0": (("cuda", "__cuda"), ("fake_runtime.cc",)),
    "libcuda.so.1": (("cu",), ("fake_driver.cc", "fake_measuring.cc", "compiled_kernels.cc")),
    "libnvrtc.so.11.2": (("nvrtc",), ("fake_nvrtc.cc",)),
    "libcudnn.so.8": (("cudnn",), ("fake_cudnn.cc",)),
    "libcublas.so.11": (("cublas",), ()),
    "libcusolver.so.11": (("cusolver",), ()),
    "libcufft.so.10": (("cufft",), ()),
    "libcurand.so.10": (("curand",), ()),
    "libnccl.so.2": (("nccl",), ()),
    "libnvToolsExt.so.1": (("nvtx",), ()),
}
OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-Wall", "-fvisibility=hidden")


def main() -> None:
    libmxnet, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    needed = needed_functions(symbols(libmxnet, "--undefined-only"))
    for library in LIBRARIES:
        build(library, needed[library], folder)


def symbols(path: Path, kind: str) -> list[str]:
    """The dynamic symbols of a library, each as NAME or NAME@VERSION."""
    command = ["nm", "--dynamic", "--format=posix", kind, str(path)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines()]


def needed_functions(undefined: Iterable[str]) -> dict[str, list[str]]:
    """Library -> the functions that are to be defined there."""
    found: dict[str, list[str]] = {library: [] for library in LIBRARIES}
    for symbol in undefined:
        name, _, version = symbol.replace("@@", "@").partition("@")
        if version in found:
            found[version].append(name)
        elif not version:
            # The driver and NCCL have no versions; "cu" begins the names of others, too.
            for library in ("libnccl.so.2", "libcuda.so.1"):
                if name.startswith(LIBRARIES[library][0]) and name[2:3].isupper() | (
                    library == "libnccl.so.2"
                ):
                    found[library].append(name)
    return found


def build(library: str, functions: Iterable[str], folder: Path) -> None:
    """Build one library; functions without a stand-in return 0."""
    sources = [str(FAKE / source) for source in LIBRARIES[library][1]]
    base = folder / library
    script = base.with_suffix(base.suffix + ".map")
    script.write_text(f"{library} {{ global: *; }};\n", encoding="utf-8")
    common = [
        *(os.environ.get("CXX", "c++"), *OPTIONS, f"-I{ROOT / 'tests/cpp'}", f"-I{ROOT / 'src'}"),
        *("-shared", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"),
    ]
    defined: set[str] = set()
    if sources:
        subprocess.run([*common, *sources, "-ldl", "-o", str(base)], check=True)
        defined = {symbol.partition("@")[0] for symbol in symbols(base, "--defined-only")}
    stub = base.with_suffix(base.suffix + ".cc")
    stub.write_text(
        "".join(
            f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return 0; }}\n'
            for name in sorted(set(functions) - defined)
        ),
        encoding="utf-8",
    )
    subprocess.run([*common, *sources, str(stub), "-ldl", "-o", str(base)], check=True)


if __name__ == "__main__":
    main()
