"""The commands of the documentation, run as printed, print what the documentation says.

Three users walk through it: one with a script, one who compares searches, and one who steers and
checks a plan. Times and rounding differences vary, so they are masked; "..." stands for any lines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

ROOT = Path(__file__).resolve().parents[3]
VARYING = re.compile(r"\b\d+\.\d+ s\b|\b\d+\.\de[-+]\d+\b")


def blocks(page, language=""):
    """The texts of the fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for name, body in found if name == language]


def sessions(page, start):
    """The commands of the block that starts like this, with what each prints."""
    (block,) = [each for each in blocks(page) if each.startswith(f"$ {start}")]
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the script of the README, and commands that run this tofu."""
    path = tmp_path_factory.mktemp("walkthrough")
    (script,) = [each for each in blocks("README.md", "python") if "net = gluon" in each]
    (path / "mlp.py").write_text(script)
    return path


def run(folder, command):
    """Run a command line of the documentation: its exit status, output and messages."""
    words = shlex.split(command)
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOFU_") and name != "MXNET_GRAPH_PASS"
    }
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environ[name] = value
    program = {"python": [sys.executable], "tofu": [sys.executable, "-m", "tofu"]}[words[0]]
    ran = subprocess.run(
        [*program, *words[1:]], cwd=folder, env=environ, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout


def matches(found, printed):
    """Whether an output is what is printed, where "..." stands for any lines."""
    found, printed = (VARYING.sub("N", re.sub(r" +", " ", text)) for text in (found, printed))
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in printed.splitlines()
    )
    return re.fullmatch(pattern, found) is not None


@pytest.mark.parametrize(
    ("found", "printed", "expected"),
    [
        ("a 0.01 s\n", "a 9.99 s\n", True),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a\n", "b\n", False),
        ("a\nb\n", "a\n", False),
        ("1.0e-07\n", "3.8e-07\n", True),
    ],
)
def test_outputs_are_compared(found, printed, expected):
    assert matches(found, printed) is expected


def test_the_first_user_runs_a_script(folder):
    for command, printed in sessions("README.md", "python mlp.py"):
        status, found = run(folder, command)
        assert status == 0, found
        assert matches(found, printed), f"{command}:\n{found}"


@pytest.mark.parametrize(
    "start",
    [
        "tofu compare",
        pytest.param("tofu estimate", marks=pytest.mark.slow),
        pytest.param("tofu frontier", marks=pytest.mark.whole),
    ],
)
def test_the_second_user_compares_searches(folder, start):
    for command, printed in sessions("docs/plans.md", start):
        status, found = run(folder, command)
        assert status == 0, found
        assert matches(found, printed), f"{command}:\n{found}"


@pytest.mark.slow
def test_the_third_user_steers_and_checks_a_plan(folder):
    for command, expected in (
        ("tofu plan --workers 4 --save train.plan mlp.py", 0),
        ("tofu plan --workers 4 --save pinned.plan --pin *_weight=0 mlp.py", 0),
        ("tofu show --layers train.plan", 0),
        ("tofu show train.plan 'dense1*'", 0),
        ("tofu diff train.plan pinned.plan", 1),
        ("tofu run --plan pinned.plan mlp.py", 0),
    ):
        status, found = run(folder, command)
        assert status == expected, f"{command}:\n{found}"
    assert ", plan pinned.plan, set up in " in found
    for command, printed in sessions("docs/plans.md", "tofu check"):
        status, found = run(folder, command)
        assert status == 0, found
        assert matches(found, printed), f"{command}:\n{found}"
