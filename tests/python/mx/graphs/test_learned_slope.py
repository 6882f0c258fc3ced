"""The gradient of a PReLU's slope, which a hybridized block of MXNet gets wrong in place."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd
from mxnet.gluon import nn

import tofu


def gradients(dtype, channels, *, hybrid):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(6, in_units=4), nn.PReLU(in_channels=channels), nn.Dense(4, in_units=6))
    net.initialize()
    for parameter in net.collect_params().values():
        drawn = np.random.RandomState(len(parameter.shape)).normal(size=parameter.shape)
        parameter.set_data(mx.nd.array(drawn))
    net.cast(dtype)
    if hybrid:
        net.hybridize()
    x = mx.nd.array(np.random.RandomState(0).normal(size=(8, 4)), dtype=dtype)
    x.attach_grad()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    return [x.grad.asnumpy(), *(p.grad().asnumpy() for p in net.collect_params().values())]


@pytest.mark.filterwarnings("ignore:.*they are replicated")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_gradients_are_those_of_the_eager_net(workers, channels, dtype):
    expected = gradients(dtype, channels, hybrid=False)
    tofu.enable(workers=workers, device="cpu", log="quiet")
    try:
        found = gradients(dtype, channels, hybrid=True)
    finally:
        tofu.disable()
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
