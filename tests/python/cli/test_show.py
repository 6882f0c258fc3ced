"""tofu show and tofu diff: what saved plans hold, without their graphs."""

from __future__ import annotations

import json

import pytest

from tofu.cli import main

from .test_cli import environment, fail  # noqa: F401  (environment is a fixture)
from .test_errors import STORED, write_plans

NAMED = {
    **STORED,
    "node_kinds": [["", [[[4, 2], 0]]], ["relu", [[[4, 2], 0]]]],
    "nodes_listed": [["net_dense0_weight", 0], ["net_relu0_fwd", 1]],
    "alike": [[[[0]], None], [[[1]], ["i1"]]],
    "nodes_alike": [0, 1],
    "operator_bytes": [64],
}


@pytest.fixture
def plans(tmp_path):
    write_plans(tmp_path / "a.plan", NAMED)
    changed = {**NAMED, "alike": [[[[1]], None], [[[1]], ["i1"]]], "total_bytes": 64}
    write_plans(tmp_path / "b.plan", changed)
    other = {**NAMED, "workers": 4, "parts": [4]}
    write_plans(tmp_path / "two.plan", NAMED, other)
    return tmp_path


def run(capsys, *args):
    """The output of a command and its exit status."""
    status = 0
    try:
        main.main([str(arg) for arg in args])
    except SystemExit as end:
        status = end.code or 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out, status


def test_show_prints_the_plan(capsys, plans):
    text, status = run(capsys, "show", plans / "a.plan")
    assert status == 0
    assert text.splitlines()[0].endswith(f"a.plan: plan of graph {'1' * 16}, search mode ")
    assert "2 workers, 0 bytes communicated" in text
    assert "net_dense0_weight  4x2    float32  2x1    0\n" in text
    assert "net_relu0_fwd  relu  i1              64\n" in text


def test_show_prints_every_plan_of_a_file(capsys, plans):
    text, _ = run(capsys, "show", plans / "two.plan")
    assert "2 workers, " in text and "4 workers, " in text
    text, _ = run(capsys, "show", "--workers=4", plans / "two.plan")
    assert "2 workers, " not in text and "4 workers, " in text
    found = fail(capsys, "show", "--workers=8", plans / "two.plan")
    assert "two.plan: no plan for 8 workers, only for 2, 4" in found


def test_show_prints_layers(capsys, plans):
    text, _ = run(capsys, "show", "--layers", plans / "a.plan")
    assert "net_dense0 " in text and "net_dense0_weight" not in text


@pytest.mark.parametrize("name", ["net_dense0_weight", "*weight", "dense0_weight"])
def test_show_prints_what_was_asked_for(capsys, plans, name):
    text, _ = run(capsys, "show", plans / "a.plan", name)
    assert "net_dense0_weight" in text and "net_relu0" not in text
    (document,) = json.loads(run(capsys, "show", "--format=json", plans / "a.plan", name)[0])
    assert [tensor["node"] for tensor in document["tensors"]] == ["net_dense0_weight"]
    assert document["operators"] == []


def test_show_says_when_nothing_is_named_so(capsys, plans):
    found = fail(capsys, "show", plans / "a.plan", "conv*")
    assert "a.plan: no tensor or operator is named conv*; tofu show --all" in found


def test_show_as_documents_and_as_a_page(capsys, plans):
    documents = json.loads(run(capsys, "show", "--format=json", plans / "two.plan")[0])
    assert [document["workers"] for document in documents] == [2, 4]
    page, _ = run(capsys, "show", "--format=html", plans / "a.plan")
    assert page.startswith("<!DOCTYPE html>") and "net_dense0_weight" in page
    found = fail(capsys, "show", "--format=html", plans / "two.plan")
    assert "a page shows one plan, and it has those for 2 workers" in found


def test_show_refuses_other_files(capsys, plans):
    assert "cannot be read (No such file" in fail(capsys, "show", plans / "absent.plan")
    (plans / "train.py").write_text("print()")
    assert "train.py: not a plan file" in fail(capsys, "show", plans / "train.py")


def test_diff_tells_what_differs(capsys, plans):
    text, status = run(capsys, "diff", plans / "a.plan", plans / "b.plan")
    assert status == 1
    assert "communicated per step" in text and "+64 bytes" in text
    assert "net_dense0_weight" in text and "net_relu0_fwd" not in text


def test_diff_as_a_page_of_both_plans(capsys, plans):
    page, status = run(capsys, "diff", "--format=html", plans / "a.plan", plans / "b.plan")
    assert status == 1
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [plan["name"] for plan in data["plans"]] == ["a.plan", "b.plan"]  # without folders
    assert data["tensors"]["cuts"][0] != data["tensors"]["cuts"][1]
    _, status = run(capsys, "diff", "--format=html", plans / "a.plan", plans / "a.plan")
    assert status == 0


def test_diff_of_equal_plans(capsys, plans):
    text, status = run(capsys, "diff", plans / "a.plan", plans / "a.plan")
    assert status == 0
    assert text.startswith("first: ") and text.endswith("the plans cut everything alike\n")


def test_diff_finds_the_plans_that_go_together(capsys, plans):
    text, status = run(capsys, "diff", plans / "two.plan", plans / "b.plan")
    assert status == 1 and "2 workers" in text
    found = fail(capsys, "diff", plans / "two.plan", plans / "two.plan")
    assert "has 2 plans and" in found and "--workers K chooses" in found
    assert run(capsys, "diff", "--workers=4", plans / "two.plan", plans / "two.plan")[1] == 0
