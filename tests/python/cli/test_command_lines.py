"""Odd values of every option and variable: one clear line, no traceback, no crash, no hang.

One line of each command by default, 200 with --full.
"""

from __future__ import annotations

import os
import random
import re
import shutil

import pytest

from tofu.cli import main

from ..support import forked
from . import command_lines

FULL = 200
REPORT = re.compile(
    r"tofu: .* over \d+ workers "
)  # a script's, before it turns out to be too short
MAKE_PLAN = ["plan", "--workers", "2", "--save", "saved.plan", "--shape", "data=4,6", "net.json"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files that command lines name."""
    folder = tmp_path_factory.mktemp("files")
    command_lines.write_files(folder)
    done = tofu(MAKE_PLAN, folder)
    assert done.returncode == 0, done.stderr
    return folder


def tofu(words, folder, **variables):
    env = {**os.environ, "HOME": str(folder), **variables}
    return forked.run(["-m", "tofu", *words], cwd=folder, env=env, timeout=300)


@pytest.mark.parametrize("name", command_lines.TARGETS)
def test_no_command_line_ends_in_a_traceback(name, files, tmp_path, full):
    pytest.importorskip("mxnet")
    for seed in range(FULL if full else 1):
        folder = tmp_path / str(seed)
        shutil.copytree(files, folder)
        rng = random.Random(f"{name} {seed}")
        words = command_lines.command_line(name, rng)
        variables = command_lines.variables(rng)
        done = tofu(words, folder, **variables)
        case = (words, variables, done.stderr)
        assert done.returncode in (0, 1, 2), case
        assert "Traceback" not in done.stderr, case
        lines = [line for line in done.stderr.splitlines() if not REPORT.match(line)]
        if done.returncode == 2:
            assert [line.startswith("tofu: ") for line in lines] == [True], case


def test_a_missing_script_is_told_before_mxnet_speaks(monkeypatch, capsys):
    """MXNet's operators are listed only then, which warns of some."""
    monkeypatch.setattr(
        "tofu.verify.inventory.cache.cached_inventory", lambda: pytest.fail("listed")
    )
    with pytest.raises(SystemExit) as end:
        main.main(["ops", "--of", "no.py"])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("tofu: no.py: no such file")


def test_all_commands_get_command_lines():
    assert set(command_lines.TARGETS) == set(main.cli.commands)


LONG = "a" * 3000
ONE_LINE = {
    "a value of two lines": (["plan", "--workers", "a\nb", "mlp"], r"--workers=a\nb: expected"),
    "a value that no terminal shows": (["show", "\x1b[31m.plan"], r"\x1b[31m.plan: cannot be"),
    "a long name of a machine": (["simulate", "--machine", LONG, "mlp"], f"--machine {LONG}: "),
    "a long name of descriptions": (["ops", "--describe", LONG, "relu"], "TOFU_DESCRIBE="),
    "a long name to save to": (["plan", "--save", LONG, "mlp"], f"--save {LONG}: cannot be"),
    "a long name of a folder": (
        ["calibrate", "--output", f"{LONG}/x"],
        f"--output {LONG}/x: found",
    ),
    "no number": (
        ["plan", "--time-limit", "x", "mlp"],
        "Invalid value for '--time-limit': 'x' is not a valid float range; see tofu plan --help",
    ),
    "no type": (
        ["suggest", "--shape", "4", "--dtype", "nosuch", "relu"],
        "Invalid value for '--dtype': 'nosuch' is not one of 'float16', 'float32'",
    ),
    "no such option": (["plan", "--nosuch", "mlp"], "No such option '--nosuch'"),
    "no such option of all": (["--nosuch"], "No such option '--nosuch'; see tofu --help"),
    "no such command": (["nosuch"], "No such command 'nosuch'; see tofu --help"),
    "no data to train with": (["check", "mlp"], "mlp: a model has no data to train with"),
    "no target": (["plan"], "Missing argument 'SCRIPT"),
}


@pytest.mark.parametrize("case", ONE_LINE)
def test_bad_input_is_one_line(case, capsys):
    words, text = ONE_LINE[case]
    with pytest.raises(SystemExit) as end:
        main.main(words)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"tofu: {text}")
    assert told.endswith("\n") and told.count("\n") == 1
