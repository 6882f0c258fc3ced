"""Plan documents: reading them, and errors."""

import json

import pytest

from tofu.errors import PlanError
from tofu.plans import Plan, TensorPlan
from tofu.plans.render.text import render_text

from .documents import document


def test_reads_what_the_passes_write():
    plan = Plan.from_json(json.dumps(document()))
    assert plan.workers == 4
    assert plan.tensor("w").tiles(plan.parts) == (2, 2)
    assert plan.tensor("b").replicated and not plan.tensor("w").replicated
    assert plan.replicated_bytes() == {}, "b has enough elements"
    assert json.loads(plan.to_json()) == document()


@pytest.mark.parametrize(
    ("shape", "cuts", "expected"),
    [((2,), (0, -1), True), ((6,), (0, -1), False), ((8, 3), (-1, -1), False), ((), (-1,), True)],
)
def test_only_what_nothing_can_cut_has_to_be_replicated(shape, cuts, expected):
    assert TensorPlan("w", 0, shape, 0, cuts).indivisible((2, 2)) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", '"format": "tofu-plan"'),
        (json.dumps(document(version=9)), "version 9, but this tofu reads 1"),
        (json.dumps({"format": "tofu-plan", "version": 1}), "incomplete or damaged"),
    ],
)
def test_refuses_other_documents(text, message):
    with pytest.raises(PlanError, match=message):
        Plan.from_json(text)


def test_unknown_tensor_is_named():
    with pytest.raises(PlanError, match="no tensor 'v'"):
        Plan.from_json(json.dumps(document())).tensor("v")


def test_a_workers_bytes_are_added_up_once():
    held = {"parameters": 10, "fetch_buffers": 5, "total": 15}
    plan = Plan.from_json(json.dumps(document(bytes_per_worker=held)))
    assert plan.bytes_per_worker == {"parameters": 10, "fetch_buffers": 5}
    assert "a worker holds 15 bytes (an estimate): parameters 10 bytes" in render_text(plan)
    assert json.loads(plan.to_json())["bytes_per_worker"] == held
