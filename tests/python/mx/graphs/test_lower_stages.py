"""Stages of composite operators are used if needed, and compute the same."""

import mxnet as mx
import numpy as np
import pytest

from ..models import random
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
    parameters = {"x": random((4, 3, 3) if options.get("axis") == 0 else (3, 3, 4), "float64")}
    assert_equal(symbol, {}, parameters, workers=WORKERS)
    assert op.__name__ not in operators(symbol, {}, parameters, workers=WORKERS)


def test_softmax_cross_entropy():
    symbol = sym.softmax_cross_entropy(sym.var("x"), sym.var("label"))
    parameters = {"x": random((3, 4), "float64")}
    inputs = {"label": mx.nd.array([0, 3, 1], dtype="float64")}
    assert_equal(symbol, inputs, parameters, workers=WORKERS)
    found = operators(symbol, inputs, parameters, workers=WORKERS)
    assert "softmax_cross_entropy" not in found
    assert "one_hot" not in found  # whose classes cannot be split


@pytest.mark.parametrize(
    ("op", "shape", "scales", "options"),
    [
        (sym.LayerNorm, (3, 3, 4), 4, {}),
        (sym.LayerNorm, (3, 4, 3), 4, {"axis": 1, "eps": 0.1}),
        (sym.LayerNorm, (3, 4), 4, {"output_mean_var": True}),
        (sym.GroupNorm, (3, 4, 5, 5), 2, {"num_groups": 2}),
        (sym.GroupNorm, (1, 6, 4), 3, {"num_groups": 3, "eps": 0.1}),
    ],
)
def test_normalizations(op, shape, scales, options):
    symbol, parameters = norm(op, shape, scales, **options)
    assert_equal(symbol, {}, parameters, workers=WORKERS)
    assert op.__name__ not in operators(symbol, {}, parameters, workers=WORKERS)


LABELS = {
    "plain": ((3, 4), (3,), {}),
    "scale": ((3, 4), (3,), {"grad_scale": 2.5}),
    "batch": ((3, 4), (3,), {"normalization": "batch"}),
    "valid": ((3, 4), (3,), {"normalization": "valid", "ignore_label": 2}),
    "valid, nothing is": ((1, 4), (1,), {"normalization": "valid", "ignore_label": 2}),
    "ignored": ((3, 4), (3,), {"use_ignore": True, "ignore_label": 1}),
    "smooth": ((3, 4), (3,), {"smooth_alpha": 0.3}),
    "smooth and ignored": (
        *((3, 4), (3,)),
        {"smooth_alpha": 0.3, "use_ignore": True, "ignore_label": 1, "normalization": "valid"},
    ),
    "probabilities": ((3, 4), (3, 4), {"grad_scale": 2.0, "normalization": "batch"}),
    "an instance is a line": ((3, 2, 4), (3, 2, 4), {}),
    "last dimension": ((3, 3, 4), (3, 3), {"preserve_shape": True, "normalization": "batch"}),
    "channels": ((1, 4, 3, 3), (1, 3, 3), {"multi_output": True, "smooth_alpha": 0.3}),
    "channels, batch": ((3, 4, 3), (3, 3), {"multi_output": True, "normalization": "batch"}),
    "channels, valid": (
        *((1, 4, 3, 5), (1, 15)),
        {"multi_output": True, "normalization": "valid", "use_ignore": True, "ignore_label": 2},
    ),
    "channels, flat labels": ((1, 4, 3, 3), (1, 1, 3, 3), {"multi_output": True}),
}


@pytest.mark.parametrize("workers", [1, WORKERS])
@pytest.mark.parametrize("name", LABELS)
def test_softmax_output_is_its_own_gradient(name, workers):
    """With one worker the operator stays, except for counts that a tile cannot make."""
    shape, labels, options = LABELS[name]
    symbol = sym.SoftmaxOutput(sym.var("x"), sym.var("label"), **options)
    label = random(labels, "float64", seed=5)
    if labels != shape:  # fractions are dropped
        label = mx.nd.array(np.arange(label.size).reshape(labels) % 4 + 0.4, dtype="float64")
    if name.endswith("nothing is"):
        label[:] = 2
    inputs, parameters = {"label": label}, {"x": random(shape, "float64")}
    assert_equal(symbol, inputs, parameters, workers=workers, tolerance=1e-7)
    found = operators(symbol, inputs, parameters, workers=workers)
    assert ("SoftmaxOutput" in found) == (workers == 1)


def test_what_softmax_output_says_otherwise_stays_whole():
    symbol = sym.SoftmaxOutput(sym.var("x"), sym.var("label"), out_grad=True)
    inputs = {"label": mx.nd.array([1, 2, 0], dtype="float64")}
    parameters = {"x": random((3, 4), "float64")}
    assert_equal(symbol, inputs, parameters, workers=WORKERS)
    assert "SoftmaxOutput" in operators(symbol, inputs, parameters, workers=WORKERS)


@pytest.mark.parametrize("tokens", ["float32", "int32", "int64"])
@pytest.mark.parametrize("rows", [12, 13, 23])
@pytest.mark.parametrize(("workers", "size"), [(2, 3), (3, 1), (4, 5), (5, 3)])
def test_embedding_block_by_block(tokens, rows, workers, size):
    symbol = sym.Embedding(sym.var("data"), sym.var("w"), input_dim=rows, output_dim=size)
    inputs = {"data": mx.nd.array([[0, rows - 1, 4], [3, 4, 7]], dtype=tokens)}
    parameters = {"w": random((rows, size), "float32")}
    assert_equal(symbol, inputs, parameters, workers=workers, tolerance=1e-6)
    found = operators(symbol, inputs, parameters, workers=workers)
    assert "take" in found and "Embedding" not in found


@pytest.mark.parametrize(
    ("tokens", "rows", "size", "blocks"),
    [
        (3, 12, 6, False),  # enough columns for all workers
        (3, 12, 5, False),  # the same, in unequal parts
        (12, 12, 3, False),  # reading all rows is no more than was looked up
        (3, 12, 3, True),
        (3, 11, 3, True),  # rows that do not divide
        (1, 3, 1, False),  # rows whose parts would be too unequal
    ],
)
def test_rows_of_an_embedding_are_shared_where_that_helps(tokens, rows, size, blocks):
    symbol = sym.Embedding(sym.var("data"), sym.var("w"), input_dim=rows, output_dim=size)
    inputs, parameters = {"data": mx.nd.arange(tokens)}, {"w": random((rows, size), "float32")}
    assert ("take" in operators(symbol, inputs, parameters, workers=WORKERS)) == blocks


HEADS, SIZE = 2, 3
ATTENTION = {
    "selfatt_qk": [(4, 1, 3 * HEADS * SIZE)],
    "selfatt_valatt": [(4, 1, 3 * HEADS * SIZE), (HEADS, 4, 4)],
    "encdec_qk": [(3, 1, HEADS * SIZE), (3, 1, 2 * HEADS * SIZE)],
    "encdec_valatt": [(3, 1, 2 * HEADS * SIZE), (HEADS, 3, 3)],
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
        ((4, 6), 1, True),  # only one worker
        ((4, 6), 4, True),  # a batch large enough for all workers
        ((2, 6, 6), 4, True),  # two dimensions share it
        ((3, 3), 2, True),  # nothing that could be cut evenly
        ((5, 6), 2, True),  # rows of which one worker has 3, the other 2
        ((3, 6), 2, False),
        ((2, 6), 4, False),
    ],
)
def test_an_operator_stays_whole_where_its_parts_gain_nothing(shape, workers, fused):
    symbol, parameters = sym.softmax(sym.var("x")), {"x": random(shape, "float64")}
    found = operators(symbol, {}, parameters, workers=workers)
    assert ("softmax" in found) == fused


@pytest.mark.parametrize(
    ("op", "shape", "scales"), [(sym.LayerNorm, (3, 4), 4), (sym.GroupNorm, (3, 4, 5), 1)]
)
def test_half_precision_stays_whole(op, shape, scales):
    symbol, parameters = norm(op, shape, scales)
    half = {name: array.astype("float16") for name, array in parameters.items()}
    assert op.__name__ in operators(symbol, {}, half, workers=WORKERS)
    assert op.__name__ not in operators(symbol, {}, parameters, workers=WORKERS)


@pytest.mark.parametrize(
    ("shape", "lengths", "options"),
    [
        ((3, 4), [1, 0, 4], {}),
        ((3, 4), [4, 2, 3], {"temperature": 0.5}),
        ((1, 4, 3), [[2, 1, 4]], {"axis": 1}),
    ],
)
def test_softmax_of_lengths(shape, lengths, options):
    symbol = sym.softmax(sym.var("x"), sym.var("length"), use_length=True, **options)
    inputs = {"length": mx.nd.array(lengths, dtype="int32")}
    parameters = {"x": random(shape, "float64")}
    assert_equal(symbol, inputs, parameters, workers=WORKERS)
    assert "softmax" not in operators(symbol, inputs, parameters, workers=WORKERS)


# The batch, the window, and the precisions in which the data's gradient is a transposed
# convolution: if workers need halos and MXNet has a correct one.
BOTH, SINGLE_ONLY, NEITHER = {"float32", "float64"}, {"float32"}, set()
CONVOLUTIONS = [
    (1, {"kernel": (3, 3), "pad": (1, 1)}, BOTH),
    (1, {"kernel": (3, 3), "pad": (1, 1), "no_bias": True}, BOTH),
    (1, {"kernel": (2, 3), "stride": (2, 1), "dilate": (1, 2)}, SINGLE_ONLY),
    (1, {"kernel": (4, 2), "stride": (2, 2), "pad": (1, 0)}, BOTH),
    (1, {"kernel": (1, 1)}, NEITHER),  # no halo
    (2, {"kernel": (3, 3), "pad": (1, 1)}, NEITHER),  # one instance for each worker
    (1, {"kernel": (5,), "pad": (2,)}, BOTH),
    (1, {"kernel": (3, 3, 3), "pad": (1, 1, 1)}, SINGLE_ONLY),
    (1, {"kernel": (3, 3, 3), "pad": (2, 2, 2), "dilate": (2, 2, 2)}, NEITHER),
]
SPACE = (8, 6, 4)


@pytest.mark.parametrize("dtype", sorted(BOTH))
@pytest.mark.parametrize(("batch", "options", "transposed"), CONVOLUTIONS)
def test_a_convolutions_gradients_by_data_and_parameters(batch, options, transposed, dtype):
    symbol = sym.Convolution(sym.var("x"), sym.var("w"), *_bias(options), num_filter=4, **options)
    parameters = {"x": random((batch, 3, *SPACE[: len(options["kernel"])]), dtype)}
    parameters["w"] = random((4, 3, *options["kernel"]), dtype, seed=1)
    if "no_bias" not in options:
        parameters["b"] = random((4,), dtype, seed=2)
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    assert_equal(symbol, {}, parameters, workers=WORKERS, tolerance=tolerance)
    found = operators(symbol, {}, parameters, workers=WORKERS)
    assert ("Deconvolution" in found) == (dtype in transposed)
    assert "_backward_Convolution" in found


# Workers share space if the batch leaves some idle, whether or not anything divides.
@pytest.mark.parametrize(
    ("workers", "shape", "stride", "is_transposed"),
    [
        (3, (1, 3, 8, 4), 1, True),  # rows of 3, 3 and 2
        (3, (1, 3, 4, 4), 1, False),  # one part would hold twice what the others do
        (2, (5, 3, 8, 4), 1, False),  # 3 and 2 images
        (4, (10, 3, 8, 4), 1, False),
        (6, (2, 3, 8, 4), 1, True),  # two images, three parts of each
        (3, (1, 3, 9, 4), 2, False),  # a stride of 2 does not divide 9 rows, and 2 columns are few
        (3, (1, 3, 16, 4), 2, True),
    ],
)
def test_workers_share_space_where_the_batch_leaves_some_idle(
    workers, shape, stride, is_transposed
):
    window = {"kernel": (3, 3), "pad": (1, 1), "stride": (stride, stride)}
    symbol = sym.Convolution(sym.var("x"), sym.var("w"), num_filter=4, no_bias=True, **window)
    parameters = {"x": random(shape, "float64"), "w": random((4, 3, 3, 3), "float64", seed=1)}
    assert_equal(symbol, {}, parameters, workers=workers, tolerance=1e-10)
    found = operators(symbol, {}, parameters, workers=workers)
    assert ("Deconvolution" in found) == is_transposed


POOLINGS = [
    ({"kernel": (3, 3), "pad": (1, 1), "pool_type": "avg"}, BOTH),
    ({"kernel": (3, 3), "pad": (1, 1), "pool_type": "sum"}, BOTH),
    ({"kernel": (2, 4), "stride": (2, 2), "pad": (0, 1), "pool_type": "avg"}, BOTH),
    ({"kernel": (2, 2), "stride": (2, 2), "pool_type": "avg"}, NEITHER),  # windows side by side
    ({"kernel": (3, 3), "pad": (1, 1), "pool_type": "avg", "count_include_pad": False}, NEITHER),
    (
        {"kernel": (3, 3), "stride": (2, 2), "pool_type": "avg", "pooling_convention": "full"},
        NEITHER,
    ),
    ({"kernel": (3, 3), "pad": (1, 1), "pool_type": "max"}, NEITHER),
    ({"kernel": (3, 3, 3), "pad": (1, 1, 1), "pool_type": "avg"}, SINGLE_ONLY),
]


@pytest.mark.parametrize("dtype", sorted(BOTH))
@pytest.mark.parametrize(("options", "transposed"), POOLINGS)
def test_a_pooling_gradient_channel_by_channel(options, transposed, dtype):
    symbol = sym.Pooling(sym.var("x"), **options)
    parameters = {"x": random((1, 3, *SPACE[: len(options["kernel"])]), dtype)}
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    assert_equal(symbol, {}, parameters, workers=WORKERS, tolerance=tolerance)
    found = operators(symbol, {}, parameters, workers=WORKERS)
    assert ("Deconvolution" in found) == (dtype in transposed)


def _bias(options):
    return () if "no_bias" in options else (sym.var("b"),)
