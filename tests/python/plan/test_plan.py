"""Plan documents: what is read, what is refused, what is printed."""

import json
import re

import pytest

from tofu.errors import PlanError
from tofu.plan import Plan


def _document(**changes):
    document = {
        "format": "tofu-plan",
        "version": 1,
        "workers": 4,
        "graph_hash": "0123456789abcdef",
        "parts": [2, 2],
        "steps": [
            {"parts": 2, "groups": 1, "bytes": 512},
            {"parts": 2, "groups": 2, "bytes": 1024},
        ],
        "total_bytes": 1536,
        "lower_bound_bytes": 1536,
        "gap": 0.0,
        "status": "optimal",
        "search_seconds": 0.01,
        "tensors": [
            {"node": "w", "output": 0, "shape": [8, 6], "dtype": 0, "cuts": [0, 1]},
            {"node": "b", "output": 0, "shape": [3], "dtype": 1, "cuts": [-1, -1]},
        ],
        "operators": [{"node": "fc", "op": "FullyConnected", "cuts": ["b", None], "bytes": 96}],
    }
    document.update(changes)
    return document


def test_reads_what_the_passes_write():
    plan = Plan.from_json(json.dumps(_document()))
    assert plan.workers == 4
    assert plan.tensor("w").tiles(plan.parts) == (2, 2)
    assert plan.tensor("b").replicated and not plan.tensor("w").replicated
    assert plan.replicated_bytes() == {"b": 24}
    assert json.loads(plan.to_json()) == _document()


def test_text_names_every_tensor_and_operator():
    text = Plan.from_json(json.dumps(_document())).to_text()
    assert "4 workers = 2 x 2, 1.5 KiB communicated per training step" in text
    assert re.search(r"^w +8x6 +float32 +2x2 +0 1$", text, re.M)
    assert re.search(r"^b +3 +float64 +1= +- -$", text, re.M)
    assert re.search(r"^fc +FullyConnected +b - +96$", text, re.M)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", '"format": "tofu-plan"'),
        (json.dumps(_document(version=9)), "version 9, this tofu reads version 1"),
        (json.dumps({"format": "tofu-plan", "version": 1}), "incomplete or damaged"),
    ],
)
def test_refuses_other_documents(text, message):
    with pytest.raises(PlanError, match=message):
        Plan.from_json(text)


def test_unknown_tensor_is_named():
    with pytest.raises(PlanError, match="no tensor 'v'"):
        Plan.from_json(json.dumps(_document())).tensor("v")
