"""Training runs are those of plain MXNet: losses, weights, running statistics."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.parameter import is_tiled

STEPS = 4


def make_net(hybrid=True):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu"), nn.BatchNorm(), nn.Dropout(0.0), nn.Dense(6))
    mx.random.seed(7)
    np.random.seed(7)
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    return net


def batches(count=STEPS, batch=12):
    random = np.random.RandomState(1)
    for i in range(count):
        size = batch if i < count - 1 else batch // 2  # the last one is smaller
        yield (
            mx.nd.array(random.uniform(-1, 1, (size, 10))),
            mx.nd.array(random.randint(0, 6, (size,))),
        )


def train(optimizer="sgd", params=None, net=None, steps=STEPS, grad_req="write"):
    net = net or make_net()
    if grad_req != "write":
        net.collect_params().setattr("grad_req", grad_req)
    trainer = gluon.Trainer(
        net.collect_params(), optimizer, params or {"learning_rate": 0.1, "momentum": 0.9}
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()
    losses = []
    for data, label in batches(steps):
        with autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        trainer.step(len(data))
        if grad_req == "add":
            net.collect_params().zero_grad()
        losses.append(loss.asnumpy())
    losses.append(net(data).asnumpy())
    return losses, weights(net), trainer


def weights(net):
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def plainly(function, *args, **kwargs):
    """The same without tofu; the fixture's rooms are kept."""
    session = tofu.gluon.session.active()
    tofu.gluon.disable()
    try:
        return function(*args, **kwargs)
    finally:
        tofu.gluon.enable(workers=session.workers, device="cpu", log="quiet")


def assert_same(found, expected):
    for one, other in zip(found[0], expected[0]):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    assert found[1].keys() == expected[1].keys()
    for name, value in found[1].items():
        np.testing.assert_allclose(value, expected[1][name], rtol=1e-6, atol=1e-7, err_msg=name)


OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "rmsprop": {"learning_rate": 0.01, "clip_gradient": 0.5},
    "nag": {"learning_rate": 0.1, "momentum": 0.5},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_and_weights(optimizer, workers):
    expected = plainly(train, optimizer, OPTIMIZERS[optimizer])
    net = make_net()
    found = train(optimizer, OPTIMIZERS[optimizer], net)
    assert_same(found, expected)
    assert all(map(is_tiled, net.collect_params().values()))


def test_gradient_request_add(two):
    expected = plainly(train, grad_req="add")
    assert_same(train(grad_req="add"), expected)
