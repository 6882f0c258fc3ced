"""Explanations of a tensor's cuts and an operator's splits."""

import json

import pytest

pytest.importorskip("mxnet")

from tofu import models
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import PlanError
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions
from tofu.plans.render.explain import explain, read


def way(cut, local, searched=None):
    return {
        "cut": cut,
        "local_bytes": local,
        "searched_bytes": local if searched is None else searched,
    }


def tensor(ways, chosen=0, tied=1):
    return {
        "format": "tofu-explanation",
        "name": "w",
        "total_bytes": 1000,
        "operator": None,
        "tensor": {
            "name": "w",
            "shape": [8, 6],
            "dtype": 0,
            "cuts": [chosen],
            "tied": tied,
            "steps": [{"parts": 2, "chosen": chosen, "alternatives": ways}],
        },
    }


@pytest.mark.parametrize(
    ("ways", "chosen", "expected"),
    [
        pytest.param(
            [way(0, 1000), way(1, 4000, 3500)],
            0,
            "The next best, dimension 1, would communicate 2,500 bytes more",
            id="dearer",
        ),
        pytest.param(
            [way(0, 1000), way(1, 1000)], 0, "Dimension 1 would communicate the same", id="equal"
        ),
        pytest.param(
            [way(0, 1000), way(1, 1000, 900)],
            0,
            "Dimension 1 would communicate 100 bytes less; a pin, the search mode or",
            id="cheaper",
        ),
        pytest.param(
            [way(0, 1000)], 0, "No other dimension is long enough for this step", id="only"
        ),
        pytest.param(
            [way(-1, 900), way(0, 1000), way(1, 1300)],
            0,
            "The next best, dimension 1, would communicate 300 bytes more",
            id="whole is no next best",
        ),
        pytest.param(
            [way(-1, 900), way(0, 1000)],
            0,
            "long enough for this step to cut it evenly. Leaving it whole would communicate 100",
            id="only, and whole is cheaper",
        ),
        pytest.param([way(-1, 1000)], -1, "No dimension has an element for each part", id="none"),
        pytest.param(
            [way(0, 1000), way(-1, 400)],
            0,
            "Leaving it whole would communicate 600 bytes less",
            id="whole",
        ),
    ],
)
def test_reason_of_a_cut(ways, chosen, expected):
    (section,) = read(json.dumps(tensor(ways, chosen))).sections
    assert expected in section.reason


def test_pieces_that_are_not_equal_are_told():
    document = tensor([way(0, 1000)])
    document["tensor"]["shape"] = [1025, 6]
    document["tensor"]["steps"] *= 2
    halves, quarters = read(json.dumps(document)).sections
    assert halves.reason.endswith(" Its pieces then hold 513 or 512 of 1,025.")
    assert quarters.reason.endswith(" Its pieces then hold 257 or 256 of 1,025.")
    (even,) = read(json.dumps(tensor([way(0, 1000)]))).sections
    assert "pieces" not in even.reason


def test_what_is_cut_alike_is_counted():
    (section,) = read(json.dumps(tensor([way(0, 1000)], tied=3))).sections
    assert section.reason.endswith("2 more tensors are cut alike with it.")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (900, "split along i would fetch 100 less; the search mode"),
        (1000, "split along i would fetch the same."),
        (1300, "the next best, split along i, would fetch 300 more."),
    ],
)
def test_reason_of_a_split(other, expected):
    def split(variable, fetched):
        return {"variable": variable, "bytes": fetched, "inputs": [], "outputs": []}

    ways = [split("b", 1000), split("i", other), split(None, 0)]
    step = {"parts": 2, "chosen": "b", "strategies": ways}
    operator = {"name": "fc", "op": "FullyConnected", "steps": [step], "variables": {}}
    document = {**tensor([way(0, 1000)]), "operator": operator}
    assert expected in read(json.dumps(document)).sections[-1].reason


def test_text_marks_what_was_chosen():
    text = read(json.dumps(tensor([way(0, 1000), way(1, 4000, 3500)]))).to_text()
    assert "Tensor w (8x6 float32), step 1 of 1, in 2 parts: dimension 0\n" in text
    assert "  dimension 0  <-  1,000" in text
    assert "  dimension 1      4,000 (+3,000)" in text
    assert text.count("3,500 (+2,500)") == 1


def test_other_documents_are_refused():
    with pytest.raises(PlanError, match='no "format": "tofu-explanation"'):
        read("{}")


@pytest.fixture(scope="module")
def problem():
    graph = models.build("mlp", 8, reduced=True).training_graph()
    return Problem("mlp", strategy_table(graph)[0], 4)


def test_an_operator_is_explained_with_its_tensor(problem):
    plan = plan_graph(problem)
    found = explain(problem, plan, "mlp_dense0_fwd")
    assert [section.title.split()[0] for section in found.sections] == ["Tensor"] * 2 + [
        "Operator"
    ] * 2
    operator = next(each for each in plan.operators if each.node == "mlp_dense0_fwd")
    for section in found.sections[2:]:
        (chosen,) = [row for row in section.rows if row[1] == "<-"]
        assert chosen[2] == f"{operator.bytes:,}"
        assert "mlp_dense0_weight" in section.header
        assert all(len(row) == len(section.header) for row in section.rows)


def test_a_pin_that_costs_is_named(problem):
    reasons = [
        section.reason
        for dimension in (0, 1)
        for pinned in [SearchOptions(pins=(("mlp_dense0_weight", (dimension,)),))]
        for section in explain(problem, plan_graph(problem, pinned), "mlp_dense0_weight").sections
    ]
    assert any("bytes less; a pin" in reason for reason in reasons)


def problem_of(name):
    graph = models.build(name, 8, reduced=True).training_graph()
    return Problem(name, strategy_table(graph)[0], 2)


def test_index_variables_in_words():
    problem = problem_of("alexnet")
    plan = plan_graph(problem)
    _, convolution = [o for o in plan.operators if o.op == "Convolution"][:2]
    text = explain(problem, plan, convolution.node).to_text()
    assert "split along b (batch)" in text
    assert "split along ci (input channels)" in text
    activation = next(o for o in plan.operators if o.op == "Activation")
    text = explain(problem, plan, activation.node).to_text()
    assert "split along i0 (dimension 0 of the output)" in text


def test_stages_in_words():
    """A lowered operator's stages carry its name, and say what they compute."""
    problem = problem_of("wresnet-50-4")
    plan = plan_graph(problem)
    stages = [o for o in plan.operators if "::" in o.node]
    shown = [o.label for o in stages]
    assert {"mean", "variance", "gradient, slope"} <= {
        text.partition(": ")[2].rstrip(" 0123456789") for text in shown
    }
    assert len(set(shown)) == len(shown)
    assert "Convolution" not in " ".join(shown)
    mean = next(o for o in stages if o.label.endswith(": mean"))
    section = explain(problem, plan, mean.node).sections[-1]
    assert section.title.startswith(f"Operator {mean.label} (")
