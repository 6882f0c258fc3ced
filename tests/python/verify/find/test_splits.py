"""Running a function finds exactly the splits that hold."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mxnet")

from tofu.lang.example_calls import In
from tofu.verify.calls.probes import values
from tofu.verify.find.splits import Outcome, find_ways

FUNCTIONS = {
    "product": (
        lambda x, w: x @ w,
        [(6, 4), (4, 5)],
        [("0, -", "concatenate 0"), ("-, 1", "concatenate 1"), ("1, 0", "sum")],
    ),
    "maximum": (lambda x: x.max(1), [(6, 4)], [("0", "concatenate 0"), ("1", "max")]),
    "minimum": (lambda x: x.min(0), [(6, 4)], [("0", "min"), ("1", "concatenate 0")]),
    "factors": (lambda x: x.prod(0), [(4,)], [("0", "prod")]),
    "mean": (lambda x: x.mean(1), [(6, 4)], [("0", "concatenate 0")]),
    "running sum": (lambda x: x.cumsum(1), [(6, 4)], [("0", "concatenate 0")]),
    "softmax": (
        lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
        [(6, 4)],
        [("0", "concatenate 0")],
    ),
    "bias": (
        lambda x, b: x.sum(1) + b,
        [(6, 4), (6,)],
        [("0, 0", "concatenate 0"), ("1, -", "sum zeros 1")],
    ),
    "outer": (
        lambda x, y: x[:, None] * y,
        [(6,), (4,)],
        [("0, -", "concatenate 0"), ("-, 0", "concatenate 1")],
    ),
    "window": (lambda x: x[:-2] + 2 * x[1:-1] - x[2:], [(9,)], [("0", "concatenate 0 window 2")]),
    "reversed": (lambda x: x[::-1], [(6,)], []),
    "sorted": (lambda x: np.sort(x, 0), [(7, 3)], [("1", "concatenate 1")]),
}


def _text(way) -> tuple[str, str]:
    cuts = ", ".join("-" if d is None else str(d) for d in way.cuts)
    made = way.outcomes[0].kind
    made += "" if way.outcomes[0].dim is None else f" {way.outcomes[0].dim}"
    made += "".join(f" zeros {k}" for k in way.zeroed)
    return cuts, made + (f" window {way.window}" if way.window else "")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ways_are_found(name: str) -> None:
    function, shapes, expected = FUNCTIONS[name]
    samples = [
        [values(In(shape), np.random.default_rng([seed, k])) for k, shape in enumerate(shapes)]
        for seed in range(2)
    ]

    def call(inputs, attrs):
        try:
            return [function(*inputs)]
        except ValueError:
            return None

    assert sorted(map(_text, find_ways(call, samples, {}))) == sorted(expected)


def test_an_attribute_with_the_size_is_found() -> None:
    def call(inputs, attrs):
        (x,) = inputs
        return [x * 2] if int(attrs["rows"]) == len(x) else None

    samples = [[values(In((6, 4)), np.random.default_rng(seed))] for seed in range(2)]
    by_cut = {way.cuts: way for way in find_ways(call, samples, {"rows": "6"})}
    assert by_cut[(0,)].attributes == ("rows",)
    assert by_cut[(1,)].attributes == ()
    assert by_cut[(0,)].outcomes == (Outcome("concatenate", 0),)


def test_other_numbers_of_an_attribute_stay() -> None:
    def call(inputs, attrs):
        (x,) = inputs
        return [x * 2] if attrs["limits"] == f"({len(x)}, 9)" else None

    samples = [[values(In((4,)), np.random.default_rng(seed))] for seed in range(2)]
    (way,) = find_ways(call, samples, {"limits": "(4, 9)"})
    assert way.attributes == ("limits",)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "bool"])
def test_probes_are_of_their_type_and_uneven(dtype: str) -> None:
    drawn = values(In((40,)), np.random.default_rng(3), dtype)
    assert drawn.dtype == dtype
    assert len(set(drawn.tolist())) > 1
    if dtype in ("float64", "float16", "int8"):
        assert (drawn < 0).any() and (drawn > 0).any()
    if dtype in ("int8", "uint8"):
        assert (drawn != 0).all()
