"""Layouts, and the cuts that lead to them."""

import pytest

from tofu.boxes import Box
from tofu.plans.layout import Layout, cuts_of


def layout(shape, *boxes):
    return Layout(shape, "float32", tuple(Box(box) for box in boxes))


ROWS = [[(i, i + 1), (0, 4)] for i in range(4)]
BLOCKS = [[(2 * i, 2 * i + 2), (2 * j, 2 * j + 2)] for i in (0, 1) for j in (0, 1)]


@pytest.mark.parametrize(
    ("boxes", "parts", "cuts"),
    [
        (ROWS, (4,), (0,)),
        (ROWS, (2, 2), (0, 0)),
        (BLOCKS, (2, 2), (0, 1)),
        ([BLOCKS[i] for i in (0, 2, 1, 3)], (2, 2), (1, 0)),
        ([[(0, 2), (0, 4)]] * 2 + [[(2, 4), (0, 4)]] * 2, (2, 2), (0, -1)),
        ([[(0, 4), (0, 4)]] * 4, (2, 2), (-1, -1)),
        (ROWS[::-1], (4,), None),
        (BLOCKS, (4,), None),
    ],
)
def test_cuts_lead_to_a_layout(boxes, parts, cuts):
    assert cuts_of(layout((4, 4), *boxes), parts) == cuts


def test_unequal_parts():
    boxes = [[(i * 2 + j * 0, i * 2 + 2), (j * 3, j * 3 + 3)] for i in range(3) for j in (0, 1)]
    assert cuts_of(layout((6, 6), *boxes), (3, 2)) == (0, 1)
    assert cuts_of(layout((6, 6), *boxes), (2, 3)) is None


def test_pieces_that_are_not_equal():
    thirds = [[(0, 3), (0, 4)], [(3, 5), (0, 4)], [(5, 7), (0, 4)]]
    assert cuts_of(layout((7, 4), *thirds), (3,)) == (0,)
    assert cuts_of(layout((7, 4), *thirds[::-1]), (3,)) is None
    assert (
        cuts_of(layout((7, 4), [(0, 3), (0, 4)], [(3, 6), (0, 4)], [(6, 7), (0, 4)]), (3,)) is None
    )


def test_numbers_have_no_dimension_to_cut():
    assert cuts_of(layout((), *[()] * 2), (2,)) == (-1,)
