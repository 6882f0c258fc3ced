"""Composite operators in stages: when, and that they compute the same."""

import mxnet as mx
import pytest

from .models import random
from .test_lower import assert_equal, operators

sym = mx.sym
WORKERS = 2


def norm(op, shape, scales, **options):
    symbol = op(sym.var("x"), sym.var("gamma"), sym.var("beta"), **options)
    parameters = {"x": random(shape, "float64")}
    parameters.update(
        {n: random((scales,), "float64", seed=k) for k, n in enumerate(("gamma", "beta"), 1)}
    )
    return symbol, parameters


LINES = {
    "softmax": (sym.softmax, {}),
    "softmax along the first axis": (sym.softmax, {"axis": 0}),
    "temperature": (sym.softmax, {"temperature": 2.5}),
    "softmin": (sym.softmin, {}),
    "log_softmax": (sym.log_softmax, {"axis": -1}),
    "log_softmax, temperature": (sym.log_softmax, {"temperature": 0.5}),
}


@pytest.mark.parametrize("name", LINES)
def test_softmax(name):
    op, options = LINES[name]
    symbol = op(sym.var("x"), **options)
    parameters = {"x": random((4, 3, 5) if options.get("axis") == 0 else (3, 5, 4), "float64")}
    assert_equal(symbol, {}, parameters, workers=WORKERS)
    assert op.__name__ not in operators(symbol, {}, parameters, workers=WORKERS)


def test_softmax_cross_entropy():
    symbol = sym.softmax_cross_entropy(sym.var("x"), sym.var("label"))
    parameters = {"x": random((3, 4), "float64")}
    inputs = {"label": mx.nd.array([0, 3, 1], dtype="float64")}
    assert_equal(symbol, inputs, parameters, workers=WORKERS)
    assert "one_hot" in operators(symbol, inputs, parameters, workers=WORKERS)


@pytest.mark.parametrize(
    ("op", "shape", "scales", "options"),
    [
        (sym.LayerNorm, (3, 5, 4), 4, {}),
        (sym.LayerNorm, (3, 4, 5), 4, {"axis": 1, "eps": 0.1}),
        (sym.LayerNorm, (3, 4), 4, {"output_mean_var": True}),
        (sym.GroupNorm, (3, 4, 5, 5), 2, {"num_groups": 2}),
        (sym.GroupNorm, (1, 6, 4), 3, {"num_groups": 3, "eps": 0.1}),
    ],
)
def test_normalizations(op, shape, scales, options):
    symbol, parameters = norm(op, shape, scales, **options)
    assert_equal(symbol, {}, parameters, workers=WORKERS)
    assert op.__name__ not in operators(symbol, {}, parameters, workers=WORKERS)


HEADS, SIZE = 2, 3
ATTENTION = {
    "selfatt_qk": [(4, 1, 3 * HEADS * SIZE)],
    "selfatt_valatt": [(4, 1, 3 * HEADS * SIZE), (HEADS, 4, 4)],
    "encdec_qk": [(5, 1, HEADS * SIZE), (3, 1, 2 * HEADS * SIZE)],
    "encdec_valatt": [(3, 1, 2 * HEADS * SIZE), (HEADS, 5, 3)],
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_head_by_head(name):
    shapes = ATTENTION[name]
    names = [f"x{k}" for k in range(len(shapes))]
    op = getattr(sym.contrib, f"interleaved_matmul_{name}")
    symbol = op(*map(sym.var, names), heads=HEADS)
    parameters = {n: random(s, "float32", seed=k) for k, (n, s) in enumerate(zip(names, shapes))}
    assert_equal(symbol, {}, parameters, workers=WORKERS, tolerance=2e-5)
    assert "batch_dot" in operators(symbol, {}, parameters, workers=WORKERS)


@pytest.mark.parametrize(
    ("shape", "workers", "fused"),
    [
        ((4, 6), 1, True),  # nobody to share it with
        ((4, 6), 4, True),  # a batch for everybody
        ((2, 6, 6), 4, True),  # two dimensions share it
        ((3, 5), 2, True),  # nothing that could be divided
        ((3, 6), 2, False),
        ((2, 6), 4, False),
    ],
)
def test_an_operator_stays_whole_where_its_parts_gain_nothing(shape, workers, fused):
    symbol, parameters = sym.softmax(sym.var("x")), {"x": random(shape, "float64")}
    found = operators(symbol, {}, parameters, workers=workers)
    assert ("softmax" in found) == fused


def test_half_precision_and_lengths_stay_whole():
    symbol, parameters = norm(sym.LayerNorm, (3, 4), 4)
    half = {name: array.astype("float16") for name, array in parameters.items()}
    assert "LayerNorm" in operators(symbol, {}, half, workers=WORKERS)
    symbol = sym.softmax(sym.var("x"), sym.var("length"), use_length=True)
    inputs = {"length": mx.nd.array([1, 2, 4], dtype="int32")}
    assert "softmax" in operators(symbol, inputs, {"x": random((3, 4), "float32")}, workers=WORKERS)
