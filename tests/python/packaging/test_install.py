"""An installed tofu: its files, and that it does nothing until it is switched on."""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SWITCH_FILE = "tofu-switch.pth"
OUR_VARIABLES = ("MXNET_GRAPH_PASS", "TOFU_WORKERS", "TOFU_DEVICE", "TOFU_LOG", "PYTHONPATH")


def run_python(code, *options, python=sys.executable, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in OUR_VARIABLES}
    ran = subprocess.run(
        [python, *options, "-c", code],
        env={**environment, **variables},
        cwd=Path(sys.executable).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def test_the_distribution_is_called_mxnet_tofu():
    distribution = importlib.metadata.distribution("mxnet-tofu")
    assert distribution.metadata["Requires-Python"] == ">=3.9"
    assert {"mxnet-cpu", "mxnet-cu112", "torch", "examples", "test", "dev"} <= set(
        distribution.metadata.get_all("Provides-Extra")
    )
    scripts = {entry.name: entry.value for entry in distribution.entry_points}
    assert scripts == {"tofu": "tofu.cli.main:main"}


def test_every_extra_keeps_numpy_where_mxnet_works():
    requirements = importlib.metadata.requires("mxnet-tofu")
    for extra in ("mxnet-cpu", "mxnet-cu112"):
        assert [r for r in requirements if "numpy<1.24" in r and extra in r]


def test_import_tofu_is_light():
    code = (
        "import sys, tofu; "
        "large = {'mxnet', 'numpy', 'scipy', 'click', 'jinja2', 'rich', 'tofu._core'}; "
        "print(sorted(large & set(sys.modules)))"
    )
    assert run_python(code).stdout == "[]\n"


def test_without_the_switch_nothing_of_tofu_is_imported():
    code = "import sys; print([m for m in sys.modules if m.split('.')[0] == 'tofu'])"
    assert run_python(code).stdout == "[]\n"
    assert run_python(code, MXNET_GRAPH_PASS="").stdout == "[]\n"


def test_without_the_switch_mxnet_is_as_it_was():
    code = (
        "import sys, mxnet; "
        "print([m for m in sys.modules if m.split('.')[0] == 'tofu'], "
        "mxnet.gluon.HybridBlock._build_cache.__module__, mxnet.gluon.Trainer.step.__module__)"
    )
    assert run_python(code).stdout == "[] mxnet.gluon.block mxnet.gluon.trainer\n"


def test_with_the_switch_importing_mxnet_switches_tofu_on():
    code = "import sys, mxnet; print('tofu.gluon' in sys.modules)"
    ran = run_python(code, MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="2", TOFU_DEVICE="cpu")
    assert ran.stdout.endswith("True\n")


def test_with_the_switch_python_alone_imports_no_mxnet():
    code = "import sys; print('mxnet' in sys.modules)"
    assert run_python(code, MXNET_GRAPH_PASS="tofu").stdout == "False\n"


def test_the_line_that_python_runs_at_start_loads_nothing(monkeypatch):
    line = (ROOT / "python" / SWITCH_FILE).read_text(encoding="utf-8")
    assert line.startswith("import os; ")
    for name in OUR_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = set(sys.modules)
    exec(compile(line, SWITCH_FILE, "exec"), {})
    assert set(sys.modules) == before


@pytest.fixture(scope="module")
def distributions(full, tmp_path_factory):
    """A source archive, and the wheel that pip builds from it; its C++ part only with --full."""
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("dist")
    code = "import sys; from scikit_build_core import build; build.build_sdist(sys.argv[1])"
    run_in(ROOT, [sys.executable, "-c", code, str(folder)])
    (archive,) = folder.glob("*.tar.gz")
    build = "-Ccmake.build-type=Debug" if full else "-Cwheel.cmake=false"
    options = ["--no-deps", "--no-index", "--no-build-isolation", build]
    run_in(folder, [sys.executable, "-m", "pip", "wheel", "-q", *options, "-w", ".", archive.name])
    (wheel,) = folder.glob("*.whl")
    return archive, wheel


def run_in(folder, command):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def sources():
    """The files of the checkout that a build reads, apart from Python's."""
    folders = [path for name in ("src", "cmake") for path in (ROOT / name).rglob("*")]
    return {path.relative_to(ROOT).as_posix() for path in folders if path.is_file()}


def test_source_archive_holds_what_a_build_needs(distributions):
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md"} | sources() <= names
    assert {f"python/{SWITCH_FILE}", "python/tofu/cli/main.py", "tdl/__init__.py"} <= names
    assert not {name for name in names if name.startswith((".venv", "build/", ".ci"))}


def package_files(folder, package):
    """A package's files in the checkout, with the names that they should have in the wheel."""
    found = (
        path
        for kind in ("py", "json", "html", "css", "js")
        for path in (ROOT / folder).rglob(f"*.{kind}")
    )
    return {f"{package}/{path.relative_to(ROOT / folder).as_posix()}" for path in found}


def test_wheel_holds_the_package_the_descriptions_and_the_switch(distributions, full):
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = wheel.namelist()
    assert SWITCH_FILE in names
    assert package_files("python/tofu", "tofu") | package_files("tdl", "tofu/tdl") <= set(names)
    libraries = {name.split(".")[0] for name in names if name.endswith(".so")}
    compiled = {"tofu/_core", "tofu/libtofu_mxnet", "tofu/libtofu_profiler"}
    assert libraries == (compiled if full else set())
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tofu", SWITCH_FILE}


def test_wheel_installs_and_switches(distributions, full, tmp_path):
    scratch = tmp_path / "venv"
    run_in(tmp_path, [sys.executable, "-m", "venv", "--without-pip", str(scratch)])
    python = str(scratch / "bin" / "python")
    install = ["pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    run_in(tmp_path, [sys.executable, "-m", *install, str(distributions[1])])
    modules = "tofu, tofu.tdl, tofu._core" if full else "tofu, tofu.tdl"
    code = (
        f"import sys; before = 'tofu' in sys.modules; import {modules}; "
        "print(before, tofu.__file__.startswith(sys.prefix))"
    )
    assert run_python(code, python=python).stdout == "False True\n"
    ran = run_python(code, python=python, MXNET_GRAPH_PASS="tofu")
    assert ran.stdout == "True True\n"
