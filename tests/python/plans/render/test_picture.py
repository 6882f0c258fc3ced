"""Pictures of a tensor's tiles, with the workers that own each."""

import itertools
import math
import random

import pytest

from tofu.plans import TensorPlan
from tofu.plans.render.picture import draw, worker_pieces


def box(tensor, parts, worker):
    """The worker's tile as docs/formats.md defines it: begin and end along each dimension."""
    digits, rest = [], worker
    for count in reversed(parts):
        digits.append(rest % count)
        rest //= count
    begin, end = [0] * len(tensor.shape), list(tensor.shape)
    for cut, count, digit in zip(tensor.cuts, parts, reversed(digits)):
        if cut >= 0:
            size, larger = divmod(end[cut] - begin[cut], count)
            begin[cut] += digit * size + min(digit, larger)
            end[cut] = begin[cut] + size + (digit < larger)
    return tuple(begin), tuple(end)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_the_boxes_of_the_format(seed):
    print(f"seed {seed}")
    generator = random.Random(seed)
    parts = [generator.choice((2, 3)) for _ in range(3)]
    shape = tuple(generator.randint(27, 40) for _ in range(generator.randint(1, 3)))
    cuts = tuple(generator.randint(-1, len(shape) - 1) for _ in parts)
    tensor = TensorPlan("t", 0, shape, 0, cuts)
    bounds = tensor.bounds(parts)
    for worker, piece in enumerate(worker_pieces(tensor, parts)):
        spans = [each[number] for each, number in zip(bounds, piece)]
        assert tuple(zip(*spans)) == box(tensor, parts, worker)


def test_every_worker_is_in_one_cell_of_a_picture():
    for cuts in itertools.product((-1, 0, 1, 2), repeat=3):
        tensor = TensorPlan("t", 0, (8, 8, 8), 0, cuts)
        picture = draw(tensor, (2, 2, 2))
        owners = [worker for cell in picture.cells for worker in cell.workers]
        assert sorted(owners) == list(range(8))
        assert len(picture.cells) == math.prod(tensor.tiles((2, 2, 2)))
        assert picture.rows * picture.columns * picture.planes == len(picture.cells)
        assert len({(cell.row, cell.column) for cell in picture.cells}) == len(picture.cells)


@pytest.mark.parametrize(("shape", "rows"), [((8,), 4), ((), 1)])
def test_vectors_are_columns_and_scalars_one_cell(shape, rows):
    picture = draw(TensorPlan("t", 0, shape, 0, (0, 0) if shape else (-1, -1)), (2, 2))
    assert (picture.rows, picture.columns, picture.planes) == (rows, 1, 1)
    assert picture.column_dimension is None


def test_cut_dimensions_are_those_that_are_drawn():
    picture = draw(TensorPlan("t", 0, (8, 8, 8), 0, (2, 1)), (2, 2))
    assert (picture.row_dimension, picture.column_dimension) == (1, 2)
    # Step 1 cuts the columns, so workers 0 and 1 own the left half.
    left = {worker for cell in picture.cells if cell.column == 0 for worker in cell.workers}
    assert left == {0, 1}


def test_axes_may_be_given():
    picture = draw(TensorPlan("t", 0, (8, 8, 8, 8), 0, (0, 3)), (2, 2), axes=(0, 1))
    assert (picture.rows, picture.columns, picture.planes) == (2, 1, 2)
