"""The fused recurrent operator, unrolled, against MXNet's own."""

import mxnet as mx
import pytest

from ..models import random
from .test_lower import assert_equal, operators

sym = mx.sym
LENGTH, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


def parameters_of(mode, layers, directions):
    """The number of elements of the packed vector."""
    rows, count = GATES[mode] * HIDDEN, 0
    for layer in range(layers):
        width = HIDDEN * directions if layer else INPUTS
        count += directions * rows * (width + HIDDEN + 2)
    return count


def recurrent(mode, layers=1, directions=1, **options):
    states = ["state", "state_cell"][: 2 if mode == "lstm" else 1]
    symbol = sym.RNN(
        sym.var("x"),
        sym.var("w"),
        *map(sym.var, states),
        mode=mode,
        state_size=HIDDEN,
        num_layers=layers,
        bidirectional=directions == 2,
        **options,
    )
    # The fused operator is in single precision.
    tensors = {"x": random((LENGTH, BATCH, INPUTS), "float32")}
    tensors["w"] = random((parameters_of(mode, layers, directions),), "float32", seed=1) * 0.5
    for k, name in enumerate(states):
        tensors[name] = random((layers * directions, BATCH, HIDDEN), "float32", seed=2 + k)
    return symbol, tensors


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (2, 2)])
def test_every_mode_with_its_states(mode, layers, directions):
    symbol, parameters = recurrent(mode, layers, directions, state_outputs=True)
    assert_equal(symbol, {}, parameters, tolerance=2e-5)


def test_outputs_alone():
    symbol, parameters = recurrent("lstm")
    assert_equal(symbol, {}, parameters, tolerance=2e-5)
    assert "RNN" not in operators(symbol, {}, parameters)


def test_a_sequence_of_one_step():
    symbol, parameters = recurrent("gru", state_outputs=True)
    parameters["x"] = random((1, BATCH, INPUTS), "float32")
    assert_equal(symbol, {}, parameters, tolerance=2e-5)


def test_joined_weights_are_read_where_they_are():
    symbol, parameters = recurrent("rnn_tanh")
    shapes = [(HIDDEN, INPUTS), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN,)]
    weights = [sym.var(f"w{k}") for k in range(4)]
    flat = [sym.reshape(weight, shape=(-1,)) for weight in weights]
    symbol = sym.RNN(
        sym.var("x"),
        sym._internal._rnn_param_concat(*flat, dim=0),
        sym.var("state"),
        mode="rnn_tanh",
        state_size=HIDDEN,
        num_layers=1,
    )
    del parameters["w"]
    for k, shape in enumerate(shapes):
        parameters[f"w{k}"] = random(shape, "float32", seed=k)
    assert_equal(symbol, {}, parameters, tolerance=2e-5)
    assert not {"_rnn_param_concat", "slice_axis"} & operators(symbol, {}, parameters)


def test_dropout_between_layers_only():
    symbol, parameters = recurrent("lstm", layers=2, p=0.5)
    assert "Dropout" in operators(symbol, {}, parameters)
    assert "Dropout" not in operators(symbol, {}, parameters, train=False)
    one, parameters = recurrent("lstm", p=0.5)
    assert "Dropout" not in operators(one, {}, parameters)
