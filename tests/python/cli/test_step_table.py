"""The page's tables of a predicted step and of a step that tofu trace measured."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("mxnet")

from tofu.cli import main
from tofu.mx.model.sources import from_model
from tofu.planner.search import search
from tofu.plans import SearchOptions
from tofu.plans.machine_files import read_machine
from tofu.simulate.simulation import simulate_plan

from ..plans.render.pages import Page

GIVEN = ["--workers=2", "--count=estimate", "--batch-size=64", "--machine=p2.8xlarge"]


def measured(workers=2, **changes):
    each = {"computation_us": 1000.0, "fetch_us": 250.0, "waiting_us": 750.0, "others_us": 500.0}
    workers = [{"name": f"gpu/{w}", **each} for w in range(workers)]
    document = {"format": "tofu-trace", "version": 1, "steps": 3, "step_us": 2000.0}
    return {**document, "busiest": 0, "workers": workers, "bounds": [], **changes}


def plan(*args):
    """Run tofu plan; return its exit status."""
    with pytest.raises(SystemExit) as end:
        main.main(["plan", *args, "mlp"])
    return end.value.code or 0


def test_the_page_has_both_steps_side_by_side(capsys, tmp_path):
    path = tmp_path / "step.json"
    path.write_text(json.dumps(measured()))
    assert plan(*GIVEN, "--format=html", f"--measured={path}") == 0
    page = capsys.readouterr().out
    section = re.search(r'<section id="step".*?</section>', page, re.S).group()
    rows = re.findall(r"<tr>(.*?)</tr>", section, re.S)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows]
    assert cells[0] == ["", "predicted", "measured", "measured / predicted"]
    problem = from_model("mlp", batch_size=64, optimizer="sgd", workers=2)
    searched = search(problem, SearchOptions(), fetch="plain").plan
    seconds = simulate_plan(searched, read_machine("p2.8xlarge"), fetch="plain").step_seconds
    times = [f"{seconds * 1e3:,.3f} ms", "2.000 ms", f"{2e-3 / seconds:.2f}"]
    assert cells[1] == ["a step", *times]
    assert [row[0] for row in cells[2:]] == [
        f"worker {worker} {what}"
        for worker in (0, 1)
        for what in ("computes", "moves data", "waits")
    ]
    assert [row[2] for row in cells[2:5]] == ["1.000 ms", "0.250 ms", "0.750 ms"]
    whole = [sum(float(row[1].split()[0]) for row in cells[first : first + 3]) for first in (2, 5)]
    assert whole == [pytest.approx(seconds * 1e3, abs=0.01)] * 2


NO_STEP = "step.json: is no measured step, version 1 "


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (measured(workers=4), "--measured: found a step of 4 workers, expected one of the plan's"),
        (measured(version=2), f"{NO_STEP}(found tofu-trace, version 2)"),
        ({**measured(), "workers": [{}]}, f"{NO_STEP}('comp"),
        ([], f"{NO_STEP}(list indices"),
    ],
)
def test_another_file_is_one_line(capsys, tmp_path, document, text):
    path = tmp_path / "step.json"
    path.write_text(json.dumps(document))
    assert plan(*GIVEN, "--format=html", f"--measured={path}") == 2
    told = capsys.readouterr().err
    assert text in told and told.count("\n") == 1


@pytest.mark.parametrize("given", [["--format=text", "--machine=p2.8xlarge"], ["--format=html"]])
def test_a_measured_step_needs_a_page_and_a_machine(capsys, given):
    assert plan("--workers=2", *given, "--measured=/nonexistent") == 2
    assert "give --format html and --machine, too" in capsys.readouterr().err


def test_a_measured_step_that_cannot_be_read(capsys):
    assert plan(*GIVEN, "--format=html", "--measured=/nonexistent") == 2
    told = capsys.readouterr().err
    assert told == "tofu: --measured /nonexistent: cannot be read (No such file or directory)\n"


def test_the_page_has_the_command_that_makes_its_plan(capsys):
    assert plan("--workers=2", "--count=estimate", "--batch-size=64", "--format=html") == 0
    before, after = Page(capsys.readouterr().out).data["command"]
    assert before.split()[:2] == ["tofu", "plan"] and after == "mlp"
    assert {"--workers 2", "--batch-size 64"} <= {
        " ".join(pair) for pair in zip(before.split(), before.split()[1:])
    }
