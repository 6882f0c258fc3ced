"""A plan and its graphs stay in C++: text is for files and for people."""

import json

import pytest

pytest.importorskip("mxnet")

from tofu import _core
from tofu.cli import main
from tofu.plans import Plan

from .test_cli import environment  # noqa: F401  (a fixture)


def _refuse(*args, **kwargs):
    raise AssertionError("a plan or a graph became text, or was read from it")


@pytest.fixture
def no_text(environment, monkeypatch):  # noqa: F811
    """Refuse to write C++ graphs and plans, and to read plans. The cache keeps files."""
    monkeypatch.setenv("TOFU_CACHE", "0")
    for owner, name in (
        (_core.Graph, "to_json"),
        (_core.Plan, "to_json"),
        (_core.Plan, "__init__"),
        (Plan, "from_json"),
    ):
        monkeypatch.setattr(owner, name, _refuse)


@pytest.mark.parametrize(
    "asked",
    ["alexnet --workers 8", "mlp --workers 4 --memory 2GiB", "mlp --workers 2 --layers"],
)
def test_plan_reads_no_plan_and_no_graph(no_text, environment, capsys, asked):  # noqa: F811
    with pytest.raises(SystemExit, match=r"^0$"):
        main.main(["plan", *asked.split()])
    assert asked.split()[0] in capsys.readouterr().out


def test_json_is_written_for_people(no_text, environment, capsys, monkeypatch):  # noqa: F811
    command = ["plan", "mlp", "--workers", "2", "--format", "json"]
    with pytest.raises(AssertionError, match="became text"):
        main.main(command)
    monkeypatch.undo()
    capsys.readouterr()
    with pytest.raises(SystemExit, match=r"^0$"):
        main.main(command)
    text = capsys.readouterr().out
    assert Plan.from_json(text).document() == json.loads(text)
