"""tofu compare: all combinations, their columns, and the formats of the table."""

from __future__ import annotations

import csv
import json

import pytest

pytest.importorskip("mxnet")

from tofu.cli import main
from tofu.cli.compare import render
from tofu.errors import PlanError
from tofu.mx.model.sources import from_model
from tofu.planner import sweep
from tofu.planner.comparison import Alternative, advice, compare, with_whole
from tofu.planner.limits import held_bytes
from tofu.planner.model import Devices
from tofu.planner.search import plan_graph
from tofu.planner.sweep import Measure
from tofu.plans import Plan, Problem, SearchOptions

from ..plans.documents import document


def made(workers=4, replication=False, total=1000, held=100, whole=False, **timed):
    shape, cuts = ([1], [-1, -1]) if whole else ([8], [0, 0])
    tensors = [{"node": "w", "output": 0, "shape": shape, "dtype": 0, "cuts": cuts}]
    text = json.dumps(
        document(
            total_bytes=total, tensors=tensors, lower_bound_bytes=10, status="feasible",
            bytes_per_worker={"parameters": held},
        )
    )  # fmt: skip
    return Alternative(workers, "tofu", replication, Plan.from_json(text), **timed)


def test_every_combination_is_searched():
    def problem_for(devices):
        return from_model("mlp", batch_size=8, optimizer="sgd", workers=devices.workers)

    found = list(compare(problem_for, devices=(Devices(2), Devices(3)), modes=("tofu", "spartan")))
    keys = [(each.workers, each.mode, each.replication) for each in found]
    assert keys == [(k, m, r) for k in (2, 3) for m in ("tofu", "spartan") for r in (False, True)]
    assert all(each.plan.workers == each.workers for each in found)
    assert found[1].plan.total_bytes <= found[0].plan.total_bytes
    (exact,) = compare(
        problem_for,
        devices=(Devices(2),),
        modes=("tofu",),
        replication=(False,),
        measure=Measure(exact=True),
    )
    assert exact.plan.memory == "exact"


def test_a_search_without_a_plan_says_why(monkeypatch):
    def refuse():
        raise PlanError("no plan")

    monkeypatch.setattr(sweep, "begin_search", lambda *_, **__: refuse)
    (found,) = compare(
        lambda k: Problem("net", None, k.workers),
        devices=(Devices(2),),
        modes=("flat",),
        replication=(False,),
    )
    assert found == Alternative(2, "flat", False, None, "no plan")
    assert (found.memory_bytes, found.whole_share) == (0, 0.0)
    assert "no plan" in render("net", [found], "text")
    assert json.loads(render("net", [found], "json"))["plans"][0]["reason"] == "no plan"


def test_advice_on_replication():
    (line,) = advice([made(), made(replication=True, total=100, held=150)])
    assert line == (
        "4 workers: --allow-replication cuts 1,000 bytes to 100 bytes; a worker then holds "
        "150 bytes instead of 100 bytes"
    )
    (line,) = advice([made(), made(replication=True, total=100, held=100)])
    assert line.endswith("; a worker holds 100 bytes either way")
    assert advice([made(), made(replication=True, total=950)]) == []
    assert advice([made()]) == []


def test_a_cheaper_plan_with_whole_tensors_is_known():
    problem = from_model("mlp", batch_size=64, optimizer="sgd", workers=4)
    cut = plan_graph(problem)
    whole = plan_graph(problem, SearchOptions(allow_replication=True))
    cheaper = with_whole(problem, cut, SearchOptions()).if_whole
    assert cheaper.total_bytes == whole.total_bytes < cut.total_bytes
    assert cheaper.saved_share == 1 - whole.total_bytes / cut.total_bytes
    assert cheaper.held_share == held_bytes(whole) / held_bytes(cut)
    for options in (
        SearchOptions(allow_replication=True),
        SearchOptions("spartan"),
        SearchOptions(objective="time"),
        SearchOptions(pins=(("*_weight", (0,)), ("*data", (0,)))),
    ):
        assert with_whole(problem, plan_graph(problem), options).if_whole is None, options


def test_advice_on_the_number_of_workers():
    whole = made(workers=7, total=0, held=400, whole=True)
    assert whole.whole_share == 1.0
    (line,) = advice([made(), whole])
    assert line.startswith("7 workers: most bytes stay whole on every worker")
    assert line.endswith("; 4 workers divide them")
    assert advice([whole])[0].endswith("no dimension for so many parts")
    (line,) = advice([made(), made(workers=8, held=60)])
    assert line == (
        "8 workers communicate no more than 4, and each holds 60 bytes instead of 100 bytes"
    )
    assert advice([made(), made(workers=8, total=2000, held=60)]) == []


def test_advice_on_the_objective():
    for_bytes = made(step_seconds=0.5)
    first, fastest = advice([for_bytes, made(total=600, objective="time", step_seconds=0.25)])
    assert first == (
        "4 workers, tofu: --objective time cuts a step from 500.000 ms to 250.000 ms, and "
        "communicates 600 bytes instead of 1,000 bytes"
    )
    assert fastest == (
        "fastest step predicted: 250.000 ms, tofu over 4 workers with --objective time"
    )
    (none, _) = advice([for_bytes, made(total=3000, objective="time", step_seconds=0.48)])
    assert none == "--objective time: no plan is predicted to be more than a tenth faster"
    # The communication of plans for time does not show the effect of replication.
    whole = made(replication=True, total=100, objective="time", step_seconds=0.5)
    assert not any("cuts 1,000" in line for line in advice([for_bytes, whole]))
    assert "plan for" in render("net", [for_bytes, whole], "text").splitlines()[0]
    assert "plan for" not in render("net", [for_bytes], "text").splitlines()[0]


def test_formats():
    found = [made(), made(replication=True, total=100)]
    text = render("net", found, "text")
    row = " ".join(text.splitlines()[1].split())
    assert row == "4 tofu no 1,000 bytes 100 bytes at least 10 bytes 0.010 s"
    assert "--allow-replication cuts" in text.splitlines()[-1]
    told = json.loads(render("net", found, "json"))
    assert (told["format"], told["target"], len(told["advice"])) == ("tofu-comparison", "net", 1)
    assert told["plans"][0]["memory_bytes"] == 100
    rows = list(csv.DictReader(render("net", found, "csv").splitlines()))
    assert [row["bytes"] for row in rows] == ["1000", "100"]
    page = render("<net>", found, "html")
    assert page.startswith("<!DOCTYPE html>") and "<h1>Plans of &lt;net&gt;</h1>" in page
    assert page.count("<tr>") == 3 and page.count("<p>") == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--workers=2,x", "mlp"), "--workers=x: expected a whole number"),
        (("--search=tofu,best", "mlp"), "--search=best: no such search mode"),
        (("absent.py",), "absent.py: no such file"),
        (("--shape=data=1,2", "mlp"), "only for a symbol file"),
    ],
)
def test_options_that_cannot_be_used(capsys, args, expected):
    with pytest.raises(SystemExit) as end:
        main.main(["compare", *args])
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert expected in captured.err and captured.err.count("\n") == 1


def test_the_command_compares_a_model(capsys, monkeypatch):
    for name in ("MXNET_GRAPH_PASS", "TOFU_WORKERS", "TOFU_PLAN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    args = ["--workers=2,4", "--search=tofu", "--batch-size=8", "--format=json", "mlp"]
    with pytest.raises(SystemExit) as end:
        main.main(["compare", *args])
    assert not end.value.code
    told = json.loads(capsys.readouterr().out)
    assert [(p["workers"], p["replication"]) for p in told["plans"]] == [
        (2, False), (2, True), (4, False), (4, True),
    ]  # fmt: skip
