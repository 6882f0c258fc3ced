"""Inputs that operators may read as terms of a sum, from descriptions alone."""

from __future__ import annotations

import pytest

import tofu.tdl  # noqa: F401 registers the descriptions
from tofu.analysis.terms import linear_inputs
from tofu.lang import Max, Opaque, Sum, exp, like, lookup, op, where
from tofu.lang.description import Description

SHAPE = (6, 4)


@op
def terms_weighted(x, y, w):
    return lambda i: -x[i] * w[i] + y[i] / 2


@op
def terms_square(x):
    return lambda i: x[i] * x[i]


@op
def terms_shifted(x):
    return lambda i: x[i] + 1


@op
def terms_by_itself(x, y):
    return lambda i: x[i] / y[i] + y[i]


@op
def terms_largest(x, y):
    return lambda i: Max(lambda k: x[i, k]) * y[i]


@op
def terms_padded_by_0(x):
    return lambda i: Sum(lambda k: x.padded(0)[i + k], extent=2)


@op
def terms_padded_by_1(x):
    return lambda i: Sum(lambda k: x.padded(1)[i + k], extent=2)


@op
def terms_sized(x, y):
    return lambda i: like(x[i], y[i])


@op
def terms_chosen(x, y):
    return lambda i: where(x[i], y[i], y[i])


@op
def terms_opaque(x, y):
    return lambda i: Opaque()(x[i]) * y[i]


@op
def terms_two(x, y):
    return lambda i: x[i] + y[i], lambda i: x[i] * exp(y[i])


@pytest.mark.parametrize(
    ("description", "ranks", "outputs", "expected"),
    [
        (terms_weighted, (1, 1, 1), 1, [{0, 1}, {1, 2}]),
        (terms_square, (1,), 1, []),
        (terms_shifted, (1,), 1, []),
        (terms_by_itself, (1, 1), 1, []),
        (terms_largest, (2, 1), 1, [{1}]),
        (terms_padded_by_0, (1,), 1, [{0}]),
        (terms_padded_by_1, (1,), 1, []),
        (terms_sized, (1, 1), 1, [{0}]),
        (terms_chosen, (1, 1), 1, []),
        (terms_opaque, (1, 1), 1, [{1}]),
        (terms_two, (1, 1), 2, []),
    ],
    ids=lambda value: value.source.name if isinstance(value, Description) else None,
)
def test_sets_of_inputs(description, ranks, outputs, expected) -> None:
    trace = description.trace([SHAPE[:r] for r in ranks], [SHAPE[:1]] * outputs, {})
    assert sorted(map(sorted, linear_inputs(trace))) == sorted(map(sorted, expected))


@pytest.mark.parametrize(
    ("name", "attrs", "expected"),
    [
        ("add_n", {"num_args": "3"}, {0, 1, 2}),
        ("elemwise_sub", {}, {0, 1}),
        ("_mul_scalar", {"scalar": "0.5"}, {0}),
        ("_div_scalar", {"scalar": "3"}, {0}),
        ("negative", {}, {0}),
    ],
)
def test_gradients_of_shared_weights_are_added_and_scaled_in_terms(name, attrs, expected) -> None:
    description = lookup(name)
    assert description is not None
    trace = description.trace([SHAPE] * len(expected), [SHAPE], attrs)
    assert linear_inputs(trace) == {frozenset(expected)}


def test_a_relu_takes_no_terms() -> None:
    description = lookup("relu")
    assert description is not None
    assert linear_inputs(description.trace([SHAPE], [SHAPE], {})) == frozenset()
