"""Computing only some gradients of an operator does not change them.

Some of MXNet's operators leave an output unwritten if no node reads another one. Then a gradient
would be the previous contents of its memory.
"""

import itertools

import mxnet as mx
import numpy as np
import pytest

from ..models import random
from ..whole import train

sym = mx.sym
HEADS, SIZE = 2, 3
X, W, B = (sym.var(name) for name in "xwb")
OPERATORS = {
    "dense": (sym.FullyConnected(X, W, B, num_hidden=6), [(4, 12), (6, 12), (6,)]),
    "dense, last dimension": (
        sym.FullyConnected(X, W, B, num_hidden=6, flatten=False),
        [(4, 2, 12), (6, 12), (6,)],
    ),
    "dense, flattened": (sym.FullyConnected(X, W, B, num_hidden=6), [(4, 3, 4), (6, 12), (6,)]),
    "convolution": (
        sym.Convolution(X, W, B, kernel=(3, 3), num_filter=4, pad=(1, 1)),
        [(2, 3, 6, 6), (4, 3, 3, 3), (4,)],
    ),
    "transposed convolution": (
        sym.Deconvolution(X, W, B, kernel=(3, 3), num_filter=4, no_bias=False),
        [(2, 3, 6, 6), (3, 4, 3, 3), (4,)],
    ),
    "layer norm": (sym.LayerNorm(X, W, B), [(4, 6), (6,), (6,)]),
    "group norm": (sym.GroupNorm(X, W, B, num_groups=2), [(4, 6, 5), (2,), (2,)]),
    "instance norm": (sym.InstanceNorm(X, W, B), [(4, 6, 5), (6,), (6,)]),
    "parametric relu": (sym.LeakyReLU(X * 1, W, act_type="prelu"), [(4, 6), (6,)]),
    "dot": (sym.dot(X, W), [(4, 6), (6, 3)]),
    "batch dot": (sym.batch_dot(X, W), [(2, 4, 6), (2, 6, 3)]),
    "product": (sym.broadcast_mul(X, W), [(4, 6), (1, 6)]),
    "attention of itself": (
        sym.contrib.interleaved_matmul_selfatt_valatt(X, W, heads=HEADS),
        [(4, 2, 3 * HEADS * SIZE), (2 * HEADS, 4, 4)],
    ),
    "scores of another": (
        sym.contrib.interleaved_matmul_encdec_qk(X, W, heads=HEADS),
        [(5, 2, HEADS * SIZE), (3, 2, 2 * HEADS * SIZE)],
    ),
    "attention of another": (
        sym.contrib.interleaved_matmul_encdec_valatt(X, W, heads=HEADS),
        [(3, 2, 2 * HEADS * SIZE), (2 * HEADS, 5, 3)],
    ),
}


def gradients(symbol, arrays, wanted):
    junk = [mx.nd.full(array.shape, 7e8) for array in arrays.values() for _ in range(3)]
    mx.nd.waitall()
    del junk  # goes back to MXNet's memory pool
    inputs = {name: array for name, array in arrays.items() if name not in wanted}
    parameters = {name: arrays[name] for name in wanted}
    (shape,) = symbol.infer_shape(**{name: array.shape for name, array in arrays.items()})[1]
    head = random(shape, seed=9)
    return train(symbol, inputs, parameters, head_gradients=[head])[1]


@pytest.mark.parametrize("name", OPERATORS)
def test_each_set_of_gradients(name):
    symbol, shapes = OPERATORS[name]
    arrays = {n: random(shape, seed=k) for k, (n, shape) in enumerate(zip("xwb", shapes))}
    expected = gradients(symbol, arrays, list(arrays))
    for count in range(1, len(arrays)):
        for wanted in itertools.combinations(arrays, count):
            found = gradients(symbol, arrays, wanted)
            assert found.keys() == set(wanted)
            for each, value in found.items():
                what = f"{each} of {wanted}"
                np.testing.assert_allclose(
                    value, expected[each], rtol=1e-5, atol=1e-5, err_msg=what
                )
