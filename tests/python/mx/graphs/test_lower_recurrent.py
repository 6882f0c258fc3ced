"""The fused recurrent operator, unrolled, compared with MXNet's own."""

import mxnet as mx
import numpy as np
import pytest

from ..models import random
from ..whole import own_gradients, train
from .test_lower import assert_equal, operators, pairs

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
    # The fused operator computes in single precision.
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


PROJECTED = 2


def unrolled_projection(weights, states):
    """One layer with a projection, written with MXNet's other operators."""
    to_hidden, recurrent, projection, to_hidden_bias, recurrent_bias = weights
    data, outputs = sym.var("x"), []
    state, memory = (sym.reshape(s, shape=(BATCH, -1)) for s in states)
    for step in range(LENGTH):
        x = sym.reshape(sym.slice_axis(data, axis=0, begin=step, end=step + 1), (BATCH, -1))
        gates = sym.broadcast_add(sym.dot(x, to_hidden, transpose_b=True), to_hidden_bias)
        more = sym.broadcast_add(sym.dot(state, recurrent, transpose_b=True), recurrent_bias)
        taken, kept, new, shown = sym.split(gates + more, num_outputs=4, axis=1)
        memory = sym.sigmoid(kept) * memory + sym.sigmoid(taken) * sym.tanh(new)
        state = sym.dot(sym.sigmoid(shown) * sym.tanh(memory), projection, transpose_b=True)
        outputs.append(state)
    return sym.stack(*outputs, axis=0), sym.expand_dims(state, 0), sym.expand_dims(memory, 0)


def test_a_projection():
    """MXNet cannot train projections on CPUs, so the reference is unrolled here."""
    rows = 4 * HIDDEN
    shapes = [(rows, INPUTS), (rows, PROJECTED), (PROJECTED, HIDDEN), (rows,), (rows,)]
    states = [sym.var("state"), sym.var("state_cell")]
    weights = [sym.var(f"w{k}") for k in range(len(shapes))]
    flat = [sym.reshape(weight, shape=(-1,)) for weight in weights]
    options = {"mode": "lstm", "state_size": HIDDEN, "num_layers": 1, "state_outputs": True}
    vector = sym.concat(*flat, dim=0)
    fused = sym.RNN(sym.var("x"), vector, *states, projection_size=PROJECTED, **options)
    parameters = {f"w{k}": random(shape, seed=k) for k, shape in enumerate(shapes)}
    parameters["x"] = random((LENGTH, BATCH, INPUTS))
    parameters["state"] = random((1, BATCH, PROJECTED), seed=6)
    parameters["state_cell"] = random((1, BATCH, HIDDEN), seed=7)
    head_shapes = [(LENGTH, BATCH, PROJECTED), (1, BATCH, PROJECTED), (1, BATCH, HIDDEN)]
    heads = [random(shape, seed=8) for shape in head_shapes]
    ours = train(fused, {}, parameters, head_gradients=heads)
    own = own_gradients(
        sym.Group(list(unrolled_projection(weights, states))), {}, parameters, head_gradients=heads
    )
    for found, expected, name in pairs(ours, own):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (2, 2)])
def test_where_the_parameters_of_projections_lie(layers, directions):
    """Compares outputs, which MXNet computes on CPUs as well, for a packed vector."""
    rows, count = 4 * HIDDEN, 0
    for layer in range(layers):
        width = PROJECTED * directions if layer else INPUTS
        count += directions * (rows * (width + PROJECTED + 2) + PROJECTED * HIDDEN)
    parameters = {"w": random((count,), seed=1), "x": random((LENGTH, BATCH, INPUTS))}
    for name, size in (("state", PROJECTED), ("state_cell", HIDDEN)):
        parameters[name] = random((layers * directions, BATCH, size), seed=size)
    symbol = sym.RNN(
        *map(sym.var, ("x", "w", "state", "state_cell")),
        **{"mode": "lstm", "state_size": HIDDEN, "num_layers": layers, "state_outputs": True},
        **{"projection_size": PROJECTED, "bidirectional": directions == 2},
    )
    executor = symbol.bind(mx.cpu(), dict(parameters), grad_req="null")
    expected = [output.asnumpy() for output in executor.forward(is_train=False)]
    found, _, _ = train(symbol, {}, parameters)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_dropout_between_layers_only():
    symbol, parameters = recurrent("lstm", layers=2, p=0.5)
    assert "_random_uniform" in operators(symbol, {}, parameters)
    assert "_random_uniform" not in operators(symbol, {}, parameters, train=False)
    one, parameters = recurrent("lstm", p=0.5)
    assert "_random_uniform" not in operators(one, {}, parameters)
