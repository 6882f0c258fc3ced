"""The boxes that processes with different tiles exchange."""

import itertools
import random

import numpy as np
import pytest

from tofu.boxes import Box, piece
from tofu.gluon.updates.exchanged_boxes import Described, common_boxes, packed, unpacked


def tiles(shape, parts):
    """The tiles that cut each dimension into these numbers of parts."""
    spans = [
        [piece((0, size), count, number) for number in range(count)]
        for size, count in zip(shape, parts)
    ]
    return [Box(each) for each in itertools.product(*spans)]


def test_equal_tiles_are_exchanged_as_they_are():
    own = tiles((7, 6), (3, 2))
    assert common_boxes([own, own[::-1], own]) == tuple(own)
    assert common_boxes([own]) == tuple(own)
    assert common_boxes([[Box(())], [Box(())]]) == (Box(()),)


def test_boxes_lie_in_one_tile_of_every_process():
    assert common_boxes([tiles((7,), (2,)), tiles((7,), (3,))]) == (
        Box([(0, 3)]),
        Box([(3, 4)]),
        Box([(4, 5)]),
        Box([(5, 7)]),
    )


@pytest.mark.parametrize("seed", range(30))
def test_boxes_cover_every_element_once(seed):
    chance = random.Random(seed)
    shape = [chance.randint(1, 9) for _ in range(chance.randint(1, 3))]
    layouts = [
        tiles(shape, [chance.randint(1, min(3, size)) for size in shape])
        for _ in range(chance.randint(1, 4))
    ]
    boxes = common_boxes(layouts)
    assert boxes == common_boxes(layouts[::-1])
    found = np.zeros(shape, int)
    for box in boxes:
        found[tuple(slice(*bounds) for bounds in box)] += 1
        assert all(sum(box.common(tile) == box for tile in layout) == 1 for layout in layouts)
    assert (found == 1).all()


def test_descriptions_are_messages():
    own = Described({"parameter 0": "[7, 6] float32 write", "n": 3}, [tiles((7, 6), (3, 2)), []])
    assert unpacked(packed(own)) == own
    assert isinstance(unpacked(packed(own)).tiles[0][0], Box)
