"""Check a machine for the GPU build of MXNet: CUDA's libraries, and GPUs it has kernels for.

The wheel mxnet-cu112 1.9.1 contains no CUDA library, and its machine code runs on some GPUs only.
MXNet itself says so badly: the import ends with a loader's error, or the first kernel fails. So
``preload`` runs before the import and ``check_gpus`` before the first allocation.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from tofu.errors import ConfigError

__all__ = ["LIBRARIES", "check_gpus", "is_gpu_wheel", "preload"]

WHEEL = "mxnet-cu112"
# A library that the wheel's libmxnet.so links to -> the package that brings it. A library comes
# after the libraries that it links to itself.
LIBRARIES = {
    "libcudart.so.11.0": "nvidia-cuda-runtime-cu11",
    "libnvrtc.so.11.2": "nvidia-cuda-nvrtc-cu11",
    "libcublas.so.11": "nvidia-cublas-cu11",
    "libcusolver.so.11": "nvidia-cusolver-cu11",
    "libcufft.so.10": "nvidia-cufft-cu11",
    "libcurand.so.10": "nvidia-curand-cu11",
    "libcudnn.so.8": "nvidia-cudnn-cu11<9",
    "libnccl.so.2": "nvidia-nccl-cu11",
    "libnvToolsExt.so.1": "nvidia-nvtx-cu11",
}
DRIVER = "libcuda.so.1"
# Compute capabilities that the wheel has machine code for; it has no PTX. Code for 7.0 also
# runs on 7.5, but not on 8.0.
MACHINE_CODE = ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...


@functools.cache
def is_gpu_wheel() -> bool:
    """Whether the installed MXNet is the wheel for CUDA 11.2."""
    try:
        importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def preload() -> None:
    """Load CUDA's libraries from the packages nvidia-*-cu11 if the loader has none.

    Does nothing for other builds of MXNet.

    Raises:
        ConfigError: a library is missing; says which, and what to install.
    """
    if not is_gpu_wheel():
        return
    if _load(DRIVER) is None:
        raise ConfigError(
            f"{WHEEL} needs NVIDIA's driver: {DRIVER} cannot be loaded; on a machine without a "
            "GPU, install '.[mxnet-cpu]' instead"
        )
    missing = [name for name in LIBRARIES if _load(name) is None]
    if missing:
        packages = " ".join(f"'{LIBRARIES[name]}'" for name in missing)
        raise ConfigError(
            f"{WHEEL} needs {', '.join(missing)}, found neither where the loader looks nor among "
            f"Python's packages; run: pip install {packages}"
        )


def check_gpus(devices: Iterable[int]) -> None:
    """Check that the wheel's kernels run on these GPUs.

    Args:
        devices: numbers of GPUs, as CUDA counts them.

    Raises:
        ConfigError: a GPU is too old or too new for the wheel.
    """
    if not is_gpu_wheel():
        return
    for device in devices:
        capability = _capability(device)
        if capability is None or _runs_on(capability):
            continue
        raise ConfigError(
            f"GPU {device} has compute capability {capability[0]}.{capability[1]}, for which "
            f"{WHEEL} has no kernels; it runs on 5.x to 8.x, such as V100, T4, A100, A10 and RTX "
            "40. Use such a GPU, or TOFU_DEVICE=cpu"
        )


def _runs_on(capability: tuple[int, int]) -> bool:
    return any(major == capability[0] and minor <= capability[1] for major, minor in MACHINE_CODE)


def _load(name: str) -> Optional[ctypes.CDLL]:
    """Load a library for those that link to it: the loader's own, else a package's."""
    for place in (name, *map(str, _in_packages(name))):
        try:
            return ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


def _in_packages(name: str) -> Iterable[Path]:
    for folder in sys.path:
        yield from Path(folder).glob(f"nvidia/*/lib/{name}")


def _capability(device: int) -> Optional[tuple[int, int]]:
    """Compute capability of a GPU; None where the driver does not tell."""
    driver = _load(DRIVER)
    handle, numbers = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if driver is None or driver.cuInit(0) != 0:
        return None
    if driver.cuDeviceGet(ctypes.byref(handle), device) != 0:
        return None
    for value, attribute in zip(numbers, (_MAJOR, _MINOR)):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle) != 0:
            return None
    return numbers[0].value, numbers[1].value
