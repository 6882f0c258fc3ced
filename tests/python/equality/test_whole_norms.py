"""BatchNorm stays MXNet's own operator where a plan leaves its statistics whole."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.plan.compiler import observe

from .test_norms import TOLERANCES, Drawn

STEPS = 3
SIZE = 5
BATCH_NORMS = {"BatchNorm", "_backward_BatchNorm"}
NORMS = {
    "default": {},
    "without scale": {"scale": False},
    "momentum and eps": {"momentum": 0.5, "epsilon": 0.1},
}


class Net(nn.HybridBlock):
    """Convolutions with more weights than data, whose channels the workers divide."""

    def __init__(self, norm, twice):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.first = nn.Conv2D(64, 3, padding=1, in_channels=64)
            self.norm = norm
            self.second = nn.Conv2D(64, 3, in_channels=64)
        self._twice = twice

    def hybrid_forward(self, F, x):
        found = self.norm(self.first(x))
        if self._twice:
            found = self.norm(F.tanh(found))
        return self.second(F.tanh(found)).square().mean(axis=(1, 2, 3))


def train(options, batch, dtype, twice=False):
    """Losses, parameters and a prediction, after the steps."""
    net = Net(nn.BatchNorm(prefix="norm_", **options), twice)
    net.initialize(Drawn())
    net.cast(dtype)
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for step in range(STEPS):
        x = np.random.RandomState(step).normal(size=(batch, 64, SIZE, SIZE))
        with autograd.record():
            loss = net(mx.nd.array(x, dtype=dtype))
        loss.backward()
        if step == 1:  # a second backward pass runs the forward half again
            with autograd.record():
                loss = net(mx.nd.array(x, dtype=dtype))
            loss.backward(retain_graph=True)
            loss.backward()
        trainer.step(batch)
        losses.append(loss.asnumpy())
    weights = net._collect_params_with_prefix()
    found = {n: weight.data().asnumpy() for n, weight in weights.items()}
    return {"losses": losses, **found, "predicted": net(mx.nd.array(x, dtype=dtype)).asnumpy()}


def operators(compiled):
    return {op for op in BATCH_NORMS for graph in compiled.step.graphs if graph.nodes_of({op})}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", NORMS)
def test_whole_norms(name, workers, twice, dtype):
    expected = train(NORMS[name], 2, dtype, twice)
    made = []
    tofu.enable(workers=workers, device="cpu", log="quiet")
    try:
        with observe(made.append):
            found = train(NORMS[name], 2, dtype, twice)
    finally:
        tofu.disable()
    training, predicting = made
    assert operators(training) == BATCH_NORMS and operators(predicting) == {"BatchNorm"}
    assert found.keys() == expected.keys()
    for each, value in expected.items():
        np.testing.assert_allclose(
            found[each], value, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype], err_msg=each
        )


def test_a_norm_whose_statistics_are_divided_is_taken_apart():
    made = []
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        with observe(made.append):
            train({}, 256, "float32")
    finally:
        tofu.disable()
    assert [operators(each) for each in made] == [set(), {"BatchNorm"}]
