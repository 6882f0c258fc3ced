"""Parts with shares: equality, documents, and the pieces of tensors."""

import json

import pytest

from tofu.errors import PlanError
from tofu.plans import Plan
from tofu.plans.parts import Parts
from tofu.plans.render.text import render_text

from .documents import document


def test_shares_tell_parts_apart():
    plain, shared = Parts((2, 2)), Parts((2, 2), ((3, 1), ()))
    assert plain == (2, 2) and hash(plain) == hash((2, 2))
    assert shared != plain and plain != shared and shared != (2, 2)
    assert shared == Parts((2, 2), [[3, 1], []])
    assert shared != Parts((2, 2), ((3, 1), ()), multiple=8)
    assert Parts(shared) == shared and Parts(list(shared)) == plain
    assert len({plain, shared, (2, 2)}) == 2
    assert (plain.text, shared.text) == ("2 x 2", "2 (3:1) x 2")
    assert plain.are_equal and not shared.are_equal


def test_pieces_have_their_shares():
    shared = Parts((2, 2), ((3, 1), ()))
    assert shared.bounds((16, 5), (0, 1)) == [[(0, 12), (12, 16)], [(0, 3), (3, 5)]]
    assert shared.bounds((16,), (0, 0)) == [[(0, 6), (6, 12), (12, 14), (14, 16)]]
    assert Parts((2,), multiple=8).bounds((1000,), (0,)) == [[(0, 504), (504, 1000)]]


def test_a_document_has_shares():
    shares = {"shares": [[3, 1], None], "tile_multiple": 4}
    plan = Plan.from_json(json.dumps(document(**shares)))
    assert plan.parts == Parts((2, 2), ((3, 1), ()), 4)
    text = render_text(plan)
    assert "4 workers (2 (3:1) x 2)" in text
    assert "step 1 gives its parts 75%, 25%" in text
    assert "2x2 (6 or 2 of 8)" in text
    assert "devices differ" not in render_text(Plan.from_json(json.dumps(document())))


@pytest.mark.parametrize("shares", [[[3, 1]], [[3, 1, 1], None], [[3, 1], None, None]])
def test_shares_of_other_steps_are_damage(shares):
    with pytest.raises(PlanError, match="damaged"):
        Plan.from_json(json.dumps(document(shares=shares)))
