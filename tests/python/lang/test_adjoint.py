"""Adjoints derived from forward descriptions."""

from __future__ import annotations

import pytest

import tofu
from tofu import InconclusiveError, Sum
from tofu.analysis import row_for
from tofu.lang import adjoint, op


def _strategies(description, ins, outs) -> dict[str, list]:
    analysis = tofu.analyze(description, ins, outs)
    return {
        s.variable: [p.reducer or ("concat" if p.concatenated else "whole") for p in s.outputs]
        for s in analysis.strategies
    }


def test_matrix_product() -> None:
    @op
    def backward(ograd, a, b):
        forward = lambda i, j: Sum(lambda k: a[i, k] * b[k, j])  # noqa: E731
        return tuple(adjoint(forward, ograd, [a, b]))

    found = _strategies(backward, [(4, 8), (4, 6), (6, 8)], [(4, 6), (6, 8)])
    assert found == {
        "i": ["concat", "sum"],
        "k": ["concat", "concat"],
        "j": ["sum", "concat"],
    }


def test_entangled_variables_stay_whole() -> None:
    @op
    def backward(ograd, data, filters):
        forward = lambda b, co, x: Sum(  # noqa: E731
            lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx]
        )
        return tuple(adjoint(forward, ograd, [data, filters]))

    shapes = [(4, 6, 8), (4, 2, 10), (2, 6, 3)]
    found = _strategies(backward, shapes, shapes[1:])
    assert found == {
        "b": ["concat", "sum"],
        "ci": ["concat", "concat"],
        "co": ["sum", "concat"],
    }


def test_a_diagonal_stays_whole() -> None:
    @op
    def backward(ograd, data):
        return tuple(adjoint(lambda b, i: data[b, i, i], ograd, [data]))

    found = _strategies(backward, [(4, 6), (4, 6, 6)], [(4, 6, 6)])
    assert found == {"b": ["concat"]}


def test_a_bias_is_summed_over_what_it_lacks() -> None:
    @op
    def backward(ograd, data, bias):
        return tuple(adjoint(lambda b, o: data[b, o] + bias[o], ograd, [data, bias]))

    found = _strategies(backward, [(4, 6), (4, 6), (6,)], [(4, 6), (6,)])
    assert found == {"b": ["concat", "sum"], "o": ["concat", "concat"]}


def test_a_nonlinear_function_reads_its_own_operands() -> None:
    @op
    def backward(ograd, x, y):
        forward = lambda i: tofu.lang.exp(x[i]) * y[i]  # noqa: E731
        return tuple(adjoint(forward, ograd, [x, y]))

    analysis = tofu.analyze(backward, [(4,)] * 3, [(4,)] * 2)
    assert [s.variable for s in analysis.strategies] == ["i"]
    assert all(region is not None for region in analysis.inputs)


@pytest.mark.parametrize("reducer", [tofu.Max, tofu.Min, tofu.Prod])
def test_a_reduction_that_is_no_sum_needs_all_that_it_reduces(reducer) -> None:
    """A part of the variable k would only have the maximum of its own elements."""

    @op
    def backward(ograd, x, w):
        forward = lambda i: reducer(lambda k: x[i, k] + w[k])  # noqa: E731
        return tuple(adjoint(forward, ograd, [x, w]))

    shapes = [(4, 6), (6,)]
    assert _strategies(backward, [(4,), *shapes], shapes) == {"i": ["concat", "sum"]}

    @op
    def backward_of_data(ograd, x, w):
        forward = lambda i: reducer(lambda k: x[i, k] + w[k])  # noqa: E731
        return tuple(adjoint(forward, ograd, [x]))

    analysis = tofu.analyze(backward_of_data, [(4,), *shapes], shapes[:1])
    assert [region is not None for region in analysis.inputs] == [True, True, True]


def test_a_sum_inside_a_function_needs_all_that_it_sums() -> None:
    @op
    def backward(ograd, x):
        forward = lambda i: tofu.lang.exp(Sum(lambda k: x[i, k]))  # noqa: E731
        return tuple(adjoint(forward, ograd, [x]))

    assert _strategies(backward, [(4,), (4, 6)], [(4, 6)]) == {"i": ["concat"]}


def test_a_factor_that_is_a_maximum_is_not_summed() -> None:
    @op
    def backward(ograd, x, y):
        forward = lambda i: tofu.Max(lambda k: x[i, k]) * y[i]  # noqa: E731
        return tuple(adjoint(forward, ograd, [y]))

    assert _strategies(backward, [(4,), (4, 6), (4,)], [(4,)]) == {"i": ["concat"]}


def test_a_factor_that_is_a_sum_is_summed() -> None:
    @op
    def backward(ograd, x, y):
        forward = lambda i: Sum(lambda k: x[i, k]) * y[i]  # noqa: E731
        return tuple(adjoint(forward, ograd, [y]))

    assert _strategies(backward, [(4,), (4, 6), (4,)], [(4,)]) == {"i": ["concat"], "k": ["sum"]}


def test_one_factor_is_a_product_and_a_sum_of_two_is_none() -> None:
    @op
    def backward_once(ograd, x, w):
        return tuple(adjoint(lambda i: x[i] * w[i], ograd, [x]))

    @op
    def backward_twice(ograd, x, w, v):
        return tuple(adjoint(lambda i: x[i] * w[i] + x[i] * v[i], ograd, [x]))

    assert tofu.analyze(backward_once, [(4,)] * 3, [(4,)]).pointwise
    analysis = tofu.analyze(backward_twice, [(4,)] * 4, [(4,)])
    assert not analysis.pointwise  # ograd * (w + v), not ograd * w * v
    assert [region is not None for region in analysis.inputs] == [True, True, True, True]


def test_two_places_are_refused() -> None:
    @op
    def backward(ograd, x):
        return tuple(adjoint(lambda i: x[i] * x[i + 1], ograd, [x]))

    with pytest.raises(InconclusiveError, match="gradient of x: it occurs at 2 indices"):
        tofu.analyze(backward, [(4,), (5,)], [(5,)])


def test_an_inconclusive_description_gives_no_row() -> None:
    @op
    def undecided(x):
        raise InconclusiveError("not described")

    assert row_for("undecided", {}, [(4,)], [(4,)]) is None
