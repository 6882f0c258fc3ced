"""The head of a plan's page: does it fit, the largest weights, the cost, and what to do next."""

import dataclasses
import json

import pytest

from tofu.plans import Plan
from tofu.plans.render.html import render_html
from tofu.plans.render.overview import overview

from ..documents import document
from .pages import Page

COMMAND = ("tofu plan --workers 4", "net")
COLOURS = ("#000000", "#111111", "#222222", "#333333")


def planned(weights=(), **changes):
    """A plan of weights: name, shape and cuts."""
    tensors = [
        {"node": name, "output": 0, "shape": shape, "dtype": 0, "cuts": cuts}
        for name, shape, cuts in weights
    ]
    operators = [
        {"node": f"{name}_update", "op": "sgd_update", "cuts": ["x", "x"], "bytes": 0}
        for name, _, _ in weights
    ]
    plan = Plan.from_json(json.dumps(document(tensors=tensors, operators=operators, **changes)))
    return dataclasses.replace(plan, bytes_per_worker={"parameters": 300, "activations": 700})


@pytest.mark.parametrize(
    ("limit", "verdict", "line"),
    [
        (2000, "It fits: a worker holds 1,000 bytes of 2.0 KiB.", 100 / 2 / 1.05),
        (500, "It does not fit: a worker holds 1,000 bytes of 500 bytes.", 500 / 40 / 1.05),
        (None, "A worker holds 1,000 bytes; one device alone would hold about 3.9 KiB.", None),
    ],
)
def test_memory_is_compared_with_the_limit_and_one_device(limit, verdict, line):
    serial = 4000
    found = overview(planned(), COLOURS, COMMAND, limit_bytes=limit, serial_bytes=serial)
    assert found.verdict == verdict
    worker, alone = found.bars
    assert [share.label for share in worker.shares] == [
        "parameters 300 bytes",
        "activations 700 bytes",
    ]
    assert sum(share.width for share in worker.shares) == pytest.approx(1000 / 40 / 1.05)
    assert alone.shares[0].width == pytest.approx(100 / 1.05)
    assert found.limit == (None if limit is None else pytest.approx(100 * limit / 4000 / 1.05))


def test_alike_weights_are_drawn_once_with_a_stripe_for_each_owner():
    weights = [(f"layer{n}_weight", [8, 8], [0, -1]) for n in range(3)]
    weights += [(f"{name}_weight", [4, 2], [0, 1]) for name in "abcdefg"]
    found = overview(planned(weights), COLOURS, COMMAND).weights
    assert found[0].text == "3 x 8x8, 256 bytes; copies of tiles 2x1; cut 0 -"
    (whole,) = overview(planned([("w_weight", [8, 8], [-1, -1])]), COLOURS, COMMAND).weights
    assert whole.text == "8x8, 256 bytes; whole on every worker"
    assert len(found) == 6
    assert found[0].name == "layer*_weight"
    assert found[0].text.startswith("3 x 8x8, ")
    assert (found[0].columns, found[0].rows) == (1, 2)
    assert found[0].cells == (
        (0, 0.0, 0.5, COLOURS[0], "workers 0, 1"), (0, 0.5, 0.5, COLOURS[1], "workers 0, 1"),
        (0, 1.0, 0.5, COLOURS[2], "workers 2, 3"), (0, 1.5, 0.5, COLOURS[3], "workers 2, 3"),
    )  # fmt: skip
    assert [cell[:4] for cell in found[1].cells] == [
        (column, row, 1.0, COLOURS[2 * row + column]) for row in (0, 1) for column in (0, 1)
    ]


def test_advice_leaves_out_what_was_given():
    lines = [line for line, _ in overview(planned(), COLOURS, COMMAND).advice]
    assert "tofu plan --workers 4 --memory 12GiB net" in lines
    again = overview(planned(), COLOURS, ("tofu plan --memory 1GiB --workers 4", "net")).advice
    assert not any("12GiB" in line for line, _ in again)
    assert len(again) == len(lines) - 1


def test_the_page_begins_with_it():
    weights = [("<w>_weight", [8, 8], [0, 1])]
    page = Page(render_html(planned(weights), limit_bytes=2000, serial_bytes=4000))
    texts = [text for text in page.texts if text]
    assert texts.index("Does it fit?") < texts.index("The largest weights") < texts.index("Layers")
    assert "<w>__weight" in "_".join(texts), "a line may break after each _"
    assert page.data["limit"] == 2000
    assert page.data["tensors"]["prices"] == {}
