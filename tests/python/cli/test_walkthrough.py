"""The commands of the documentation, run as printed, print the output shown there.

A fenced block with "$ " before its commands is run in a copy of the examples. Times and rounding
differences vary, so they are masked; "..." stands for any lines. After "<!-- varies -->" only the
first line is compared. All other commands of fenced blocks have to be ones that tofu would take.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from tofu import server_process
from tofu.cli import main

pytest.importorskip("mxnet")

from ..support import forked

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["README.md", *(p.relative_to(ROOT).as_posix() for p in sorted(ROOT.glob("docs/**/*.md")))]
VARYING = re.compile(r"\b\d+\.\d+ m?s\b|\b\d+%|\b\d+\.\de[-+]\d+\b")
SLOW = ("tofu estimate", "tofu frontier", "tofu check", "tofu trace", "tofu run --processes", "cd ")
FAILS = {"tofu plan --memory 12GiB --workers 2 text_lstm.py --width 8192": 2}
# The operator for which docs/own-operators.md gets a suggestion.
MY_DOT = """
import mxnet as mx

class Dot(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], mx.nd.dot(*in_data))

@mx.operator.register("my_dot")
class Property(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["a", "b"]

    def infer_shape(self, shapes):
        return shapes, [[shapes[0][0], shapes[1][1]]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Dot()
"""


def blocks(page):
    """The fenced blocks of a page, each with whether its output varies."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^(<!-- varies -->\n)?```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(body, bool(varies)) for varies, language, body in found if not language]


def session_of(block):
    """The commands of a block, each with its output."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


SESSIONS = [
    pytest.param(
        session,
        varies,
        id=f"{page}, {session[0][0]}",
        marks=[pytest.mark.slow] * session[0][0].startswith(SLOW),
    )
    for page in PAGES
    for block, varies in blocks(page)
    for session in [session_of(block)]
    if session
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with copies of the examples and of the operator of a page."""
    path = tmp_path_factory.mktemp("walkthrough") / "examples"
    shutil.copytree(ROOT / "examples", path)
    (path / "my_dot.py").write_text(MY_DOT)
    return path


def run(folder, command):
    """Run a command line of the documentation: its exit status, output and messages."""
    command, _, file = command.partition(" > ")
    words = shlex.split(command)
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOFU_") and name != "MXNET_GRAPH_PASS"
    }
    environ["TOFU_CACHE"] = "0"  # else messages would name an earlier run's plans
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environ[name] = value
    if "--processes" in words:
        forked.prepare(server_process.command("server", {})[1]["GLIBC_TUNABLES"])
    program = {"python": [], "tofu": ["-m", "tofu"]}[words[0]]
    words = [*program, *words[1:]]
    stderr = None if file else subprocess.STDOUT
    ran = forked.run(words, cwd=folder, env=environ, stderr=stderr, timeout=600)
    if file:
        (folder / file).write_text(ran.stdout)
    return ran.returncode, "" if file else ran.stdout


def matches(found, printed):
    """Whether an output matches the page's, where "..." stands for any lines."""
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


@pytest.mark.parametrize(("session", "varies"), SESSIONS)
def test_a_command_prints_what_the_page_says(folder, session, varies):
    for command, printed in session:
        if command == "cd examples":
            continue
        if "--framework torch" in command:
            pytest.importorskip("torch")
        status, found = run(folder, command)
        assert status == FAILS.get(command, 0), f"{command}:\n{found}"
        if varies:
            assert printed.splitlines()[0].split() in [line.split() for line in found.splitlines()]
        else:
            assert matches(found, printed), f"{command}:\n{found}"


@pytest.mark.parametrize("page", PAGES)
def test_tofu_would_take_the_commands(folder, page, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOFU_DESCRIBE", "")
    for block, _ in blocks(page):
        for line in block.splitlines():
            text = re.sub(r"^\$ ", "", line).partition("#")[0]
            text = re.sub(r"^([A-Z_]+=\S* )+", "", re.split(r" [|>&] ?|; ", text)[0])
            words = shlex.split(text) if text.startswith("tofu ") else []
            if len(words) > 1 and "..." not in words:
                command = main.cli.commands[words[1]]
                with click.Context(main.cli) as context:
                    command.make_context(words[1], words[2:], parent=context)


@pytest.mark.slow
def test_a_plan_is_steered_and_compared(folder):
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
