"""The example of an operator in C++: the commands of docs/own-operators.md, as printed there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ..support import forked

pytest.importorskip("mxnet")

GAVE_UP = "a call took more than 60 s"
ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]


def commands():
    page = (ROOT / "docs" / "own-operators.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n(mx=.*?)```", page, re.DOTALL)
    return block.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a copy of the example, and commands python and tofu that run this tofu."""
    path = tmp_path_factory.mktemp("scale_columns")
    for file in (ROOT / "examples").glob("scale_columns*"):
        shutil.copy(file, path)
    (path / "bin").mkdir()
    for name, line in (("python", ""), ("tofu", "-m tofu")):
        program = path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{forked.python()}" {line} "$@"\n')
        program.chmod(0o755)
    return path


def shell(folder, text):
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOFU_") and name != "MXNET_GRAPH_PASS"
    }
    environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-c", text], cwd=folder, env=environ, capture_output=True, text=True, timeout=1200,
        check=False,
    )  # fmt: skip
    # tofu verify gives up a call that takes a minute, as it may on a busy machine.
    assert ran.returncode == 0 or GAVE_UP in ran.stdout, f"{text}:\n{ran.stdout}{ran.stderr}"
    return ran


@pytest.mark.whole
def test_the_commands_of_the_page(folder):
    find, compile_it, verify, check, run = commands()
    shell(folder, f"{find}\n{compile_it}")
    last = shell(folder, verify).stdout.splitlines()[-1]
    assert last.startswith("1 operator, ") and ": 0 false, 0 missing, " in last
    assert "rounding only" in shell(folder, check).stdout
    serial = shell(folder, "python scale_columns.py").stdout
    described = shell(folder, run)
    assert described.stdout == serial and serial.count("loss") == 3
    assert "TofuWarning" not in described.stderr
    assert " over 4 workers" in described.stderr and " 48.0 KiB communicated" in described.stderr
    bare = shell(folder, re.sub(r"--describe \S+", "", run))
    assert bare.stdout == serial and " 121.5 KiB communicated" in bare.stderr


@pytest.mark.whole
@pytest.mark.parametrize("workers", [2, 3, 5, 6, 7])
def test_any_number_of_workers(folder, workers):
    find, compile_it, _, check, _ = commands()
    shell(folder, f"{find}\n{compile_it}")
    checked = shell(folder, check.replace("--workers 4", f"--workers {workers}"))
    assert "rounding only" in checked.stdout


def test_the_script_does_not_know_tofu():
    for name in ("scale_columns.py", "scale_columns_operator.py", "scale_columns.cc"):
        assert "tofu" not in (ROOT / "examples" / name).read_text(encoding="utf-8")
