"""Boxes of index space."""

import itertools
import random

from tofu.boxes import Box


def test_a_box_has_corners_and_a_shape():
    box = Box([(2, 5), (0, 1)])
    assert (box.begin, box.end, box.shape) == ((2, 0), (5, 1), (3, 1))
    assert Box.between((2, 0), (5, 1)) == box == ((2, 5), (0, 1))
    assert Box.whole((4, 3)) == ((0, 4), (0, 3))
    assert len({box, Box(box), Box.whole((5, 1))}) == 2


def test_a_box_without_dimensions_is_a_number():
    assert Box.whole(()).shape == Box(()).begin == ()


def test_clipped_is_what_lies_inside():
    chance = random.Random(1)
    for _ in range(200):
        shape = [chance.randrange(1, 6) for _ in range(chance.randrange(4))]
        begin = [chance.randrange(-3, 5) for _ in shape]
        box = Box.between(begin, [b + chance.randrange(1, 6) for b in begin])
        found = box.clipped(shape)
        for (low, high), (first, last), size in zip(box, found, shape):
            assert set(range(first, last)) == set(range(low, high)) & set(range(size))


def test_common_is_what_lies_in_both():
    chance = random.Random(2)

    def indices(box):
        return set(itertools.product(*(range(low, high) for low, high in box)))

    for _ in range(200):
        rank = chance.randrange(4)
        one, other = (
            Box((low, low + chance.randrange(1, 5)) for low in chance.choices(range(5), k=rank))
            for _ in "ab"
        )
        found = one.common(other)
        assert (set() if found is None else indices(found)) == indices(one) & indices(other)


def test_a_box_relative_to_another():
    box = Box([(4, 6), (1, 2)])
    assert box.relative_to(Box([(3, 9), (0, 5)])) == ((1, 3), (1, 2))
