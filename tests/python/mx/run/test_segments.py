"""Which operators MXNet's engine gets as one, and that they compute the same."""

import re

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.mx.run import executor
from tofu.mx.run.segments import Step, executor_order, segments, steps_of

WORKERS = (2, 4)
STEPS = 3


def described(*nodes, heads):
    """Nodes as (operator, worker, numbers of inputs)."""
    return [Step(op, f"worker{worker}", inputs) for op, worker, inputs in nodes], heads


FETCH = "_tofu_multifetch"
CASES = {
    "operators in a row": (
        described(("", 0, []), ("a", 0, [0]), ("b", 0, [1]), ("c", 0, [2]), heads=[3]),
        [(1, 4)],
    ),
    "a variable in between": (
        described(("", 0, []), ("a", 0, [0]), ("", 0, []), ("b", 0, [1, 2]), heads=[3]),
        [(1, 4)],
    ),
    "one operator": (described(("", 0, []), ("a", 0, [0]), heads=[1]), []),
    "another worker": (
        described(
            *(("", 0, []), ("a", 0, [0]), ("b", 0, [1])),
            *(("", 1, []), ("a", 1, [3]), ("b", 1, [4])),
            heads=[2, 5],
        ),
        [(1, 3), (4, 6)],
    ),
    # What comes before a fetch does not wait for it; what comes after does in any case.
    "a fetch": (
        described(
            *(("", 0, []), ("a", 0, [0]), ("b", 0, [1])),
            *(("", 1, []), (FETCH, 0, [3]), ("c", 0, [2, 4]), ("d", 0, [5])),
            heads=[6],
        ),
        [(1, 3), (4, 7)],
    ),
    "fetches in a row": (
        described(
            *(("", 1, []), ("", 0, []), (FETCH, 0, [0]), (FETCH, 0, [0, 1])),
            ("a", 0, [2, 3]),
            heads=[4],
        ),
        [(1, 5)],  # the variable is numbered where the second fetch needs it
    ),
    # The reader waits for `b`, not for `c`.
    "a tile that another worker reads": (
        described(
            *(("", 0, []), ("a", 0, [0]), ("b", 0, [1]), ("c", 0, [2]), ("d", 0, [3])),
            *((FETCH, 1, [2]), ("e", 1, [5])),
            heads=[4, 6],
        ),
        [(1, 3), (3, 5), (5, 7)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_segments(name):
    (nodes, heads), expected = CASES[name]
    assert segments(nodes, heads) == expected


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", WORKERS)
def test_segments_compute_what_their_operators_do(workers, dtype, bound, monkeypatch):
    def on(joins):
        monkeypatch.setattr(executor, "_joins", lambda contexts: joins)
        tofu.enable(workers=workers, device="cpu", log="quiet", fetch="multifetch")
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


def test_executors_number_nodes_as_expected(bound, monkeypatch):
    graphs, parts = [], []
    monkeypatch.setattr(executor, "_joins", lambda contexts: True)
    monkeypatch.setattr(executor, "steps_of", lambda graph: graphs.append(graph) or steps_of(graph))
    monkeypatch.setattr(
        executor, "segments", lambda nodes, heads: parts.append((nodes, heads)) or []
    )
    tofu.enable(workers=2, device="cpu", log="quiet", fetch="multifetch")
    try:
        train("float32")
    finally:
        tofu.disable()
    assert len(graphs) == len(bound) == 2
    for graph, (nodes, heads), (made, _) in zip(graphs, parts, bound):
        told = re.findall(r"^(?:Variable:(.*)|Op:[^,]*, Name=(.*))$", made.debug_str(), re.M)
        names = [graph.nodes[number].name for number in executor_order(nodes, heads)]
        assert names == [variable or name for variable, name in told]
