"""Images that only space can divide: windows of all kinds read halos, forward and backward."""

import random

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.gluon.session.session import looking

SEED = 20190330
STEPS = 2


class Windows(nn.HybridBlock):
    """Two convolutions, a pooling and a transposed convolution; all channels are prime."""

    def __init__(self, layers, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            self.layers.add(*layers)

    def hybrid_forward(self, F, x):
        return F.mean(F.square(self.layers(x)), axis=0, exclude=True)


def layers(rng):
    """Random windows over 24 x 24 pixels; each leaves 24 or 12 along a dimension."""

    def window(size):
        kernel, dilate = rng.choice(((3, 1), (5, 1), (3, 2), (2, 2)))
        reach = dilate * (kernel - 1)
        stride = rng.choice((1, 2)) if size == 24 and dilate == 1 else 1
        options = {"kernel_size": kernel, "strides": stride, "padding": reach // 2}
        return size // stride, {**options, "dilation": dilate}

    size, found = 24, []
    for channels in (5, 7):
        size, options = window(size)
        bias = bool(rng.randrange(2))
        found.append(nn.Conv2D(channels, use_bias=bias, activation="tanh", **options))
    kind = rng.choice((nn.MaxPool2D, nn.AvgPool2D))
    found.append(kind(3, strides=1, padding=1) if rng.randrange(2) else kind(2))
    kernel, pad = rng.choice(((4, 1), (2, 0)))
    found.append(nn.Conv2DTranspose(3, kernel, strides=2, padding=pad, use_bias=bool(size % 24)))
    found.append(nn.Conv2D(5, kernel_size=3, padding=1))
    return found


class Drawn(mx.init.Initializer):
    """Draws the same numbers for every dtype, unlike MXNet's own generator."""

    def __init__(self):
        super().__init__()
        self._draw = np.random.RandomState(3)

    def _init_weight(self, _, arr):
        arr[:] = self._draw.normal(scale=np.prod(arr.shape[1:]) ** -0.5, size=arr.shape)


def train(seed, dtype):
    rng = random.Random(seed)
    net = Windows(layers(rng))
    net.initialize(Drawn())
    net.cast(dtype)
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for step in range(STEPS):
        x = mx.nd.array(np.random.RandomState(step).normal(size=(1, 5, 24, 24)), dtype=dtype)
        with autograd.record():
            loss = net(x)
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    names = [p.name.split("_", 1)[1] for p in net.collect_params().values()]
    weights = [p.data().asnumpy() for p in net.collect_params().values()]
    return net, losses, dict(zip(names, weights))


@pytest.mark.filterwarnings("ignore:.*they are replicated")  # prime channels
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("number", "workers", "fetch"),
    [
        *((n, k, "multifetch") for n in range(3) for k in (2, 3, 4)),
        (3, 2, "plain"),
        (4, 4, "plain"),
    ],
)
def test_windows(number, workers, fetch, dtype):
    print(f"seed {SEED + number}")
    _, expected, weights = train(SEED + number, "float64")
    compiled = []
    tofu.enable(workers=workers, device="cpu", fetch=fetch)
    try:
        with looking(compiled=compiled.append):
            net, losses, ours = train(SEED + number, dtype)
    finally:
        tofu.disable()
    print(net)
    rtol, atol = (1e-9, 1e-10) if dtype == "float64" else (1e-5, 1e-6)  # against doubles
    np.testing.assert_allclose(losses, expected, rtol=rtol)
    assert ours.keys() == weights.keys()
    for name, value in ours.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(value, weights[name], rtol=rtol, atol=atol, err_msg=name)
    cuts = {node.op: node.cuts for plan in compiled for node in plan.plan.operators}
    shared = {op: cut for op, cut in cuts.items() if "onvolution" in op or "Pooling" in op}
    print(shared)
    assert None not in shared["Convolution"] + shared["Deconvolution"]
