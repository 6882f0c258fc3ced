"""If descriptions and lowerings fail, other operators are partitioned, and results are correct."""

import copy
import dataclasses
import warnings

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
import tofu.tdl
from tofu.analysis import table
from tofu.gluon.session.messages import TofuWarning
from tofu.lang.description import _REGISTRY
from tofu.mx.graphs.lower import BEFORE


class Net(nn.HybridBlock):
    """Two dense layers around the operators whose descriptions and lowerings fail."""

    def __init__(self, **kwargs):
        super().__init__(prefix="net_", **kwargs)
        with self.name_scope():
            self.first, self.second = nn.Dense(24), nn.Dense(12)

    def hybrid_forward(self, F, x):
        hidden = F.sqrt(F.square(self.first(x)) + 1)
        hidden = F.broadcast_sub(hidden, F.mean(hidden, axis=0, keepdims=True))
        return self.second(hidden)


def train():
    mx.random.seed(1)
    net = Net()
    net.initialize(mx.init.Xavier())
    net.cast("float64")
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for step in range(3):
        x = mx.nd.array(np.random.RandomState(step).normal(size=(8, 12)), dtype="float64")
        with autograd.record():
            loss = net(x).square().sum(axis=1)
        loss.backward()
        trainer.step(8)
        losses.append(loss.asnumpy())
    weights = net._collect_params_with_prefix()
    return losses, {name: weight.data().asnumpy() for name, weight in weights.items()}


def fails(*_, **__):
    raise ValueError("no such thing")


@pytest.fixture
def failing_description(monkeypatch):
    broken = copy.copy(_REGISTRY["sqrt"])
    broken._function = fails
    monkeypatch.setitem(_REGISTRY, "sqrt", broken)
    table._row.cache_clear()
    monkeypatch.setattr(table, "_SYMBOLIC", {})
    yield
    table._row.cache_clear()


@pytest.fixture
def failing_lowering(monkeypatch):
    broken = dataclasses.replace(BEFORE._lowerings["mean"], function=fails)
    monkeypatch.setitem(BEFORE._lowerings, "mean", broken)


@pytest.mark.parametrize(
    ("fixture", "reasons"),
    [
        ("failing_description", ["sqrt: its description fails for inputs of 8x24: ", "no such"]),
        ("failing_lowering", ["mean: its rewrite fails: ValueError: no such thing"]),
    ],
)
@pytest.mark.parametrize(("workers", "machine"), [(2, None), (4, None), (2, "p2.8xlarge")])
def test_one_operator_is_whole_and_one_warning_says_why(
    fixture, reasons, workers, machine, request, capsys
):
    expected, expected_weights = train()
    request.getfixturevalue(fixture)
    tofu.enable(workers=workers, device="cpu", machine=machine)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            losses, weights = train()
    finally:
        tofu.disable()
    (text,) = [str(each.message) for each in seen if each.category is TofuWarning]
    assert all(reason in text for reason in reasons), text
    assert "every worker computes them whole" in text and "split" not in text
    assert f"over {workers} workers" in capsys.readouterr().err
    np.testing.assert_allclose(losses, expected, rtol=1e-11)
    for name, value in expected_weights.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-11, atol=1e-12, err_msg=name)
