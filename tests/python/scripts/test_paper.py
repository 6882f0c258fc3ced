"""The page about the papers' tables and figures, and the statements that it checks."""

import json
import sys

import pytest


@pytest.fixture(scope="module")
def scripts(import_script):
    pytest.importorskip("mxnet")
    return {name: import_script(name) for name in ("_statements", "paper")}


def row(model, system, rate, *, batch=8, fits=True):
    return {
        "model": model,
        "system": system,
        "samples_per_second": rate,
        "batch_size": batch,
        "fits": fits,
        "step_seconds": 1.0,
        "compute_seconds": 0.5,
        "fetch_seconds": 0.25,
        "waiting_seconds": 0.25,
        "memory_bytes": 1 << 30,
    }


def document(name, rows):
    return {
        "name": name, "title": name, "machine": "p2.8xlarge", "reduced": False, "rows": rows,
    }  # fmt: skip


def table3(scale):
    paper = {"tofu": (210, 154, 122), "placement": (107, 95, 59)}
    return document(
        "table3",
        [
            row(f"rnn-{layers}-4k", system, rate * scale)
            for system, rates in paper.items()
            for layers, rate in zip((6, 8, 10), rates)
        ],
    )


def test_table3_within_thirty_percent(scripts):
    check = scripts["_statements"].check_statements
    assert [found for _, found in check({"table3": table3(1.29)})] == ["holds", "holds"]
    order, near = [found for _, found in check({"table3": table3(1.31)})]
    assert order == "holds"
    assert "rnn-6-4k, tofu: 275, the paper 210" in near


def test_a_wrong_order_is_told(scripts):
    wrong = table3(1.0)
    wrong["rows"][0]["samples_per_second"] = 130  # tofu on rnn-6-4k, less than on rnn-8-4k
    order = dict(scripts["_statements"].check_statements({"table3": wrong}))
    assert order["Table 3's rows are in the paper's order"] == "tofu: 130, 154, 122"


@pytest.mark.parametrize(("rate", "found"), [(80, "holds"), (50, "wresnet-50-4: 50%"), (97, "97%")])
def test_the_share_of_ideal(scripts, rate, found):
    rows = [row("wresnet-50-4", "ideal", 100), row("wresnet-50-4", "tofu", rate)]
    rows += [row("wresnet-50-4", system, 40) for system in ("smallbatch", "swap")]
    said = dict(scripts["_statements"].check_statements({"figure8": document("figure8", rows)}))
    assert said["tofu reaches 60-95% of ideal (WResNet)"].endswith(found)


def test_the_page_has_statements_tables_and_pictures(scripts, tmp_path, monkeypatch, capsys):
    (tmp_path / "table3.json").write_text(json.dumps(table3(1.0)))
    (tmp_path / "table3.svg").write_text("<svg/>")
    monkeypatch.setattr(sys, "argv", ["paper.py", "--page", str(tmp_path)])
    scripts["paper"].main()
    assert "paper.html" in capsys.readouterr().out
    markdown = (tmp_path / "paper.md").read_text()
    assert "2 of 2 statements hold." in markdown
    assert "| holds | Table 3's rows are in the paper's order | holds |" in markdown
    page = (tmp_path / "paper.html").read_text()
    assert '<td class="verdict holds">holds</td>' in page
    assert "![table3.svg](table3.svg)" in markdown
    assert "rnn-10-4k" in markdown
    page = (tmp_path / "paper.html").read_text()
    assert '<img src="table3.svg"' in page
    assert "<td>Table 3&#x27;s rows are in the paper&#x27;s order</td>" in page


def test_a_script_that_fails_is_told_and_does_not_end_the_others(scripts, tmp_path, monkeypatch):
    paper = scripts["paper"]
    (tmp_path / "bad.py").write_text("raise SystemExit('no such thing')")
    (tmp_path / "good.py").write_text("print('fine')")
    monkeypatch.setattr(paper, "FOLDER", tmp_path)
    printed = paper.run_all(tmp_path, ["bad", "good"], smoke=True)
    assert printed["bad"] == "bad.py failed: no such thing"
    assert printed["good"] == "fine\n"


def figure10(**times):
    """Rows of both models; `times`: seconds of a step of each mode on the RNN."""
    modes = ("recursion", "icml18", "allrow-greedy", "spartan", "equalchop")
    return {
        "reduced": False,
        "rows": [
            {
                "model": model,
                "mode": mode,
                "fits": model == "rnn-4-8k" or mode not in ("icml18", "allrow-greedy"),
                "worker_bytes": {"parameters": 2**33},
                "step_seconds": times.get(mode.partition("-")[0], 1.1),
            }
            for model in ("rnn-4-8k", "wresnet-152-10")
            for mode in modes
        ],
    }


def test_statements_of_figure10(scripts):
    check = scripts["_statements"].check_statements
    agreed = figure10(recursion=1.0, icml18=1.07, allrow=1.2)
    assert {found for _, found in check({"figure10": agreed})} == {"holds"}
    said = dict(check({"figure10": figure10(recursion=1.0, icml18=1.5, spartan=0.9)}))
    assert said["ICML18 is 7% slower than Tofu on RNN-4-8K"] == "50%"
    fastest = said["no algorithm with partitioned weights is faster than Tofu"]
    assert fastest.startswith("rnn-4-8k, spartan: 10% faster")
    for each in agreed["rows"]:
        each.update(fits=True, step_seconds=None)
    said = dict(check({"figure10": agreed}))
    assert said["ICML18 is out of memory on WResNet-152-10"] == "a worker holds 8.0 GiB"
    assert said["ICML18 is 7% slower than Tofu on RNN-4-8K"] == "not simulated"


def test_statements_about_steps_that_reduced_models_lack(import_script):
    checks = import_script("_soybean_statements").CHECKS
    reduced = {"label": "4", "batch": 8, "workers": 4, "step_seconds": 2.0, "compute_seconds": 1.0}
    rows = [
        {**reduced, "panel": "alexnet", "system": system, "speedup": 2.0}
        for system in ("data", "model", "soybean")
    ]
    found = {said: check(rows) for name in checks for said, check in checks[name]}
    assert found["SoyBean, MLP: on 8 GPUs, 5 times the computation, batch 512"] == [
        "no step with batch 512 on 8 GPUs"
    ]
    assert found["SoyBean, AlexNet: more than 7 times one GPU with batch 256"] == [
        "no step with batch 256"
    ]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ("holds", "holds"),
        ("by 9%", "differs"),
        ("not simulated", "not measured"),
        ("no step with batch 256", "not measured"),
        ("a: 9%; b: not simulated", "differs"),
    ],
)
def test_verdicts(scripts, found, verdict):
    assert scripts["_statements"].verdict(found) == verdict


@pytest.mark.parametrize(("share", "found"), [(0.5, "holds"), (0.3, "rnn-6-8k: 30%")])
def test_swapping_against_placement(scripts, share, found):
    rows = [row("rnn-6-8k", system, 100) for system in ("ideal", "tofu", "placement")]
    rows.append(row("rnn-6-8k", "swap", 100 * share))
    said = dict(scripts["_statements"].check_statements({"figure9": document("figure9", rows)}))
    assert next(why for text, why in said.items() if "48-53%" in text) == found


def test_tables_beside_the_papers_numbers_are_on_the_page(scripts, tmp_path, monkeypatch):
    (tmp_path / "table3.json").write_text(json.dumps(table3(1.0)))
    (tmp_path / "table1.json").write_text(json.dumps({"reduced": False, "cells": []}))
    (tmp_path / "table1.md").write_text("# Table 1\n\n| a | `b` |\n| --- | --: |\n| **<** | 2 |\n")
    (tmp_path / "systems.md").write_text(
        "# Systems\n\n| no | no |\n\n"
        "## Table 3: rates\n\n| c |\n| --- |\n| 3 |\n\nThe\n[setting](a.md).\n\nMore.\n"
    )
    monkeypatch.setattr(sys, "argv", ["paper.py", "--page", str(tmp_path)])
    scripts["paper"].main()
    page, markdown = ((tmp_path / f"paper.{kind}").read_text() for kind in ("html", "md"))
    assert "<tr><td><b>&lt;</b></td><td class=number>2</td></tr>" in page
    assert "<h3>Table 3: rates</h3>" in page and "<p>The setting.</p>" in page
    assert "### Table 3: rates\n\n| c |\n| --- |\n| 3 |\n\nThe [setting](a.md).\n" in markdown
    assert "More." not in page and "| no |" not in markdown


@pytest.mark.parametrize(
    ("name", "title"),
    [("figure10", "Figure 10"), ("soybean8", "SoyBean, Figure 8"), ("tensoropt", "TensorOpt")],
)
def test_titles(scripts, name, title):
    assert scripts["paper"].title_of(name) == title


@pytest.fixture(scope="module")
def plan_checks(import_script):
    checks = import_script("_plan_statements").PLAN_CHECKS
    return {said: check for own in checks.values() for said, check in own}


def cell(variant, *seconds):
    return {"model": "rnn", "variant": variant, "seconds": seconds}


def test_statements_of_the_tables_of_searches(plan_checks):
    faster = plan_checks["Table 1: the search is faster with recursion than without"]
    slow, fast = cell("with coarsening", 3.0, 9.0, 2.0), cell("with recursion", 1.0)
    assert faster({"cells": [slow, fast, cell("ours")]}) == []
    same = {"cells": [slow, cell("with recursion", 3.0)]}
    assert faster(same) == ["rnn: 3.00 s instead of 3.00 s"]
    assert faster({"cells": [fast, cell("with coarsening")]}) == []  # none within the limit
    near = plan_checks["Table 2: weights take what the paper says, within 2%"]
    rows = [{"model": name, "ours_gib": 1.0, "paper_gib": paper} for name, paper in ("a1", "b2")]
    for row_of in rows:
        row_of["paper_gib"] = float(row_of["paper_gib"])
    assert near({"rows": rows}) == ["b: 1.00 GiB, the paper 2.0"]


def plan_of(name, seconds, held=1):
    return {"name": name, "step_seconds": seconds, "held_bytes": held * 2**30}


def frontier(**changes):
    """A row of tensoropt.py with which all statements hold."""
    whole = {"data-parallel": {"fits": False}, "ours": None, "tofu": {"step_seconds": 3.0}}
    row_of = {
        "model": "rnn",
        "frontier": [plan_of("least", 4.0), plan_of("fastest", 2.0, 2)],
        "rivals": [
            plan_of("data-parallel", 9.0, 9), plan_of("tofu", 5.0), plan_of("optcnn", 2.0, 2),
            plan_of("mesh-tensorflow", 3.0, 3),
        ],
        "workers": [
            {**whole, "workers": 4},
            {**whole, "workers": 8, "ours": plan_of("", 3.0)},
            {
                "workers": 16, "ours": plan_of("", 2.0), "tofu": {"step_seconds": 3.5},
                "data-parallel": {"fits": True},
            },
        ],
    }  # fmt: skip
    return {"rows": [{**row_of, **changes}]}


def test_statements_of_frontiers(plan_checks, import_script):
    names = [said for said, _ in import_script("_plan_statements").PLAN_CHECKS["tensoropt"]]
    assert [plan_checks[said](frontier()) for said in names] == [[]] * len(names)
    reduced = frontier(workers=frontier()["rows"][0]["workers"][:1])
    lacks = ["not measured over 8 and 16 workers"]
    assert [plan_checks[said](reduced) for said in names[-2:]] == [lacks, lacks]
    flat = [plan_of("least", 2.02), plan_of("fastest", 2.0)]
    rivals = [
        plan_of("data-parallel", 1.0), plan_of("tofu", 2.0), plan_of("optcnn", 3.0),
        plan_of("mesh-tensorflow", 1.0, 2),
    ]  # fmt: skip
    workers = frontier()["rows"][0]["workers"]
    other = {
        "workers": 8, "ours": plan_of("", 6.0), "tofu": {"step_seconds": 7.0},
        "data-parallel": {"fits": True},
    }  # fmt: skip
    wrong = frontier(frontier=flat, rivals=rivals, workers=[workers[0], other, workers[2]])
    assert [plan_checks[said](wrong) for said in names] == [
        ["rnn: 1.50 times"],
        ["rnn: 1.00 times"],
        ["rnn: 0.50 times"],
        ["rnn: another takes more", "rnn: another holds more"],
        ["rnn: more memory saves 1% of the time"],
        ["rnn: ours 8, data parallelism 8"],
        ["rnn: 3.00"],
        ["rnn: 0.50 of it"],
    ]


def test_statements_of_sizes_and_links(plan_checks, import_script):
    def document_of(**points):
        parts = {"small": "size", "large": "size", "no RDMA": "across hosts"}
        return {
            "rows": [
                {"name": name, "part": parts.get(name, ""), "frontier": [point], "turning": None}
                for name, point in points.items()
            ]
        }

    names = [said for said, _ in import_script("_plan_statements").PLAN_CHECKS["tensoropt7"]]
    agreed = {
        "small": plan_of("", 1.0), "large": plan_of("", 1.0, 2), "no RDMA": plan_of("", 4.0),
        "4 x RDMA": plan_of("", 2.0), "PCIe": plan_of("", 9.0), "NVLink": plan_of("", 3.0),
    }  # fmt: skip
    assert [plan_checks[said](document_of(**agreed)) for said in names] == [[]] * 4
    wrong = {
        **agreed, "small": plan_of("", 1.0, 3), "4 x RDMA": plan_of("", 3.0),
        "NVLink": plan_of("", 6.0),
    }  # fmt: skip
    found = [plan_checks[said](document_of(**wrong)) for said in names]
    assert found == [["3.0 GiB", "2.0 GiB"], [], ["0.75 of it"], ["0.67 of the time"]]


def test_figure11s_observations_are_statements(scripts):
    seen = [
        {"text": "Blocks differ.", "holds": True, "evidence": ["All."]},
        {"text": "Groups agree.", "holds": False, "evidence": ["Group 1: no.", "Group 2: no."]},
    ]
    assert list(scripts["_statements"].check_statements({"figure11": {"observations": seen}})) == [
        ("Figure 11: blocks differ", "holds"),
        ("Figure 11: groups agree", "Group 1: no; Group 2: no"),
    ]


@pytest.mark.whole
@pytest.mark.slow
def test_the_smallest_models_make_a_whole_page(run_script, tmp_path):
    """Runs `make paper SMOKE=1`, without figures of the same scripts with more models."""
    pytest.importorskip("matplotlib")
    names = ["table1", "table2", "table3", "figure11", "soybean8", "tensoropt"]
    run_script("scripts/paper.py", "--smoke", "--output", tmp_path, "--only", *names)
    page = (tmp_path / "paper.html").read_text()
    assert "failed" not in page and page.count("<pre>") == len(names)
    assert "No verdicts. Simulated p2.8xlarge, reduced models" in page


def test_a_script_that_fails_fails_the_page(scripts, tmp_path, monkeypatch):
    monkeypatch.setattr(scripts["paper"], "FOLDER", tmp_path)
    (tmp_path / "table1.py").write_text("raise SystemExit('no figure')")
    monkeypatch.setattr(sys, "argv", ["paper.py", "--output", str(tmp_path), "--only", "table1"])
    with pytest.raises(SystemExit, match=r"table1\.py failed: no figure"):
        scripts["paper"].main()
