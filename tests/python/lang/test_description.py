"""Descriptions: the paper's examples, and descriptions that the language rejects."""

from __future__ import annotations

from pathlib import Path

import pytest

import tofu
from tofu import Max, Sum, TdlError
from tofu.lang import Over, Reindex, lookup, op, parse_attribute, tracing

HERE = str(Path(__file__).resolve())


# Figure 3, as printed.
# fmt: off
@tofu.op
def conv1d(data, filters):
  return lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x+dx]*filters[ci, co, dx])

@tofu.op
def batch_cholesky(batch_mat):
  Cholesky = tofu.Opaque()  # noqa: N806
  return lambda b, i, j: Cholesky(batch_mat[b, :, :])[i,j]
# fmt: on


def test_the_papers_descriptions_run_as_printed() -> None:
    conv = conv1d.trace()
    assert conv.outputs[0].variables == ("b", "co", "x")
    assert [(t.name, t.rank) for t in conv.inputs] == [("data", 3), ("filters", 3)]
    assert batch_cholesky.trace().outputs[0].variables == ("b", "i", "j")


def _product(x):
    return lambda i, j: x[i * j]


def _product_as_value(x):
    return lambda i, j: x[i] * (i * j)


def _comparison(x):
    return lambda i, j: x[i] if i < j else x[j]


def _equality(x):
    return lambda i, j: x[i] * (i == j)


def _remainder(x):
    return lambda i: x[i % 2]


def _divided_by_a_variable(x):
    return lambda i, j: x[i // j]


def _divided_by_zero(x):
    return lambda i: x[i // 0]


def _truth(x):
    return lambda i: x[i] if i else x[0]


def _wrong_rank(x):
    return lambda i, j: x[i, j] + x[i]


def _unknown_tensor(x):
    return lambda i: x[i] + bias[i]  # noqa: F821 that is the point


def _unknown_attribute(x):
    return lambda i: x[i].real


def _never_bounded(x):
    return lambda i: Sum(lambda k: x[i + k])


def _nothing_to_reduce(x):
    return lambda i: Sum(lambda: x[i])


def _data_dependent(x, indices):
    return lambda i, j: x[indices[i], j]


def _slice_arithmetic(x):
    return lambda i: x[i, :] + 1


def _bounded_slice(x):
    f = tofu.Opaque()
    return lambda i: f(x[i, 1:3])


def _whole_tensor(x):
    return lambda i: x + 1


def _tensor_argument(x):
    return lambda i: tofu.lang.exp(x)


def _value_branch(x):
    return lambda i: x[i] if x[i] > 0 else 0


def _shadowed(x):
    return lambda i: Sum(lambda i: x[i])


def _one_name_twice(x):
    return Over(["i", "i"], lambda a, b: x[a, b])


def _no_lambda(x):
    return 3


def _sum_of_value(x):
    return lambda i: Sum(x[i])


def _no_batch(x):
    f = tofu.Opaque()
    return lambda i, j: f(x[:, :])[i, j]


def _not_affine(x):
    return lambda i: x[2.5 * i]


def _unnamed_attributes(x, **attributes):
    return lambda i: x[i]


REJECTED = [
    (_product, "product of index variables", "i * j", "affine"),
    (_product_as_value, "product of index variables", "i * j", "affine"),
    (_comparison, "comparison of index variables", "i < j", "cannot be compared"),
    (_equality, "comparison of index variables", "i == j", "cannot be compared"),
    (_remainder, "remainder of an index", "i % 2", "affine"),
    (_divided_by_a_variable, "division of an index", "i // j", "by a constant"),
    (_divided_by_zero, "division of an index", "i // 0", "positive"),
    (_truth, "control flow depends on an index", "i", "cannot be compared"),
    (_wrong_rank, "x has rank 2, but its index has rank 1", "x[i]", "one index"),
    (_unknown_tensor, "unknown name", "bias", "tensors and attributes"),
    (_unknown_attribute, "unknown name", "real", "tensors and attributes"),
    (_never_bounded, "variable k is never bounded", "x[i+k]", "give its extent"),
    (_nothing_to_reduce, "Sum has nothing to reduce", "x[i]", "at least one variable"),
    (_data_dependent, "a tensor's element used as an index", "indices[i]", "opaque function"),
    (_slice_arithmetic, "arithmetic on a slice", "x[i, :]", "of an opaque function"),
    (_bounded_slice, "a slice with bounds", "x[1:3]", "index arithmetic"),
    (_whole_tensor, "not an operation of the language", "TensorHandle", "is indexed"),
    (_tensor_argument, "a whole tensor used as a value", "x", "index it"),
    (_value_branch, "control flow depends on a value", "less(0, x[i])", "tofu.lang.where"),
    (_shadowed, "variable i is bound twice", "Sum(lambda ...)", "rename"),
    (_one_name_twice, "variable i is bound twice", "output 0", "rename"),
    (_no_lambda, "not described by a lambda", "3", "return lambda i, j"),
    (_no_batch, "an opaque function has no batch dimension", "Opaque(x[:, :])[i, j]", "x[b, :, :]"),
    (_not_affine, "used as an index", "2.5", "affine"),
    (_sum_of_value, "Sum of something that is not a lambda", "x[i]", "Sum(lambda k"),
]


@pytest.mark.parametrize(
    ("function", "what", "found", "allowed"), REJECTED, ids=[r[0].__name__ for r in REJECTED]
)
def test_rejects_and_shows(function, what: str, found: str, allowed: str) -> None:
    with pytest.raises(TdlError) as caught:
        tofu.analyze(op(function))
    text = str(caught.value)
    head, below = text.split("\n", 1)
    assert what in head
    assert f"in {HERE}:" in below
    assert f"def {function.__name__}" in below
    assert found in below.split("found: ")[1].split("\n")[0]
    assert allowed in below.split("allowed: ")[1]


def test_the_faulty_line_is_marked() -> None:
    with pytest.raises(TdlError) as caught:
        tofu.analyze(op(_product))
    line = _product.__code__.co_firstlineno + 1
    assert f"{HERE}:{line}" in str(caught.value)
    assert "  >     return lambda i, j: x[i * j]" in str(caught.value)


def test_unnamed_attributes_are_rejected_at_once() -> None:
    with pytest.raises(TdlError, match="unnamed attributes"):
        op(_unnamed_attributes)


def test_a_name_is_described_once() -> None:
    import tofu.tdl  # noqa: F401 the first description

    with pytest.raises(TdlError, match=r"relu.*is already described at tdl/elementwise\.py"):

        @op(name="relu")
        def again(x):
            return lambda *i: x[i]


def test_a_plain_description_may_be_edited_but_takes_no_shipped_name() -> None:
    @op
    def edited_in_a_notebook(x):
        return lambda i: x[i]

    @op
    def edited_in_a_notebook(x, y):  # noqa: F811 that is the point
        return lambda i: x[i] + y[i]

    assert lookup("edited_in_a_notebook") is edited_in_a_notebook

    import tofu.tdl  # noqa: F401 the shipped description

    with pytest.raises(TdlError, match=r"sigmoid.*is already described at"):

        @op
        def sigmoid(x):
            return lambda *i: x[i]


def test_one_variable_has_one_extent() -> None:
    @op
    def two_extents(x):
        return lambda i: Sum(lambda k: x[i + k], extent=2) + Sum(lambda k: x[i + k], extent=3)

    with pytest.raises(TdlError, match="variable k has two extents"):
        tofu.analyze(two_extents)


def test_several_names_and_attributes() -> None:
    @op(name=("first_of_two", "second_of_two"))
    def scaled(x, *, factor, axes=(0,), flag=False):
        return lambda i: x[i] * factor + len(axes) + flag

    assert scaled.attributes({"factor": "2.5", "axes": "1", "flag": "1", "other": "x"}) == {
        "factor": 2.5,
        "axes": (1,),
        "flag": True,
    }
    with pytest.raises(TdlError, match="attribute factor is missing"):
        scaled.trace()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(3, 3)", (3, 3)),
        ("[1, 2]", (1, 2)),
        ("(3L, 3L)", (3, 3)),
        ("True", True),
        ("false", False),
        ("None", None),
        ("64", 64),
        ("-1", -1),
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        ("relu", "relu"),
        ("NCHW", "NCHW"),
        ("", ""),
        ("(None, 2)", (None, 2)),
        ("-inf", "-inf"),
    ],
)
def test_mxnets_attribute_texts(text: str, value: object) -> None:
    assert parse_attribute(text) == value


def test_the_default_says_what_a_number_stands_for() -> None:
    assert parse_attribute("1", False) is True
    assert parse_attribute("0", True) is False
    assert parse_attribute("3", (1, 1)) == (3,)
    assert parse_attribute("3", 1) == 3


def test_optional_and_variadic_tensors() -> None:
    @op
    def summed(first, second=None, *rest):
        tensors = [t for t in (first, second, *rest) if t is not None]
        return lambda *i: tofu.lang.apply("sum", *(t[i] for t in tensors))

    for count in (1, 2, 4):
        trace = summed.trace([(2, 3)] * count, [(2, 3)])
        assert len(trace.inputs) == count
        assert trace.outputs[0].variables == ("i0", "i1")

    @op
    def one(x):
        return lambda i: x[i]

    with pytest.raises(TdlError, match="the operator has 2 inputs"):
        one.trace([(2,), (2,)], [(2,)])
    with pytest.raises(TdlError, match="stands for one variable per dimension"):
        tofu.analyze(op(lambda x: lambda *i: x[i]))


def test_keyword_only_variables_follow_the_variadic_ones() -> None:
    @op
    def embedding_like(data, weight):
        row = tofu.Opaque()
        return lambda *i, d: row(data[i], weight[:, d])

    trace = embedding_like.trace([(2, 3), (5, 4)], [(2, 3, 4)])
    assert trace.outputs[0].variables == ("i0", "i1", "d")


def test_missing_and_surplus_outputs() -> None:
    @op
    def two(x):
        return lambda i: x[i], lambda i: x[i] + 1

    assert len(two.trace([(2,)], [(2,)]).outputs) == 1
    with pytest.raises(TdlError, match="has 3 outputs, the description 2"):
        two.trace([(2,)], [(2,)] * 3)
    with pytest.raises(TdlError, match="output 0 has rank 2, but its lambda has rank 1"):
        two.trace([(2,)], [(2, 3)])


def test_shapes_are_asked_for_only_where_given() -> None:
    @op
    def divided_by_its_size(x):
        return lambda i: x[i] / x.shape[0]

    with pytest.raises(TdlError, match="reads a shape"):
        tofu.analyze(divided_by_its_size)
    assert tofu.analyze(divided_by_its_size, [(4,)], [(4,)]).strategies


def test_computed_variables_and_shared_dimensions() -> None:
    @op
    def merge(x):
        return Reindex(["a", "b"], x.shape, at=lambda a, b: a * 5 + b, value=lambda a, b: x[a, b])

    analysis = tofu.analyze(merge, [(6, 5)], [(30,)])
    assert list(analysis.extents) == ["a", "b"]

    @op
    def rows(x):
        return Over(["r"], lambda r: Max(Over(["c"], lambda c: x[r, c])))

    assert [s.variable for s in tofu.analyze(rows).strategies] == ["r", "c"]


def test_importing_tofu_imports_nothing_large() -> None:
    import subprocess
    import sys

    code = "import sys, tofu; tofu.op; tofu.analyze; print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr


def test_a_description_serves_more_operators() -> None:
    import tofu.tdl

    @tofu.op(name="_test_serving")
    def serving(x):
        return lambda *i: tofu.lang.apply("f", x[i])

    assert lookup("_test_served") is None
    serving.serves("_test_served")
    assert lookup("_test_served") is serving
    assert serving.names == ("_test_serving", "_test_served")
    with pytest.raises(TdlError, match=r"relu.*is already described at tdl/elementwise\.py"):
        serving.serves("relu")


def test_the_parameters_of_a_callable_that_is_no_function() -> None:
    class Body:
        def __call__(self, i, j, *rest, only): ...

    assert tracing._parameters(Body()) == (("i", "j"), ("only",), "rest")
