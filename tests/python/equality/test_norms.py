"""Normalizations along every axis train partitioned as they do serially."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu

STEPS = 3
OPTIONS = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.05}
TOLERANCES = {"float64": 1e-10, "float32": 2e-5}


class Function(nn.HybridBlock):
    """Applies a function to the data, and to a block if it has one."""

    def __init__(self, function, block=None):
        super().__init__()
        self._function, self.block = function, block

    def hybrid_forward(self, F, x):
        return self._function(F, x) if self.block is None else self._function(F, x, self.block)


class FixedGamma(nn.HybridBlock):
    """BatchNorm with a trained gamma that counts as one, as symbols have it by default."""

    def __init__(self):
        super().__init__()
        for name, init in (("gamma", mx.init.Constant(1.5)), ("beta", "zeros")):
            setattr(self, name, self.params.get(name, shape=(8,), init=init))
        for name, init in (("mean", "zeros"), ("var", "ones")):
            statistic = self.params.get(name, shape=(8,), init=init, grad_req="null")
            setattr(self, name, statistic)

    def hybrid_forward(self, F, x, gamma, beta, mean, var):
        return F.BatchNorm(x, gamma, beta, mean, var)


NORMS = {
    "batch": lambda: nn.BatchNorm(),
    "batch, last axis": lambda: nn.BatchNorm(axis=-1),
    "batch, second axis": lambda: nn.BatchNorm(axis=2, momentum=0.5, epsilon=0.1),
    "batch without scale": lambda: nn.BatchNorm(scale=False),
    "batch, running statistics": lambda: nn.BatchNorm(use_global_stats=True),
    "batch, gamma fixed": FixedGamma,
    "layer": lambda: nn.LayerNorm(),
    "layer, first axis": lambda: nn.LayerNorm(axis=1),
    "layer without center": lambda: nn.LayerNorm(center=False, epsilon=0.1),
    "group": lambda: nn.GroupNorm(num_groups=4),
    "instance": lambda: nn.InstanceNorm(),
    "instance, last axis": lambda: nn.InstanceNorm(axis=3),
    "l2": lambda: Function(lambda F, x: F.L2Normalization(x, mode="channel", eps=3.3)),
    "batch, twice in a row": lambda: Function(
        lambda F, x, norm: norm(F.tanh(norm(x)) + x), nn.BatchNorm(momentum=0.5)
    ),
    "batch, of two branches": lambda: Function(
        lambda F, x, norm: norm(F.sigmoid(x)) * norm(x), nn.BatchNorm(momentum=0.5)
    ),
}


class Net(nn.HybridBlock):
    """The normalization between two convolutions."""

    def __init__(self, norm, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first, self.norm = nn.Conv2D(8, 3, padding=1, in_channels=4), norm()
            self.second = nn.Conv2D(4, 3, in_channels=8)

    def hybrid_forward(self, F, x):
        return self.second(F.tanh(self.norm(self.first(x)))).square().mean(axis=(1, 2, 3))


class Drawn(mx.init.Initializer):
    """Draws the same numbers for every dtype, unlike MXNet's own generator."""

    def __init__(self):
        super().__init__()
        self._draw = np.random.RandomState(3)

    def _init_weight(self, _, arr):
        arr[:] = self._draw.normal(scale=np.prod(arr.shape[1:]) ** -0.5, size=arr.shape)


def train(norm, batch, dtype):
    net = Net(norm)
    net.initialize(Drawn())
    net.cast(dtype)
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", dict(OPTIONS)), []
    for step in range(STEPS):
        x = np.random.RandomState(step).normal(size=(batch, 4, 8, 8))
        with autograd.record():
            loss = net(mx.nd.array(x, dtype=dtype))
        loss.backward()
        trainer.step(batch)
        losses.append(loss.asnumpy())
    weights = net._collect_params_with_prefix()
    return {"losses": losses, **{n: weight.data().asnumpy() for n, weight in weights.items()}}


@pytest.mark.filterwarnings("ignore:.*they are replicated")  # a batch of one
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", NORMS)
def test_norms(name, workers, batch):
    # MXNet has InstanceNorm only in single precision; the other norms are compared in float64, too.
    dtypes = ["float32"] if name.startswith("instance") else ["float64", "float32"]
    expected = train(NORMS[name], batch, dtypes[0])
    for dtype in dtypes:
        tolerance = TOLERANCES[dtype]
        tofu.enable(workers=workers, device="cpu")
        try:
            found = train(NORMS[name], batch, dtype)
        finally:
            tofu.disable()
        assert found.keys() == expected.keys()
        for each, value in expected.items():
            np.testing.assert_allclose(
                found[each], value, rtol=tolerance, atol=tolerance, err_msg=f"{dtype} {each}"
            )


def test_the_gradient_of_constant_images_is_zero():
    """A mean that is rounded twice would leave noise, which 1 / sqrt(eps) amplifies."""
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        net = nn.InstanceNorm(in_channels=10)
        net.initialize()
        net.hybridize()
        x = mx.nd.ones((2, 10, 10, 10))
        x.attach_grad()
        with autograd.record():
            out = net(x)
        out.backward()
        np.testing.assert_array_equal(out.asnumpy(), 0)
        np.testing.assert_array_equal(x.grad.asnumpy(), 0)
    finally:
        tofu.disable()


def bias_gradients(dtype):
    """The biases' gradients of dense layers whose weights are frozen."""
    net = nn.HybridSequential()
    net.add(nn.Dense(12, in_units=8, activation="tanh"), nn.Dense(8, in_units=12))
    net.initialize(Drawn())
    net.cast(dtype)
    net.hybridize()
    for layer in net:
        layer.weight.grad_req = "null"
    x = mx.nd.array(np.random.RandomState(1).normal(size=(4, 8)), dtype=dtype)
    with autograd.record():
        out = net(x).square().sum()
    out.backward()
    return [layer.bias.grad().asnumpy() for layer in net]


def test_biases_of_frozen_dense_layers_have_gradients():
    """Plain MXNet has them in float64 only: its oneDNN operator leaves zeros in float32."""
    expected = bias_gradients("float64")
    assert min(abs(gradient).max() for gradient in expected) > 0.1
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        for dtype, tolerance in TOLERANCES.items():
            for found, gradient in zip(bias_gradients(dtype), expected):
                np.testing.assert_allclose(found, gradient, rtol=tolerance, atol=tolerance)
    finally:
        tofu.disable()
