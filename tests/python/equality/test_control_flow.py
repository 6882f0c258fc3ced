"""Blocks with control flow train partitioned as MXNet computes them step by step."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import tofu

BATCH, WIDTH, STEPS = 6, 12, 3

# Control flow that depends on values stays whole, with a warning.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*every worker computes them whole"),
    pytest.mark.filterwarnings("ignore:.*they are replicated"),
]


class Flow(nn.HybridBlock):
    """Control flow between two layers, with a parameter of its own."""

    def __init__(self, flow):
        super().__init__(prefix="flow_")
        self.flow = flow
        with self.name_scope():
            self.before = nn.Dense(WIDTH, flatten=False, in_units=8)
            if flow is recurrent:
                self.cell = rnn.LSTMCell(WIDTH, input_size=WIDTH)
            self.after = nn.Dense(4, flatten=False, in_units=WIDTH)
            self.matrix = self.params.get("matrix", shape=(WIDTH, WIDTH))

    def hybrid_forward(self, F, x, matrix):
        self.product = lambda y: F.dot(y, matrix)
        return self.after(self.flow(self, F, self.before(x)))


def recurrent(net, F, x):
    first = F.zeros_like(F.squeeze(F.slice_axis(x, axis=0, begin=0, end=1), axis=0))
    outputs, states = F.contrib.foreach(
        lambda step, states: net.cell(step, states), x, [first, first + 1]
    )
    return F.broadcast_add(net.product(outputs), F.expand_dims(states[1], 0))


def two_inputs_and_a_closure(net, F, x):
    whole = F.sum(net.product(x), axis=0)  # of (batch, width), which every step reads

    def step(slices, states):
        row, weight = slices  # of which the second is a slice of a vector, a number
        new = F.tanh(net.product(states[0]) + F.broadcast_mul(row, weight))
        return [new * whole, row], [new, states[1] + 1]

    numbers = F.mean(x, axis=(1, 2))
    start = [whole * 0, F.zeros_like(F.slice_axis(numbers, axis=0, begin=0, end=1))]
    (one, other), states = F.contrib.foreach(step, [x, numbers], start)
    return F.broadcast_add(F.broadcast_mul(one + other, states[1]), F.expand_dims(states[0], 0))


def nested(net, F, x):
    def row(step, states):
        product = net.product(step)
        sums, _ = F.contrib.foreach(
            lambda part, inner: (part + inner[0], [F.tanh(part * inner[0])]), product, [states[0]]
        )
        return sums, [F.tanh(F.mean(sums, axis=0))]

    start = F.sum(x, axis=(0, 1))
    return F.contrib.foreach(row, x, [start])[0]


def repeated(net, F, x, limit=3.5, most=6):
    count = F.zeros_like(F.slice_axis(F.reshape(x, shape=(-1,)), axis=0, begin=0, end=1))
    outputs, (last, _) = F.contrib.while_loop(
        lambda value, number: F.sum(number) < limit,
        lambda value, number: (net.product(value), [F.tanh(value) * 1.5, number + 1]),
        [x, count],
        max_iterations=most,
    )
    return last + F.sum(F.slice_axis(outputs, axis=0, begin=0, end=4), axis=0)


def never(net, F, x):
    count = F.zeros_like(F.slice_axis(F.reshape(x, shape=(-1,)), axis=0, begin=0, end=1))
    _, (last, _) = F.contrib.while_loop(
        lambda value, number: F.sum(number) < -1,
        lambda value, number: (value, [net.product(value), number + 1]),
        [x, count],
        max_iterations=2,
    )
    return last


def either(net, F, x, sign=1):
    is_positive = F.cast(F.sum(x * x) * sign > 0, "float32")  # MXNet accepts no other type
    return F.contrib.cond(is_positive, lambda: net.product(x), lambda: x * 2)


FLOWS = {
    "a recurrent cell": recurrent,
    "two inputs and a closure": two_inputs_and_a_closure,
    "a loop in a loop": nested,
    "while": repeated,
    "while, to the limit": lambda *args: repeated(*args, limit=9, most=4),
    "while, not once": never,
    "then": either,
    "else": lambda *args: either(*args, sign=-1),
}


def train(flow, dtype, *, is_hybrid):
    mx.random.seed(5)
    net = Flow(flow)
    net.initialize(mx.init.Normal(0.3))
    net.cast(dtype)
    if is_hybrid:
        net.hybridize()
    trainer, found = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), {}
    for step in range(STEPS):
        x = mx.nd.array(np.random.RandomState(step).normal(size=(BATCH, 4, 8)), dtype=dtype)
        x.attach_grad()
        with autograd.record():
            outputs = net(x)
            loss = (outputs * outputs).mean()
        loss.backward()
        found.update({f"output {step}": outputs.asnumpy(), f"gradient {step}": x.grad.asnumpy()})
        trainer.step(1, ignore_stale_grad=True)
    found["prediction"] = net(x).asnumpy()
    weights = net._collect_params_with_prefix()
    return {**found, **{name: weight.data().asnumpy() for name, weight in weights.items()}}


@pytest.fixture
def switch():
    yield lambda workers: tofu.enable(workers=workers, device="cpu", log="quiet", strict=True)
    tofu.disable()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", FLOWS)
def test_training_with_control_flow(name, workers, dtype, switch):
    expected = train(FLOWS[name], dtype, is_hybrid=False)  # Python's own loops and branches
    switch(workers)
    found = train(FLOWS[name], dtype, is_hybrid=True)
    assert abs(expected["gradient 1"]).max() > 1e-3
    tolerance = {"float32": 1e-3, "float64": 1e-10}[dtype]
    for key, value in expected.items():
        scale = max(1.0, abs(value).max())
        np.testing.assert_allclose(
            found[key] / scale, value / scale, rtol=0, atol=tolerance, err_msg=key
        )
