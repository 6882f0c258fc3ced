"""The values with which operators are called."""

from __future__ import annotations

import numpy as np
import pytest

from tofu.lang.example_calls import In
from tofu.verify.calls.probes import values


def draw(kind: str, shape: tuple[int, ...] = (6, 8), high: int = 0, dtype: str = "float64"):
    return values(In(shape, kind, high), np.random.default_rng(1), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "int8"])
def test_reals_have_both_signs_and_no_zero(dtype: str) -> None:
    found = draw("real", dtype=dtype)
    assert found.dtype == dtype and found.shape == (6, 8)
    assert (found > 0).any() and (found < 0).any() and (found != 0).all()


def test_reals_are_all_different() -> None:
    assert len(set(np.abs(draw("real")).ravel())) == 48


def test_positive_ones_lie_between_0_and_1() -> None:
    found = draw("positive")
    assert found.min() > 0 and found.max() < 1


def test_unsigned_ones_are_positive() -> None:
    assert draw("real", dtype="uint8").min() > 0


def test_integers_lie_below_their_bound_and_counts_reach_it() -> None:
    assert set(draw("int", high=3).ravel()) == {0, 1, 2}
    assert set(draw("count", high=3).ravel()) == {1, 2, 3}
    assert set(draw("flag").ravel()) == {0, 1}


def test_what_has_a_structure() -> None:
    assert sorted(draw("permutation", (5,))) == [0, 1, 2, 3, 4]
    assert list(draw("edges", (3,))) == [0, 0.5, 1]
    np.testing.assert_allclose(draw("share").sum(axis=-1), 1)
    matrices = draw("definite", (2, 3, 3))
    np.testing.assert_allclose(matrices, np.swapaxes(matrices, 1, 2))
    assert np.linalg.eigvalsh(matrices).min() > 0


@pytest.mark.parametrize("kind", ["boxes", "rois"])
def test_the_second_corner_of_a_box_is_beyond_the_first(kind: str) -> None:
    found = draw(kind, (9, 5), high=4)
    assert set(found[:, 0]) <= {0, 1, 2, 3}
    assert (found[:, 3:] > found[:, 1:3]).all()
    assert (found[:, 3:].max() > 1) == (kind == "rois")
