"""Sharing fetches between operators and timesteps changes no values."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import tofu
from tofu import models
from tofu.gluon.session.session import looking

NAMES = ("rnn-6-4k", "transformer")
BATCH = 8


def without_dropout(block):
    """Remove dropout: workers draw different masks than one device does."""
    if isinstance(block, gluon.nn.Dropout):
        block._rate = 0


def train(name):
    """Losses and final parameters of three steps, as NumPy arrays."""
    mx.random.seed(5)
    random = np.random.RandomState(5)
    model = models.find(name)
    inputs = {key: (BATCH, *shape) for key, shape in model.reduced.inputs.items()}
    classes = model.reduced.options.get("classes") or model.reduced.options["vocabulary"]
    net = models.create_block(model, reduced=True)
    net.apply(without_dropout)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(3):
        drawn = {
            key: random.normal(size=shape)
            if key == "data"
            else np.ones(shape)
            if key == "mask"
            else random.randint(0, classes, shape)
            for key, shape in inputs.items()
        }
        arrays = {key: mx.nd.array(value) for key, value in drawn.items()}
        label = arrays.pop(models.LABEL)
        with autograd.record():
            loss = loss_of(net(*arrays.values()), label)
        loss.backward()
        trainer.step(BATCH)
        losses.append(loss.mean().asscalar())
    weights = {key: value.data().asnumpy() for key, value in net.collect_params().items()}
    return np.array(losses), weights


@pytest.mark.parametrize("name", NAMES)
def test_shared_fetches_leave_losses_and_weights_as_they_are(name):
    expected, expected_weights = train(name)
    seen = []
    tofu.enable(workers=4, device="cpu", fetch="multifetch")
    try:
        with looking(compiled=seen.append):
            losses, weights = train(name)
    finally:
        tofu.disable()
    shared = [compiled for compiled in seen if compiled.shared_bytes]
    assert shared
    for compiled in shared:
        assert compiled.fetched_bytes + compiled.shared_bytes == compiled.plan.total_bytes
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert weights.keys() == expected_weights.keys()
    for key, value in weights.items():
        np.testing.assert_allclose(value, expected_weights[key], rtol=1e-4, atol=1e-5, err_msg=key)
