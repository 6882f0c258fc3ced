"""The scripts of the paper's figures and tables, on reduced models."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture(scope="module")
def modules(import_script):
    """The scripts that other scripts import, as modules."""
    return {name: import_script(name) for name in ("_common", "_fetches", "_blocks")}


@pytest.mark.whole
def test_figure10_compares_all_algorithms(run_script, tmp_path):
    pytest.importorskip("matplotlib")
    text = run_script("scripts/figure10.py", "--smoke", "--output", tmp_path)
    document = json.loads((tmp_path / "figure10.json").read_text())
    for model in ("rnn-4-8k, reduced", "wresnet-152-10, reduced"):
        assert f"{model}, batch 8, 8 workers (modelled)" in text
        sizes = {r["mode"]: r["total_bytes"] for r in document["rows"] if r["model"] == model}
        assert len(sizes) == 8 + model.startswith("rnn")  # and the plan for time
        # Modes that search only some of tofu's plans cannot be better.
        assert sizes["flat"] <= sizes["tofu"] <= sizes["recursion"]
        assert sizes["tofu"] < min(sizes[m] for m in ("allrow-greedy", "spartan", "equalchop"))
    steps = {}
    # The figure has bytes of both models, and times of one.
    assert (tmp_path / "figure10.svg").read_text().count("ICML18") == 3
    for row in document["rows"]:
        if row["model"] == "wresnet-152-10, reduced":
            continue
        assert 0 < row["compute_seconds"] <= row["step_seconds"] * 1.001
        steps[row["mode"]] = row["step_seconds"]
    assert steps.pop("data-parallel") > 0  # it holds whole weights
    assert steps["time"] == min(steps.values())
    assert document["context"]["mxnet"].startswith("1.9")


def test_figure11_draws_and_tells(run_script, tmp_path):
    pytest.importorskip("matplotlib")
    text = run_script("scripts/figure11.py", "--smoke", "--output", tmp_path)
    document = json.loads((tmp_path / "figure11.json").read_text())
    assert len(document["observations"]) == 6
    for observation in document["observations"]:
        verdict = "holds" if observation["holds"] else "does not hold"
        assert f"{observation['text']} -> {verdict}" in text
        assert observation["evidence"]
    assert sum(run["times"] for group in document["groups"] for run in group) == 3
    assert "worker 7" in (tmp_path / "figure11.svg").read_text()


def test_no_labels_of_figure11_overlap(import_script):
    """The labels of the full model, which are longer than those of the reduced one."""
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    raw = RESULTS / "figure11.json"
    figure = import_script("figure11").picture(json.loads(raw.read_text()))
    renderer = figure.canvas.get_renderer()
    texts = figure.axes[0].texts
    boxes = [text.get_window_extent(renderer) for text in texts]
    pyplot.close(figure)
    assert len(texts) > 100
    for i, box in enumerate(boxes):
        for j in range(i):
            assert not box.overlaps(boxes[j]), (texts[i].get_text(), texts[j].get_text())


@pytest.mark.whole
def test_table1_times_every_variant(run_script, tmp_path):
    text = run_script("scripts/table1.py", "--smoke", "--time-limit", "2", "--output", tmp_path)
    cells = json.loads((tmp_path / "table1.json").read_text())["cells"]
    assert len(cells) == 8
    assert all(cell["seconds"] or cell["reason"] for cell in cells)
    assert "with recursion" in text


@pytest.mark.parametrize("model", ["rnn-4-8k", "wresnet-152-10", "transformer"])
def test_a_second_count_of_what_is_fetched_agrees(modules, model):
    """The second count is in Python, operator by operator, from only the plan and the table."""
    from tofu.planner.search import plan_graph

    problem = modules["_common"].problem(model, batch_size=8, reduced=True)
    plan = plan_graph(problem)
    counter = modules["_fetches"].Counter(problem, plan)
    costs = {operator.node: operator.bytes for operator in plan.operators}
    counted = {
        node["name"]: sum(fetch.bytes for fetch in counter.fetches(number))
        for number, node in enumerate(counter.nodes)
        if node["op"] != "null"
    }
    assert counted == costs
    assert sum(counted.values()) == plan.total_bytes > 0


def tensor(name, shape, cuts):
    from tofu.plans import TensorPlan

    return TensorPlan(name, 0, shape, 0, cuts)


def block(modules, channels, split, *, activation=(0, 0), weights=10, activations=30):
    convolution = modules["_blocks"].Convolution(
        layer="conv0",
        weight=tensor("w", (channels, 8, 1, 1), (0, 0)),
        activation=tensor("x", (8, 8, 4, 4), activation),
        output=tensor("y", (8, channels, 4, 4), (0, 0)),
        split=split,
        backward_split=split,
        weight_bytes=weights,
        activation_bytes=activations,
    )
    return (convolution,)


def test_blocks_that_are_alike_are_drawn_once(modules):
    one, other = block(modules, 8, ("b", "b")), block(modules, 8, ("b", "co"))
    runs = modules["_blocks"].runs_of([one, other, other, one])
    assert [times for _, times in runs] == [1, 2, 1]


def test_observations_follow_the_plan(modules):
    module = modules["_blocks"]
    first, later = ("b", "b"), ("b", "co")
    blocks = [
        block(modules, 8, first, weights=90),
        block(modules, 8, later, weights=90),
        block(modules, 16, first, activation=(1, 1)),
        block(modules, 16, later, activation=(1, 1)),
    ]
    both, within, repeated, firsts, lower, higher = module.observations(blocks)
    assert both.holds and "2 along batch only, 2 along channels only" in both.evidence[0]
    assert not within.holds  # one convolution a block
    assert repeated.holds and firsts.holds
    assert lower.holds and "(75% weights)" in lower.evidence[0]
    assert higher.holds and "75%, 25%" in higher.evidence[0]

    same = [block(modules, 8, first), block(modules, 8, first)]
    both, _, _, firsts, lower, _ = module.observations(same)
    assert not both.holds and not firsts.holds and not lower.holds
    assert "agree in all common convolutions" in firsts.evidence[0]


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("script", ["table3", "figure8", "figure9"])
def test_systems_are_compared_and_drawn(import_script, script, tmp_path, monkeypatch):
    comparison = import_script(script).COMPARISON
    one = dataclasses.replace(comparison, models=comparison.models[:1])
    systems = import_script("_systems")
    monkeypatch.setattr(sys, "argv", [script, "--smoke", "--output", str(tmp_path)])
    systems.main(one, "doc")
    document = json.loads((tmp_path / f"{script}.json").read_text())
    assert document["simulated"] and document["reduced"]
    assert [row["system"] for row in document["rows"]] == list(comparison.systems)
    assert all(row["step_seconds"] > 0 for row in document["rows"])
    picture = (tmp_path / f"{script}.svg").read_text()
    assert "simulated on p2.8xlarge" in picture
    again = tmp_path / "again"
    again.mkdir()
    (again / f"{script}.json").write_text(json.dumps(document))
    monkeypatch.setattr(sys, "argv", [script, "--draw", str(again / f"{script}.json")])
    systems.main(one, "doc")
    assert (again / f"{script}.svg").read_text() == picture
    document["made"]["commit"] = "of the kept rows"
    rows = again / "rows.json"
    rows.write_text(json.dumps(document))
    monkeypatch.setattr(
        sys, "argv", [script, "--smoke", "--rows", str(rows), "--output", str(tmp_path)]
    )
    systems.main(one, "doc")
    assert json.loads((tmp_path / f"{script}.json").read_text()) == document
