"""Rows of the strategy table, and the parts of operators that they define."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

import tofu
from tofu import InconclusiveError, Sum, TdlError
from tofu.analysis import TABLE_VERSION, document, row_for, table
from tofu.analysis.apply_row import parts_of
from tofu.lang import Reindex, Rewrite, exp, log, op


@op
def table_dense(data, weight, bias):
    return lambda b, o: Sum(lambda i: data[b, i] * weight[o, i]) + bias[o]


@op
def table_shift(a):
    return lambda i: a[i + 2]


@op
def table_mean(x):
    count = x.shape[1]
    return lambda b: Sum(lambda k: x[b, k]) / count


@op
def table_positions(x):
    return lambda b, k: x[b, k] + k


@op
def table_merge(x):
    a, b = x.shape
    return Reindex(["a", "b"], [a, b], at=lambda i, j: i * b + j, value=lambda i, j: x[i, j])


@op(rewrites=[Rewrite("size", {"size": "i"}), Rewrite("shape", {"output_shape": 0})])
def table_pad(x):
    source = x.padded(0)
    return lambda b, i: Sum(lambda k: source[b, i + k - 1], extent=3)


DENSE = ([(4, 6), (8, 6), (8,)], [(4, 8)])


def _names(row: dict, key: str = "splittable") -> list[str]:
    return [row["vars"][v]["name"] for v in row[key]]


def test_a_row_is_what_the_format_says() -> None:
    row = row_for("table_dense", {}, *DENSE)

    def plain(v):
        lo, hi = ({"terms": [[v, end, 1]], "const": 0, "div": 1} for end in (0, 1))
        return {"lo": lo, "hi": hi}

    assert row == {
        "op": "table_dense",
        "source": row["source"],
        "elementwise": False,
        "random": False,
        "linear": False,
        "vars": [
            {"name": "b", "extent": ["output", 0, 0]},
            {"name": "o", "extent": ["output", 0, 1]},
            {"name": "i", "extent": ["input", 0, 1]},
        ],
        "splittable": [0, 1, 2],
        "outputs": [{"dims": [plain(0), plain(1)], "reduce": {"2": "sum"}}],
        "inputs": [
            {"dims": [plain(0), plain(2)], "only_first": []},
            {"dims": [plain(1), plain(2)], "only_first": []},
            {"dims": [plain(1)], "only_first": [2]},
        ],
        "attrs": [],
    }


def test_rows_are_made_once() -> None:
    assert row_for("table_dense", {}, *DENSE) is row_for("table_dense", {}, *DENSE)


def test_what_is_not_described_has_no_row() -> None:
    assert row_for("no_such_operator", {}, [(2,)], [(2,)]) is None
    attrs = {"kernel": "(3, 3)", "num_filter": "4", "layout": "NHWC"}
    assert row_for("Convolution", attrs, [(2, 8, 8, 4), (4, 3, 3, 4)], [(2, 6, 6, 4)]) is None


def test_shapes_that_contradict_the_description() -> None:
    with pytest.raises(TdlError, match="variable i has extent 6, but dimension 1 of weight is 5"):
        row_for("table_dense", {}, [(4, 6), (8, 5), (8,)], [(4, 8)])


def test_a_part_starts_where_its_own_offset_counts_from() -> None:
    row = row_for("table_shift", {}, [(10,)], [(8,)])
    parts = parts_of(row, {}, [(10,)], [(8,)], [(0, 2)])
    assert [p.inputs for p in parts] == [(((0, 6),),), (((4, 10),),)]
    assert [p.outputs for p in parts] == [(((0, 4),),), (((4, 8),),)]


def test_a_mean_is_not_split_where_it_counts() -> None:
    assert _names(row_for("table_mean", {}, [(4, 6)], [(4,)])) == ["b"]


def test_positions_are_not_split() -> None:
    assert _names(row_for("table_positions", {}, [(4, 6)], [(4, 6)])) == ["b"]


def test_a_merged_dimension_splits_where_parts_are_contiguous() -> None:
    row = row_for("table_merge", {}, [(6, 5)], [(30,)])
    assert _names(row) == ["a"]
    assert row["vars"][0]["extent"] == 6
    parts = parts_of(row, {}, [(6, 5)], [(30,)], [(0, 3)])
    assert [p.outputs[0] for p in parts] == [((0, 10),), ((10, 20),), ((20, 30),)]


def test_extents_of_one_are_not_split() -> None:
    assert _names(row_for("relu", {}, [(1, 6)], [(1, 6)])) == ["i1"]


def test_padding_is_filled_where_space_is_split() -> None:
    attrs = {"kernel": "(3, 3)", "num_filter": "4", "pad": "(1, 1)", "no_bias": "True"}
    shapes = [(2, 2, 8, 8), (4, 2, 3, 3)], [(2, 4, 8, 8)]
    row = row_for("Convolution", attrs, *shapes)
    assert row["inputs"][0]["pad"]["fill"] == 0
    y0 = [v["name"] for v in row["vars"]].index("y0")
    first, second = parts_of(row, attrs, *shapes, [(y0, 2)])
    assert first.inputs[0] == ((0, 2), (0, 2), (-1, 5), (-1, 9))
    assert second.inputs[0] == ((0, 2), (0, 2), (3, 9), (-1, 9))
    assert first.attributes["pad"] == "(0, 0)"
    (b,) = (k for k, v in enumerate(row["vars"]) if v["name"] == "b")
    assert parts_of(row, attrs, *shapes, [(b, 2)])[0].attributes["pad"] == "(1, 1)"


def test_an_output_that_nothing_reads_is_shaped_like_an_input() -> None:
    attrs = {"kernel": "(3, 3)", "num_filter": "4", "__tofu_gradients__": "parameters"}
    data, weight, bias, ograd = (2, 2, 8, 8), (4, 2, 3, 3), (4,), (2, 4, 6, 6)
    inputs, outputs = [ograd, data, weight, bias], [data, weight, bias]
    row = row_for("_backward_Convolution", attrs, inputs, outputs)
    assert [output.get("like") for output in row["outputs"]] == [1, None, None]
    assert set(_names(row)) == {"b", "co", "ci", "k0", "k1", "y0", "y1"}


def test_attributes_are_rewritten() -> None:
    attrs = {"num_hidden": "8"}
    row = row_for("FullyConnected", attrs, *DENSE)
    assert row["attrs"] == [{"name": "num_hidden", "vars": [1], "value": {"size": 1}}]
    assert parts_of(row, attrs, *DENSE, [(1, 4)])[0].attributes == {"num_hidden": "2"}
    row = row_for("Reshape", {"shape": "(-1,)"}, [(6, 4)], [(24,)])
    part = parts_of(row, {"shape": "(-1,)"}, [(6, 4)], [(24,)], [(0, 3)])[0]
    assert part.attributes["shape"] == "(8,)"


def test_a_document_lists_rows_once() -> None:
    row = row_for("table_dense", {}, *DENSE)
    relu = row_for("relu", {}, [(4, 8)], [(4, 8)])
    table = json.loads(document([None, row, relu, None, row]))
    assert table["format"] == "tofu-strategy-table" and table["version"] == TABLE_VERSION
    assert table["nodes"] == [-1, 0, 1, -1, 0]
    assert [r["op"] for r in table["rows"]] == ["table_dense", "relu"]


def _dense(data, weight, bias):
    return data @ weight.T + bias


def _shift(a):
    return a[2:]


def _merge(x):
    return x.reshape(-1)


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("table_dense", _dense, [(4, 6), (8, 6), (8,)]),
        ("table_shift", _shift, [(14,)]),
        ("table_merge", _merge, [(6, 5)]),
    ],
)
def test_two_steps_of_splits_against_numpy(name: str, function, shapes) -> None:
    rng = np.random.default_rng(7)
    inputs = [rng.normal(size=s) for s in shapes]
    whole = function(*inputs)
    row = row_for(name, {}, shapes, [whole.shape])
    for first in row["splittable"]:
        for second in row["splittable"]:
            splits = [(first, 2), (second, 1 if first == second else 2)]
            parts = parts_of(row, {}, shapes, [whole.shape], splits)
            reduced = [
                k for k, (v, _) in enumerate(splits) if str(v) in row["outputs"][0]["reduce"]
            ]
            terms: dict = {}
            for part in parts:
                given = [
                    np.zeros_like(a[_slices(box)]) if zeros else a[_slices(box)]
                    for a, box, zeros in zip(inputs, part.inputs, part.zeros)
                ]
                key = tuple(part.digits[k] for k in reduced)
                term = terms.setdefault(key, np.full(whole.shape, np.nan))
                term[_slices(part.outputs[0])] = function(*given)
            total = functools.reduce(np.add, terms.values())
            np.testing.assert_allclose(total, whole, err_msg=f"{name}: {splits}")


def _slices(box) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in box)


def test_shipped_descriptions_say_where_they_stand() -> None:
    row = row_for("relu", {}, [(4,)], [(4,)])
    file, line = row["source"].split(":")
    assert file == "tdl/elementwise.py" and int(line) > 1
    assert tofu.analyze(table_pad, [(2, 8)], [(2, 8)]).inputs[0].pad_variables == ("i", "k")


def test_strategies_hold_together_too() -> None:
    """Each strategy alone leaves one dimension whole, and the operator needs no more."""

    @op
    def table_one_whole(x):
        if x.shape[0] != 6 and x.shape[1] != 4:
            raise InconclusiveError("one dimension must be whole")
        return lambda i, j: x[i, j]

    @op
    def table_either(x):
        return lambda i, j: x[i, j]

    shapes = [(6, 4)], [(6, 4)]
    assert _names(row_for("table_either", {}, *shapes)) == ["i", "j"]
    assert _names(row_for("table_one_whole", {}, *shapes)) == ["i"]


def test_a_dimension_without_elements_is_not_split():
    """Even if rows for larger shapes are cached."""
    assert row_for("relu", {}, [(4, 6)], [(4, 6)])["splittable"] == [0, 1]
    assert row_for("relu", {}, [(0, 6)], [(0, 6)])["splittable"] == [1]


def test_a_size_may_stand_for_several() -> None:
    row = {
        "vars": [{"name": "i", "extent": ["input", 0, 0]}],
        "inputs": [],
        "outputs": [],
        "attrs": [{"name": "units", "vars": [0], "value": {"size": 0, "times": 3}}],
    }
    parts = parts_of(row, {"units": "18"}, [(6,)], [(6,)], [(0, 2)])
    assert [part.attributes["units"] for part in parts] == ["9", "9"]


def test_rows_and_analyses_that_are_kept_have_a_limit(monkeypatch):
    """Otherwise rows of every new batch size, or attribute with a shape, would stay in memory."""
    assert table._row.cache_info().maxsize == table._ROWS_KEPT
    monkeypatch.setattr(table, "_SYMBOLIC", {})
    monkeypatch.setattr(table, "_ANALYSES_KEPT", 3)
    for number in range(8):
        row_for("_plus_scalar", {"scalar": f"{number}.25"}, [(4, 6)], [(4, 6)])
        assert len(table._SYMBOLIC) <= 3
    assert any(("scalar", "7.25") in key[1] for key in table._SYMBOLIC)


def test_an_operator_is_elementwise_over_equal_shapes_only():
    over_equal = row_for("elemwise_add", {}, [(5, 7), (5, 7)], [(5, 7)])
    assert over_equal is not None and over_equal["elementwise"]
    of_a_row = row_for("broadcast_add", {}, [(5, 7), (1, 7)], [(5, 7)])
    assert of_a_row is not None and not of_a_row["elementwise"]


@op
def table_log_sum(x):
    return lambda b: log(Sum(lambda k: exp(x[b, k]))) - 2


@op
def table_log_of_any(x):
    return lambda b: log(Sum(lambda k: x[b, k]))


@op(rewrites=[Rewrite("start", {"begin": "k"})])
def table_told(x, *, start=0):
    return lambda b, k: x[b, k] + (k + start)


@op(rewrites=[Rewrite("start", {"begin": "k"})])
def table_told_twice(x, *, start=0):
    return lambda b, k: x[b, k] + (k + start) + start


def test_the_logarithm_of_a_sum_combines_if_no_part_of_the_sum_is_negative() -> None:
    row = row_for("table_log_sum", {}, [(4, 6)], [(4,)])
    assert (_names(row), row["outputs"][0]["reduce"]) == (["b", "k"], {"1": "logsumexp"})
    assert _names(row_for("table_log_of_any", {}, [(4, 6)], [(4,)])) == ["b"]


@op
def table_weighted_mean(x, values):
    def total(b):
        return Sum(lambda k: exp(x[b, k]))

    return (
        lambda b, d: Sum(lambda k: exp(x[b, k]) * values[k, d]) / total(b),
        lambda b: log(total(b)),
    )


@op
def table_weighted_mean_alone(x, values):
    return lambda b, d: Sum(lambda k: exp(x[b, k]) * values[k, d]) / Sum(lambda k: exp(x[b, k]))


@op
def table_weighted_mean_of_any(x, values):
    def total(b):
        return Sum(lambda k: x[b, k])

    return (
        lambda b, d: Sum(lambda k: x[b, k] * values[k, d]) / total(b),
        lambda b: log(total(b)),
    )


def test_means_combine_if_the_logarithm_of_their_weights_is_an_output() -> None:
    shapes = [(4, 6), (6, 5)]
    row = row_for("table_weighted_mean", {}, shapes, [(4, 5), (4,)])
    assert _names(row) == ["b", "d", "k"]
    mean, logarithm = row["outputs"]
    assert (mean["reduce"], mean["weights"]) == ({"2": "weighted"}, {"output": 1, "dims": [0]})
    assert (logarithm["reduce"], "weights" in logarithm) == ({"2": "logsumexp"}, False)
    assert _names(row_for("table_weighted_mean_alone", {}, shapes, [(4, 5)])) == ["b", "d"]
    assert "k" not in _names(row_for("table_weighted_mean_of_any", {}, shapes, [(4, 5), (4,)]))
    assert _names(table.unweighted(row)) == ["b", "d"]


def test_a_variable_is_a_value_if_an_attribute_tells_parts_where_it_begins() -> None:
    row = row_for("table_told", {}, [(4, 6)], [(4, 6)])
    assert _names(row) == ["b", "k"]
    parts = parts_of(row, {}, [(4, 6)], [(4, 6)], [(1, 3)])
    assert [part.attributes for part in parts] == [{"start": begin} for begin in ("0", "2", "4")]
    assert _names(row_for("table_told_twice", {}, [(4, 6)], [(4, 6)])) == ["b"]
    assert [s.variable for s in tofu.analyze(table_told, [(4, 6)]).strategies] == ["b", "k"]
