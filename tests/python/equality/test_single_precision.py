"""Where plain MXNet rounds float64 to float32, as docs/plans.md says, and tofu does not."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import tofu

WORKERS = 2


def partitioned(function):
    """What a function returns with tofu on."""
    tofu.enable(workers=WORKERS, device="cpu", log="quiet", strict=True)
    try:
        return function()
    finally:
        tofu.disable()


def error(found, expected):
    """The largest difference, relative to the largest value."""
    return np.abs(found - expected).max() / np.abs(expected).max()


def values(*shape):
    return np.random.RandomState(len(shape)).normal(size=shape)


def recurrent_layer():
    """The outputs and weights of a recurrent layer with relu in float64."""
    net = gluon.rnn.RNN(6, activation="relu", input_size=4, prefix="net_")
    net.initialize()
    net.cast("float64")
    net.hybridize()
    weights = {}
    for name, parameter in net.collect_params().items():
        weights[name] = values(*parameter.shape)
        parameter.set_data(mx.nd.array(weights[name], dtype="float64"))
    with autograd.record():
        outputs = net(mx.nd.array(values(5, 4, 4), dtype="float64"))
    outputs.backward()
    return outputs.asnumpy(), weights


def test_a_recurrent_layer_with_relu():
    plain, weights = recurrent_layer()
    found, _ = partitioned(recurrent_layer)
    state, expected = np.zeros((4, 6)), []
    for x in values(5, 4, 4):
        state = x @ weights["net_l0_i2h_weight"].T + weights["net_l0_i2h_bias"]
        if expected:
            state += expected[-1] @ weights["net_l0_h2h_weight"].T
        state = np.maximum(0, state + weights["net_l0_h2h_bias"])
        expected.append(state)
    assert error(found, np.stack(expected)) < 1e-14
    assert 1e-10 < error(plain, np.stack(expected)) < 1e-6


def trained_with_lamb():
    net = gluon.nn.Dense(6, in_units=8, prefix="net_")
    net.initialize()
    net.cast("float64")
    net.hybridize()
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(values(*parameter.shape), dtype="float64"))
    trainer = gluon.Trainer(net.collect_params(), "lamb", {"learning_rate": 0.1})
    for _ in range(3):
        with autograd.record():
            loss = net(mx.nd.array(values(4, 8), dtype="float64")).square().sum()
        loss.backward()
        trainer.step(4)
    return np.concatenate([p.data().asnumpy().ravel() for p in net.collect_params().values()])


def test_lamb(monkeypatch):
    """Plain MXNet adds up norms in float32 where it updates several parameters at once."""
    found, plain = partitioned(trained_with_lamb), trained_with_lamb()
    monkeypatch.setenv("MXNET_OPTIMIZER_AGGREGATION_SIZE", "1")
    expected = trained_with_lamb()
    assert error(found, expected) < 1e-14
    assert 1e-10 < error(plain, expected) < 1e-6
