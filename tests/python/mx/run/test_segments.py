"""Operators that MXNet's engine gets as one compute the same."""

import re

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu import _core
from tofu.mx.run import executor

WORKERS = (2, 4)
STEPS = 3
FETCHES = ("multifetch", "plain")
COPY = "_CrossDeviceCopy"


def make_net(dtype):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        net.add(nn.MaxPool2D(), nn.Dense(32, activation="tanh"), nn.Dense(8))
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    return net


def train(dtype):
    net = make_net(dtype)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    found = []
    for step in range(STEPS):
        x = mx.nd.array(np.random.RandomState(step).normal(size=(8, 4, 8, 8)), dtype=dtype)
        with autograd.record():
            loss = net(x).square().mean()
        loss.backward()
        trainer.step(1)
        found.append(loss.asnumpy())
    found.append(net(x).asnumpy())
    return found + [p.data().asnumpy() for p in net.collect_params().values()]


@pytest.fixture
def bound(monkeypatch):
    """The executors that are bound, with their graph and segments."""
    kept = []
    join_nodes = executor.join_nodes

    def joining(made, parts):
        kept.append((made, parts))
        join_nodes(made, parts)

    monkeypatch.setattr(executor, "join_nodes", joining)
    return kept


@pytest.mark.parametrize("fetch", FETCHES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", WORKERS)
def test_segments_compute_what_their_operators_do(workers, dtype, fetch, bound, monkeypatch):
    def on(joins):
        monkeypatch.setattr(executor, "_joins", lambda contexts: joins)
        tofu.enable(workers=workers, device="cpu", log="quiet", fetch=fetch)
        try:
            return train(dtype)
        finally:
            tofu.disable()

    expected = on(False)
    assert not bound
    found = on(True)
    assert sum(len(parts) for _, parts in bound) > 2 * workers
    for mine, theirs in zip(found, expected):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("fetch", FETCHES)
def test_executors_number_nodes_as_expected(fetch, bound, monkeypatch):
    """Segments are ranges of these numbers."""
    graphs = []

    def segments(graph, workers):
        graphs.append((graph, workers))
        return []

    monkeypatch.setattr(executor, "_joins", lambda contexts: True)
    monkeypatch.setattr(executor._core, "segments", segments)
    tofu.enable(workers=2, device="cpu", log="quiet", fetch=fetch)
    try:
        train("float32")
    finally:
        tofu.disable()
    assert len(graphs) == len(bound) == 2
    for (graph, workers), (made, _) in zip(graphs, bound):
        told = re.findall(r"^(?:Variable:(.*)|Op:(.*), Name=(.*))$", made.debug_str(), re.M)
        nodes = graph.nodes
        names = [
            COPY if number < 0 else nodes[number].name
            for number, _ in _core.bound_nodes(graph, workers)
        ]
        assert names == [variable or (op if op == COPY else name) for variable, op, name in told]
