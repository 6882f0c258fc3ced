"""Transposed convolutions train partitioned as they do serially, in single precision too."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu

STEPS = 3
LAYERS = {  # a block, and the shape of its input
    "an image from a pixel": (lambda: nn.Conv2DTranspose(16, 4, use_bias=False), (8, 12, 1, 1)),
    "strides": (lambda: nn.Conv2DTranspose(16, 4, 2, 1), (8, 16, 4, 4)),
    "unequal": (lambda: nn.Conv2DTranspose(4, (4, 2), (3, 1), (1, 0)), (1, 6, 5, 7)),
    "groups": (lambda: nn.Conv2DTranspose(16, (3, 4), groups=2, in_channels=4), (2, 4, 10, 10)),
    "adjusted": (lambda: nn.Conv2DTranspose(8, 3, 4, output_padding=3), (2, 4, 6, 6)),
    "dilated": (lambda: nn.Conv2DTranspose(8, (3, 4), dilation=4), (1, 4, 10, 10)),
    "one dimension": (lambda: nn.Conv1DTranspose(8, 4, 2, 1), (4, 6, 12)),
    "three dimensions": (lambda: nn.Conv3DTranspose(8, 3, 2), (4, 4, 3, 4, 5)),
}


class Net(nn.HybridBlock):
    """The layer twice, the second time with as many outputs as inputs."""

    def __init__(self, layer, channels, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layer = layer()
            rank = len(self.layer._kwargs["kernel"])
            again = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)[rank - 1]
            self.again = again(channels, 2, 2)

    def hybrid_forward(self, F, x):
        return F.mean(F.square(self.again(F.tanh(self.layer(x)))), axis=0, exclude=True)


def train(layer, shape, dtype):
    mx.random.seed(5)
    net = Net(layer, shape[1])
    net.initialize(mx.init.Normal(0.3))
    net.cast(dtype)
    net.hybridize()
    trainer, found = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}), {}
    for step in range(STEPS):
        x = mx.nd.array(np.random.RandomState(step).normal(size=shape), dtype=dtype)
        x.attach_grad()
        with autograd.record():
            loss = net(x)
        loss.backward()
        found.update({f"loss {step}": loss.asnumpy(), f"gradient {step}": x.grad.asnumpy()})
        trainer.step(shape[0])
    weights = net._collect_params_with_prefix()
    return {**found, **{name: weight.data().asnumpy() for name, weight in weights.items()}}


@pytest.mark.filterwarnings("ignore:.*they are replicated")  # biases and the like
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", LAYERS)
def test_transposed_convolutions(name, workers, dtype):
    layer, shape = LAYERS[name]
    if dtype == "float64" and len(shape) == 5:
        pytest.skip("MXNet has no such operator on CPUs")
    expected = train(layer, shape, dtype)
    tofu.enable(workers=workers, device="cpu")
    try:
        found = train(layer, shape, dtype)
    finally:
        tofu.disable()
    assert found.keys() == expected.keys()
    tolerance = 1e-10 if dtype == "float64" else 2e-5
    for each, value in expected.items():
        scale = abs(value).max()
        np.testing.assert_allclose(
            found[each] / scale, value / scale, rtol=0, atol=tolerance, err_msg=each
        )
