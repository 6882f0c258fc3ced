"""The comparison of an operator's parts with its whole passes rounding, and finds faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import tofu.tdl  # noqa: F401 registers the descriptions
from tofu.lang.example_calls import case, real
from tofu.verify.run import by_parts
from tofu.verify.run.by_parts import MismatchError, Run, check_distribution, check_equal

RELU = case("relu", real(6, 4))


def test_parts_that_leave_something_out_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(RELU, 1)
    all_parts = by_parts.parts_of
    monkeypatch.setattr(by_parts, "parts_of", lambda *args: all_parts(*args)[:-1])
    with pytest.raises(MismatchError, match="parts leave out some of output 0"):
        run.check([(0, 2)])


def test_parts_that_overlap_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(RELU, 1)
    all_parts = by_parts.parts_of
    monkeypatch.setattr(by_parts, "parts_of", lambda *args: all_parts(*args) * 2)
    run.check([])
    results = iter([[run.outputs[0] + 1], run.outputs])  # the last one is right
    monkeypatch.setattr(run, "_run_part", lambda part: next(results))
    with pytest.raises(MismatchError, match="parts disagree on output 0"):
        run.check([])


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [("float64", 1e-10, 1e-7), ("float32", 1e-4, 1e-2), ("float16", 1e-2, 0.5)],
)
def test_rounding_may_differ_and_no_more(dtype: str, within: float, beyond: float) -> None:
    whole = np.array([1.0, -2.0, 0.0], dtype)
    check_equal(whole + np.array(within, dtype), whole, "here")
    with pytest.raises(MismatchError, match="here: differs by up to"):
        check_equal(whole + np.array(beyond, dtype), whole, "here")


def test_a_small_sum_of_large_terms_may_differ_by_their_rounding() -> None:
    whole = np.array([1e6, 0.0])
    check_equal(np.array([1e6, 1e-4]), whole, "here")


def test_whole_numbers_must_be_equal() -> None:
    with pytest.raises(MismatchError, match="differs by up to 1"):
        check_equal(np.array([1, 2]), np.array([1, 3]), "here")


def test_samples_of_one_distribution_pass_and_others_do_not() -> None:
    rng = np.random.default_rng(1)
    sample: Any = rng.normal(size=(40, 50))
    check_distribution(rng.normal(size=(40, 50)), sample, "here")
    for other in (sample + 0.5, sample * 2, np.abs(sample)):
        with pytest.raises(MismatchError, match="here: distributions"):
            check_distribution(other, sample, "here")
    check_distribution(np.zeros((0,)), np.zeros((0,)), "nothing to compare")
