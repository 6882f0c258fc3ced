"""Outputs that no loss uses: their parameters stay as plain MXNet leaves them.

MXNet records a block that was never hybridized operator by operator, so a backward call reaches
only what computes the loss: other gradients are stale. A hybridized block is one operator, whose
backward pass writes zeros for the rest.
"""

import time

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from tofu.gluon.training.recording import Recording

from .models import assert_same, plainly

BATCH = (5, 4)


class Heads(gluon.HybridBlock):
    """Two outputs that share a body; the second one has running statistics."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body, self.a = nn.Dense(8, in_units=4), nn.Dense(2, in_units=8)
            self.b = nn.HybridSequential()
            self.b.add(nn.Dense(3, in_units=8, use_bias=False), nn.BatchNorm(in_channels=3))

    def hybrid_forward(self, F, x):
        z = self.body(x)
        return self.a(z), self.b(z)


class Pair(gluon.HybridBlock):
    """Two layers side by side."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.p, self.q = nn.Dense(4, in_units=2), nn.Dense(4, in_units=3)

    def hybrid_forward(self, F, a, b):
        return self.p(a), self.q(b)


def square(array):
    return (array**2 + array.sin()).sum()  # BatchNorm's squares alone have a gradient of rounding


class Script:
    """A net, its Trainer, and a record of all that a script could see."""

    def __init__(self, optimizer="sgd", hybridize=lambda net, pair: None, request="write"):
        mx.random.seed(0)
        self.net, self.pair = Heads(prefix="heads_"), Pair(prefix="pair_")
        self.params = {**self.net.collect_params(), **self.pair.collect_params()}
        for parameter in self.params.values():
            if parameter.grad_req != "null":
                parameter.grad_req = request
        for block in (self.net, self.pair):
            block.initialize(mx.init.Xavier())
        hybridize(self.net, self.pair)
        settings = {"learning_rate": 0.1, "wd": 0.1}
        if optimizer == "sgd":
            settings["momentum"] = 0.9
        self.trainer = gluon.Trainer(self.params, optimizer, settings)
        self.seen = []

    def step(self, *losses):
        """A step of the sum of losses, or of several backward calls through one graph."""
        with autograd.record():
            a, b = self.net(mx.nd.random.normal(shape=BATCH))
            values = [loss(self, a, b) for loss in losses]
        for value in values:
            value.backward(retain_graph=value is not values[-1])
        gradients = {n: p.grad().copy() for n, p in self.params.items() if p.grad_req != "null"}
        marks = {n: bool(self.params[n].data()._fresh_grad) for n in gradients}
        self.seen.append((values, gradients, marks))
        stale = not all(marks.values())
        try:
            self.trainer.step(5)
        except UserWarning:
            assert stale
            self.trainer.step(5, ignore_stale_grad=True)
        else:
            assert not stale
        self.seen.append({name: p.data().copy() for name, p in self.params.items()})


LOSSES = {
    "first": lambda _, a, b: square(a),
    "second": lambda _, a, b: square(b),
    "both": lambda _, a, b: square(a) + square(b),
    "second times zero": lambda _, a, b: square(a) + 0 * square(b),
    "first read": lambda _, a, b: square(b) + a.asnumpy().sum(),
    "p": lambda script, a, b: square(script.pair(a, b)[0]),
    "q": lambda script, a, b: square(script.pair(a, b)[1]),
    "q and a": lambda script, a, b: square(script.pair(a, b)[1]) + square(a),
}
HYBRIDIZED = {
    "never": lambda net, pair: None,
    "first": lambda net, pair: net.hybridize(),
    "inside": lambda net, pair: (net.b.hybridize(), net.body.hybridize()),
    "second": lambda net, pair: pair.hybridize(),
}


@pytest.mark.parametrize("hybridized", HYBRIDIZED)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_heads_used_in_turn(two, optimizer, hybridized):
    def run():
        script = Script(optimizer, HYBRIDIZED[hybridized])
        for loss in LOSSES.values():
            script.step(loss)
        return script.seen

    assert_same(run(), plainly(run), rounded=True)


@pytest.mark.parametrize("hybridized", HYBRIDIZED)
@pytest.mark.parametrize("request_", ["write", "add"])
def test_backward_calls_of_one_graph(two, request_, hybridized):
    def run():
        script = Script("sgd", HYBRIDIZED[hybridized], request_)
        script.step(LOSSES["both"])
        script.step(LOSSES["first"], LOSSES["second"])
        script.step(LOSSES["second"], LOSSES["q"])
        script.step(LOSSES["first"])
        return script.seen

    assert_same(run(), plainly(run), rounded=True)


def test_gates_are_through_before_the_next_call(two, monkeypatch):
    """MXNet adds a call's gradients on threads of its own, which may be late."""
    gate = Recording._gate

    def late(recording, *args):
        backward = gate(recording, *args)
        return lambda *arrays: (time.sleep(0.1), backward(*arrays))

    def run():
        script = Script("sgd", HYBRIDIZED["first"], "add")
        script.step(LOSSES["first"], LOSSES["second"])
        return script.seen

    monkeypatch.setattr(Recording, "_gate", late)
    assert_same(run(), plainly(run), rounded=True)


@pytest.mark.parametrize("request_", ["write", "add"])
def test_asking_for_a_gradient_that_the_loss_does_not_reach(two, request_):
    def run():
        script = Script(request=request_)
        script.step(LOSSES["both"])
        net = script.net
        with autograd.record():
            a, _ = net(mx.nd.ones(BATCH))
            loss = square(a)
        with pytest.raises(mx.MXNetError):
            autograd.grad(loss, [net.b[0].weight.data()], retain_graph=True)
        return autograd.grad(loss, [net.a.weight.data(), net.body.weight.data()])

    assert_same(run(), plainly(run), rounded=True)
