"""A plan that cuts the tensors of an element-wise operator differently trains as a serial run."""

import functools

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.gluon.session.session import looking

STEPS, BATCH, WIDTH = 4, 8, 16


class Torn(nn.HybridBlock):
    """Products for which columns of a tensor suit best, and rows of its activation."""

    def __init__(self):
        super().__init__(prefix="torn_")
        with self.name_scope():
            self.first = nn.Dense(WIDTH, flatten=False, use_bias=False, in_units=6)
            for i in range(4):
                setattr(self, f"weight{i}", self.params.get(f"weight{i}", shape=(BATCH, 1)))

    def hybrid_forward(self, F, x, **weights):
        hidden = self.first(x)
        active = F.tanh(hidden)
        terms = [F.dot(hidden, w, transpose_a=True) for _, w in sorted(weights.items())]
        terms += [F.log_softmax(active, axis=1) for _ in range(2)]
        means = [F.mean(term**2) for term in terms]
        return functools.reduce(F.broadcast_add, means)


def train(dtype):
    """Losses, and the weights at the end."""
    mx.random.seed(3)
    np.random.seed(3)
    net = Torn()
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    losses = []
    for step in range(STEPS):
        x = mx.nd.array(np.random.RandomState(step).normal(size=(BATCH, 6)), dtype=dtype)
        with autograd.record():
            loss = net(x)
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    return losses, {name: p.data().asnumpy() for name, p in net.collect_params().items()}


@functools.cache
def serial(dtype):
    return train(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_losses_and_weights(workers, dtype, tolerance):
    expected, expected_weights = serial(dtype)
    compiled = []
    tofu.enable(workers=workers, device="cpu")
    try:
        with looking(compiled=compiled.append):
            losses, weights = train(dtype)
    finally:
        tofu.disable()
    plan = compiled[0].plan
    fetched = {operator.op: operator.bytes for operator in plan.operators}
    assert fetched["tanh"] > 0, "its tensors are cut alike"
    assert plan.status == "optimal"
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
