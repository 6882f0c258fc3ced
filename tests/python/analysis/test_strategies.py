"""Strategies derived symbolically, from descriptions alone."""

from __future__ import annotations

import pytest

import tofu
from tofu import Max, Min, Prod, Sum, TdlError
from tofu.analysis.combine import combination
from tofu.analysis.strategies import concrete_extents
from tofu.lang import Over, exp, like, maximum, minimum, op, where


@op
def conv1d(data, filters):
    return lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])


def _found(description, *shapes) -> dict[str, list[str]]:
    return {
        s.variable: [p.reducer or ("concat" if p.concatenated else "whole") for p in s.outputs]
        for s in tofu.analyze(description, *shapes).strategies
    }


def test_conv1d_is_split_in_five_ways() -> None:
    assert _found(conv1d) == {
        "b": ["concat"],
        "co": ["concat"],
        "x": ["concat"],
        "ci": ["sum"],
        "dx": ["sum"],
    }


def test_conv1d_reads_a_halo() -> None:
    shown = str(tofu.analyze(conv1d))
    rows = [" ".join(line.split()) for line in shown.splitlines()[2:]]
    assert rows == [
        "b concatenate [b.lo..b.hi, :, :] [:, :, :]",
        "co concatenate [:, :, :] [:, co.lo..co.hi, :]",
        "x concatenate [:, :, x.lo..DX+x.hi] [:, :, :]",
        "ci reduce sum [:, ci.lo..ci.hi, :] [ci.lo..ci.hi, :, :]",
        "dx reduce sum [:, :, dx.lo..dx.hi+X] [:, :, dx.lo..dx.hi]",
    ]


def test_batch_cholesky_is_split_over_the_batch() -> None:
    @op
    def batch_cholesky(batch_mat):
        cholesky = tofu.Opaque()
        return lambda b, i, j: cholesky(batch_mat[b, :, :])[i, j]

    analysis = tofu.analyze(batch_cholesky)
    assert [s.variable for s in analysis.strategies] == ["b"]
    assert "[b.lo..b.hi, :, :]" in str(analysis)


def test_no_strategy_is_said() -> None:
    @op
    def lines(a):
        f = tofu.Opaque()
        return lambda *i: f(a[i[:-1], :])[i[-1]]

    vector = tofu.analyze(lines, [(5,)], [(5,)])
    assert "no strategy: every worker computes the whole" in str(vector)


REDUCTIONS = {
    "outermost": (lambda x, w, g: Sum(lambda k: x[k]), ["sum"]),
    "max": (lambda x, w, g: Max(lambda k: x[k]), ["max"]),
    "min": (lambda x, w, g: Min(lambda k: x[k]), ["min"]),
    "prod": (lambda x, w, g: Prod(lambda k: x[k]), ["prod"]),
    "scaled": (lambda x, w, g: 3 * Sum(lambda k: x[k]), ["sum"]),
    "scaled by a tensor": (lambda x, w, g: Sum(lambda k: x[k]) * g, ["sum"]),
    "divided": (lambda x, w, g: Sum(lambda k: x[k]) / g, ["sum"]),
    "negated": (lambda x, w, g: -Sum(lambda k: x[k]), ["sum"]),
    "two sums": (lambda x, w, g: Sum(lambda k: x[k]) + Sum(lambda k: w[k]), ["sum"]),
    "difference": (lambda x, w, g: Sum(lambda k: x[k]) - Sum(lambda k: w[k]), ["sum"]),
    "bias": (lambda x, w, g: Sum(lambda k: x[k]) + g, ["sum"]),
    "scaled bias": (lambda x, w, g: Sum(lambda k: x[k]) - 2 * g, ["sum"]),
    "nested sums": (lambda x, w, g: Sum(lambda j: Sum(lambda k: x[k] * w[j])), ["sum", "sum"]),
    "max of max": (lambda x, w, g: maximum(Max(lambda k: x[k]), g), ["max"]),
    "min of min": (lambda x, w, g: minimum(Min(lambda k: x[k]), g), ["min"]),
    "shape only": (lambda x, w, g: like(Sum(lambda k: x[k]), g), ["sum"]),
}
NOT_REDUCTIONS = {
    "max plus bias": lambda x, w, g: Max(lambda k: x[k]) + g,
    "sum plus constant": lambda x, w, g: Sum(lambda k: x[k]) + 1,
    "bias that is not zero at zero": lambda x, w, g: Sum(lambda k: x[k]) + exp(g),
    "product of sums": lambda x, w, g: Sum(lambda k: x[k]) * Sum(lambda k: w[k]),
    "root": lambda x, w, g: exp(Sum(lambda k: x[k])),
    "reciprocal": lambda x, w, g: 1 / Sum(lambda k: x[k]),
    "sum of max": lambda x, w, g: Sum(lambda j: Max(lambda k: x[k] * w[j])),
    "mixed": lambda x, w, g: Sum(lambda k: x[k]) + Max(lambda k: w[k]),
    "negated max": lambda x, w, g: -Max(lambda k: x[k]),
    "scaled max": lambda x, w, g: Max(lambda k: x[k]) * g,
    "max of sum": lambda x, w, g: maximum(Sum(lambda k: x[k]), g),
    "condition": lambda x, w, g: where(Sum(lambda k: x[k]), g, g),
    "opaque": lambda x, w, g: tofu.Opaque()(Sum(lambda k: x[k])),
    "position as a value": lambda x, w, g: Sum(lambda k: x[k] * k),
    "bias in the sum": lambda x, w, g: Sum(lambda k: x[k] * g) + g,
    "bias that scales": lambda x, w, g: (Sum(lambda k: x[k]) + g) * g,
    "bias that divides": lambda x, w, g: (Sum(lambda k: x[k]) + g) / g,
    "bias in an unlike function": lambda x, w, g: exp(Sum(lambda k: x[k]) + g),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_variables_that_split(name: str) -> None:
    body, reducers = REDUCTIONS[name]

    @op
    def described(x, w, g):
        return lambda i: body(x, w, g[i])

    found = _found(described)
    found.pop("i")
    assert [parts[0] for parts in found.values()] == reducers


@pytest.mark.parametrize("name", NOT_REDUCTIONS)
def test_reduction_variables_that_do_not(name: str) -> None:
    body = NOT_REDUCTIONS[name]

    @op
    def described(x, w, g):
        return lambda i: body(x, w, g[i])

    assert "k" not in _found(described)


def test_a_bias_is_given_to_the_first_part_only() -> None:
    @op
    def dense(data, weight, bias):
        return lambda b, o: Sum(lambda i: data[b, i] * weight[o, i]) + bias[o]

    by_name = {s.variable: s for s in tofu.analyze(dense).strategies}
    assert by_name["i"].only_first == {2}
    assert not by_name["b"].only_first and not by_name["o"].only_first


@pytest.mark.parametrize(("fill", "split"), [(0, True), (1, False), ("-inf", False)])
def test_a_padded_bias_is_zero_only_if_its_fill_is(fill: object, split: bool) -> None:
    @op
    def padded_bias(x, bias):
        return lambda i: Sum(lambda k: x[i, k]) + bias.padded(fill)[i + 1]

    assert ("k" in _found(padded_bias)) is split


@pytest.mark.parametrize(("beyond", "moving"), [((), ("k",)), ((0,), ("i", "k"))])
def test_a_variable_may_leave_a_tensor_that_ends_before_it(beyond, moving) -> None:
    @op
    def bordered(x):
        inside = x.padded(0, beyond=beyond)
        return lambda i, j: Sum(lambda k: inside[i, j + k], extent=3)

    (region,) = tofu.analyze(bordered).inputs
    assert set(region.pad_variables) == {*moving, "j"}


def test_only_outputs_of_one_index_are_pointwise() -> None:
    @op
    def same(x):
        return lambda i, j: x[i, j], lambda i, j: -x[i, j]

    @op
    def turned(x):
        return lambda i, j: x[i, j], lambda j, i: x[i, j]

    @op
    def longer(x):
        return lambda i, j: x[i, j], lambda i: Sum(lambda k: x[i, k])

    found = [tofu.analyze(each).pointwise for each in (same, turned, longer)]
    assert found == [True, False, False]


def test_a_dimension_may_be_longer_than_an_output_but_not_than_another_input() -> None:
    """If an output bounds the variable, the operator reads only the beginning."""

    @op
    def beginning(x):
        return lambda i: x[i]

    @op
    def products(x, w):
        return lambda i: Sum(lambda k: x[i, k] * w[k])

    def extents(described, ins, outs):
        analysis = tofu.analyze(described)
        return concrete_extents(analysis.trace, analysis.extents, ins, outs)

    assert extents(beginning, [(9,)], [(6,)]) == {"i": 6}
    assert extents(products, [(6, 4), (4,)], [(6,)]) == {"i": 6, "k": 4}
    for length in (3, 5):
        with pytest.raises(TdlError, match=f"k has extent 4, but dimension 0 of w is {length}"):
            extents(products, [(6, 4), (length,)], [(6,)])
    with pytest.raises(TdlError, match="i has extent 6, but dimension 0 of x is 5"):
        extents(beginning, [(5,)], [(6,)])


def test_a_bias_that_another_output_reads_is_not_zeroed() -> None:
    @op
    def dense(data, weight, bias):
        return (
            lambda b, o: Sum(lambda i: data[b, i] * weight[o, i]) + bias[o],
            lambda o: bias[o] * 2,
        )

    assert sorted(_found(dense)) == ["b", "o"]


def test_outputs_share_variables() -> None:
    @op
    def normalized(ograd, data):
        return (
            lambda b, c: ograd[b, c] * data[b, c],
            lambda c: Sum(lambda b: ograd[b, c] * data[b, c]),
        )

    assert _found(normalized) == {"b": ["concat", "sum"], "c": ["concat", "concat"]}


def test_outputs_that_disagree_are_not_split() -> None:
    @op
    def disagreeing(x):
        return lambda b, c: x[b, c], lambda b: exp(Sum(lambda c: x[b, c]))

    assert _found(disagreeing) == {"b": ["concat", "concat"]}


def test_an_output_without_the_variable_is_computed_by_every_part() -> None:
    @op
    def two_weights(a, b):
        return Over(["i"], lambda i: a[i] * 2), Over(["j"], lambda j: b[j] * 2)

    assert _found(two_weights) == {"i": ["concat", "whole"], "j": ["whole", "concat"]}


def test_positions_and_floors_are_not_split() -> None:
    @op
    def shifted_values(x):
        return lambda i, j: x[i] + j

    @op
    def repeated(x):
        return lambda i: x[i // 2]

    assert list(_found(shifted_values)) == ["i"]
    assert _found(repeated) == {}


def test_extents_come_from_what_bounds_a_variable() -> None:
    extents = tofu.analyze(conv1d).extents
    shown = {n: (e.kind, e.slot, e.dim) for n, e in extents.items()}
    assert shown == {
        "b": ("output", 0, 0),
        "co": ("output", 0, 1),
        "x": ("output", 0, 2),
        "ci": ("input", 0, 1),
        "dx": ("input", 1, 2),
    }


def test_two_fills_are_refused() -> None:
    @op
    def padded_twice(x):
        return lambda i: x.padded(0)[i + 1] + x.padded("-inf")[i - 1]

    with pytest.raises(TdlError, match="padded in two ways"):
        tofu.analyze(padded_twice)


def test_combination_of_what_does_not_occur_is_free() -> None:
    body = conv1d.trace().outputs[0].body
    assert combination(body, "nowhere").reducer is None
    assert combination(body, "ci").reducer == "sum"
