"""The difference of two plans as text."""

import json

from tofu.plans import Plan
from tofu.plans.render.difference import differ, render_difference

from ..documents import document


def planned(**bytes_of):
    """A plan of one operator per layer that fetches these bytes."""
    operators = [
        {"node": f"{layer}_fwd", "op": "FullyConnected", "cuts": ["b", None], "bytes": fetched}
        for layer, fetched in bytes_of.items()
    ]
    total = sum(bytes_of.values())
    return Plan.from_json(json.dumps(document(operators=operators, total_bytes=total)))


def test_layers_that_fetch_more_or_less_are_listed_the_largest_change_first():
    first = planned(dense0=100, dense1=500, dense2=30)
    second = planned(dense0=100, dense1=200, dense2=730)
    lines = render_difference(first, second, ("a.plan", "b.plan")).splitlines()
    start = lines.index("Bytes fetched by layer, largest changes first")
    assert [line.split() for line in lines[start + 2 : start + 5]] == [
        ["layer", "a.plan", "b.plan", "change"],
        ["dense2", "30", "bytes", "730", "bytes", "+700", "bytes"],
        ["dense1", "500", "bytes", "200", "bytes", "-300", "bytes"],
    ]
    assert lines[start + 5] == ""


def test_plans_that_split_an_operator_differently_differ():
    first, second = planned(dense0=100, dense1=200), planned(dense0=200, dense1=100)
    assert (first.tensors, first.total_bytes) == (second.tensors, second.total_bytes)
    assert differ(first, second)
    assert not differ(first, planned(dense0=100, dense1=200))
