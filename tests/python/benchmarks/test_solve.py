"""benchmarks/solve.py: its output, its files and its errors."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Callable

import pytest

PROBLEM = {
    "format": "tofu-step-problem",
    "version": 2,
    "constant": 1,
    "domains": [2, 3],
    "unary": [[], [5, 0, 2]],
    "pairs": [[0, 1, [4, 4, 0, 1, 0, 9]]],
    "memory": {"limit": 10, "uses": [[0, 0, 4, [3, 6]], [1, 2, 5, [1, 8, 7]]]},
}


@pytest.fixture
def problem_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.json.gz"
    path.write_bytes(gzip.compress(json.dumps(PROBLEM).encode()))
    return path


@pytest.fixture
def run(import_script: Callable[[str], ModuleType]) -> Callable[..., int]:
    """Run the script; return its exit status."""

    def status(*args: object) -> int:
        try:
            import_script("solve").main([str(arg) for arg in args])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return status


def test_the_choices_are_printed(
    run: Callable[..., int], problem_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().iterdir())
    assert run(problem_file) == 0
    assert sorted(Path().iterdir()) == before, "no file is written unless one is named"
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("optimal: cost 3  bound 3  gap 0%  0.0")
    assert lines[-1] == "recounted; values: [0, 2]"


def test_the_choices_are_written(
    run: Callable[..., int], problem_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--save", "small.solution.json", problem_file) == 0
    solution = json.loads(Path("small.solution.json").read_text())
    assert solution["format"] == "tofu-solution" and solution["values"] == [0, 2]
    assert solution["cost"] == solution["bound"] == 3 and solution["peak_bytes"] == 10
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" +\d+\.\d\d s  cost 3  bound 3  gap 0%", lines[-4])
    assert lines[-3].startswith("optimal: cost 3  bound 3  gap 0%  0.0")
    assert lines[-2] == "memory: 10 bytes at moment 2, of 10"
    assert lines[-1] == "recounted; written to small.solution.json"


def test_a_limit_of_the_command_line_counts(
    run: Callable[..., int], problem_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--limit", "none", "--save", tmp_path / "free.json", problem_file) == 0
    assert json.loads((tmp_path / "free.json").read_text())["values"] == [1, 1]
    assert "14 bytes at moment 2, no limit" in capsys.readouterr().out
    assert run("--limit", "9", "--save", tmp_path / "nine.json", problem_file) == 0
    assert json.loads((tmp_path / "nine.json").read_text())["values"] == [1, 0]


def test_without_a_choice_the_least_limit_is_said(
    run: Callable[..., int], problem_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--limit", "3", "--save", "small.solution.json", problem_file) == 1
    assert capsys.readouterr().out.splitlines() == [
        "infeasible: no choice fits into 3 bytes",
        "the smallest limit that leaves one: 4 bytes",
        "at moment 2, these need it:",
        "               3 bytes  variable 0",
        "               1 bytes  variable 1",
    ]
    assert not Path("small.solution.json").exists()


def test_costs_that_forbid_everything_are_said(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.json"
    path.write_text(json.dumps({**PROBLEM, "unary": [[], [10**18] * 3]}))
    assert run(path) == 1
    assert "infeasible: forbidden costs leave no choice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--limit", "1e9"], "--limit: found '1e9', expected a number of bytes or \"none\""),
        (["--save", "missing/folder.json"], "missing/folder.json: cannot be written"),
    ],
)
def test_bad_options_are_refused(
    run: Callable[..., int],
    problem_file: Path,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    complaint: str,
) -> None:
    assert run(*args, problem_file) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_that_is_no_problem_is_refused(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "absent.json") == 2
    assert "absent.json: cannot be read" in capsys.readouterr().err
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(gzip.compress(b"{}" * 100)[:-20])
    assert run(damaged) == 2
    assert "damaged.json.gz: cannot be read" in capsys.readouterr().err
    plan = tmp_path / "plan.json"
    plan.write_text('{"format": "tofu-plan"}')
    assert run(plan) == 2
    assert 'found "tofu-plan", expected "tofu-step-problem"' in capsys.readouterr().err
