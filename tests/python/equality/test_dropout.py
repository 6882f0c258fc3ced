"""Dropout runs in one executor, and backward reads the masks that forward drew."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.gluon.session.session import looking


@pytest.fixture(params=[2, 3, 4])
def steps(request):
    """Turn tofu on; yield the list of training steps that it makes."""
    found = []
    mx.random.seed(1)
    tofu.enable(workers=request.param, device="cpu", strict=True, log="quiet")
    with looking(compiled=lambda compiled: found.append(compiled.step)):
        yield found
    tofu.disable()


class Masked(nn.HybridBlock):
    """A product with a weight of ones, dropped; its gradient is the mask wherever data is 1."""

    def __init__(self, axes=()):
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(1, 24), init="ones")
            self.dropout = nn.Dropout(0.5, axes=axes)

    def hybrid_forward(self, F, x, weight):
        return self.dropout(F.broadcast_mul(x, weight))


def masked(dtype="float32", axes=()):
    net = Masked(axes)
    net.initialize()
    net.cast(dtype)
    net.hybridize()
    return net


def variable(dtype="float32"):
    x = mx.nd.ones((12, 24), dtype=dtype)
    x.attach_grad()
    return x


def assert_dropped(out, gradient):
    """Check that about half of the output is zero, the other half doubled, as in the gradient."""
    assert 0.1 < (out == 0).mean() < 0.9
    np.testing.assert_array_equal(gradient, out)
    np.testing.assert_array_equal(out[out != 0], 2)


@pytest.mark.parametrize("axes", [(), (0,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_zero_exactly_where_outputs_are(steps, dtype, axes):
    net, x = masked(dtype, axes), variable(dtype)
    drawn = []
    for _ in range(3):
        with autograd.record():
            out = net(x)
        out.backward()
        drawn.append(out.asnumpy())
        assert_dropped(drawn[-1], x.grad.asnumpy())
        np.testing.assert_allclose(net.weight.grad().asnumpy(), drawn[-1].sum(0, keepdims=True))
    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[1], drawn[2])
    assert [step.is_joint for step in steps] == [True]


@pytest.mark.parametrize("reverse", [False, True])
def test_calls_before_a_backward_pass_have_their_own_masks(steps, reverse):
    del steps
    net = masked()
    inputs = [variable() for _ in range(3)]
    for _ in range(2):
        outputs = []
        for x in inputs:
            with autograd.record():
                outputs.append(net(x))
        for x, out in list(zip(inputs, outputs))[:: -1 if reverse else 1]:
            out.backward()
            assert_dropped(out.asnumpy(), x.grad.asnumpy())
        first, second, third = (out.asnumpy() for out in outputs)
        assert not np.array_equal(first, second)
        assert not np.array_equal(second, third)


def test_a_retained_graph_keeps_its_masks(steps):
    del steps
    net, x = masked(), variable()
    for _ in range(2):
        with autograd.record():
            out = net(x)
        for factor in (1, 3, 5):
            out.backward(mx.nd.full(out.shape, factor), retain_graph=True)
            assert_dropped(out.asnumpy(), x.grad.asnumpy() / factor)


def test_a_retained_graph_draws_nothing(steps):
    """The script's next random numbers are the same."""
    del steps
    net, x = masked(), variable()
    found = []
    for passes in (1, 3):
        mx.random.seed(5)
        with autograd.record():
            out = net(x)
        for _ in range(passes):
            out.backward(retain_graph=True)
        found.append([out.asnumpy(), mx.nd.random.uniform(shape=(4,)).asnumpy()])
    for once, thrice in zip(*found):
        np.testing.assert_array_equal(once, thrice)


def trained(seed, kind):
    """The losses and weights of a net with several dropouts after a few steps."""
    mx.random.seed(1)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        if kind == "dense":
            net.add(nn.Dropout(0.2), nn.Dense(24, activation="relu"), nn.Dropout(0.5), nn.Dense(12))
        else:
            net.add(gluon.rnn.LSTM(12, 2, dropout=0.4), nn.Dropout(0.3, axes=(0,)), nn.Dense(12))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x = mx.nd.array(
        np.random.RandomState(2).normal(size=(12, 12) if kind == "dense" else (3, 12, 12))
    )
    mx.random.seed(seed)
    outputs = []
    for _ in range(3):
        with autograd.record():
            out = net(x)
            loss = (out**2).mean()
        loss.backward()
        trainer.step(1)
        outputs.append(out.asnumpy())
    return outputs


@pytest.mark.parametrize("kind", ["dense", "recurrent"])
def test_masks_follow_from_the_seed(steps, kind):
    first, again, other = trained(3, kind), trained(3, kind), trained(4, kind)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], first[1])
    assert all(step.is_joint for step in steps)


def test_predictions_drop_nothing(steps):
    net, x = masked(), variable()
    with autograd.record():
        net(x).backward()
    np.testing.assert_array_equal(net(x).asnumpy(), 1)
    with autograd.record(train_mode=False):
        out = net(x)
    out.backward()
    np.testing.assert_array_equal(out.asnumpy(), 1)
    np.testing.assert_array_equal(x.grad.asnumpy(), 1)
    assert steps


class Noisy(nn.HybridBlock):
    """Adds random numbers that need no input, or samples of a computed distribution."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(1, 12), init="ones")

    def hybrid_forward(self, F, x, weight):
        scaled = F.broadcast_mul(x, weight)
        if self.kind == "shape":
            return scaled * F.random.uniform(1, 2, shape=(12, 12))
        return scaled * (1 + F.sample_exponential(scaled + 1, shape=()))


@pytest.mark.parametrize("kind", ["shape", "input"])
def test_other_random_operators(steps, kind):
    net = Noisy(kind)
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((12, 12))
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            out = net(x)
        for factor in (1, 2):
            out.backward(mx.nd.full(out.shape, factor), retain_graph=factor == 1)
            found = x.grad.asnumpy() / factor
            np.testing.assert_allclose(found, out.asnumpy(), rtol=1e-6)
    assert [step.is_joint for step in steps] == [kind == "shape"]
