"""MXNet's GPU build: its libraries are loaded before it, or one sentence names those missing."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tofu import cuda_libraries
from tofu.cuda_libraries import DRIVER, LIBRARIES
from tofu.errors import ConfigError


@pytest.fixture
def gpu_wheel(monkeypatch):
    monkeypatch.setattr(cuda_libraries, "is_gpu_wheel", lambda: True)


@pytest.fixture
def loaded(monkeypatch, gpu_wheel):
    """The names of the libraries to load; the loader does not find those in `missing`."""

    class Loader(list):
        missing = ()

        def load(self, name, mode):
            assert mode == ctypes.RTLD_GLOBAL
            if Path(name).name in self.missing and "nvidia" not in name:
                raise OSError(name)
            self.append(name)
            return object()

    loader = Loader()
    monkeypatch.setattr(cuda_libraries.ctypes, "CDLL", loader.load)
    return loader


def package(folder, name):
    place = folder / "nvidia" / "some" / "lib" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    return str(place)


def test_other_builds_are_left_alone(monkeypatch):
    monkeypatch.setattr(cuda_libraries, "is_gpu_wheel", lambda: False)
    monkeypatch.setattr(cuda_libraries, "_load", lambda name: pytest.fail(name))
    cuda_libraries.preload()
    cuda_libraries.check_gpus([0])


def test_the_loaders_own_come_first(loaded):
    cuda_libraries.preload()
    assert loaded == [DRIVER, *LIBRARIES]


def test_packages_bring_what_the_loader_lacks(loaded, monkeypatch, tmp_path):
    loaded.missing = ("libcudnn.so.8", "libcublas.so.11")
    places = {name: package(tmp_path, name) for name in loaded.missing}
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    cuda_libraries.preload()
    assert loaded == [DRIVER, *(places.get(name, name) for name in LIBRARIES)]


def test_one_sentence_names_what_is_missing_and_how_to_get_it(loaded):
    loaded.missing = ("libcudnn.so.8", "libnccl.so.2")
    with pytest.raises(ConfigError) as caught:
        cuda_libraries.preload()
    assert str(caught.value) == (
        "mxnet-cu112 needs libcudnn.so.8, libnccl.so.2, found neither where the loader looks nor "
        "among Python's packages; run: pip install 'nvidia-cudnn-cu11<9' 'nvidia-nccl-cu11'"
    )


def test_a_machine_without_a_driver_is_told_apart(loaded):
    loaded.missing = (DRIVER, *LIBRARIES)
    with pytest.raises(ConfigError, match=r"needs NVIDIA's driver: libcuda\.so\.1"):
        cuda_libraries.preload()


def test_the_extra_brings_every_library():
    text = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    extra = text[text.index("\nmxnet-cu112 = [") :].partition("]")[0]
    for packaged in LIBRARIES.values():
        assert f'"{packaged}"' in extra


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ((3, 7), False),  # K80
        ((5, 2), True),
        ((6, 1), True),
        ((7, 0), True),  # V100
        ((7, 5), True),  # T4
        ((8, 0), True),  # A100
        ((8, 9), True),  # RTX 40
        ((9, 0), False),  # H100, H200
        ((10, 0), False),
        (None, True),  # the driver does not tell
    ],
)
def test_gpus_without_kernels_are_refused(capability, runs, monkeypatch, gpu_wheel):
    monkeypatch.setattr(cuda_libraries, "_capability", lambda device: capability)
    if runs:
        cuda_libraries.check_gpus(range(2))
        return
    major, minor = capability
    with pytest.raises(ConfigError, match=rf"^GPU 0 has compute capability {major}\.{minor}, .*"):
        cuda_libraries.check_gpus(range(2))


FAKE_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int* handle, int device) { *handle = 10 + device; return device > 1; }
int cuDeviceGetAttribute(int* value, int attribute, int handle) {
  *value = attribute == 75 ? handle - 3 : attribute == 76 ? 5 : -1;
  return handle < 10;
}
"""


def test_capabilities_are_the_drivers(tmp_path, monkeypatch):
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so"
    source.write_text(FAKE_DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setattr(cuda_libraries, "_load", lambda name: ctypes.CDLL(str(library)))
    assert cuda_libraries._capability(0) == (7, 5)
    assert cuda_libraries._capability(1) == (8, 5)
    assert cuda_libraries._capability(2) is None


def test_the_switch_loads_them_before_mxnet(tmp_path):
    """The script imports a stand-in for MXNet."""
    (tmp_path / "mxnet.py").write_text("raise SystemExit('imported first')\n")
    code = (
        "from tofu import _import_hook, cuda_libraries\n"
        "def preload(): raise SystemExit('loaded first')\n"
        "cuda_libraries.preload = preload\n"
        "_import_hook.install()\n"
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import mxnet\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == "loaded first\n"
