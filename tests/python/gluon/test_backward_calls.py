"""Backward calls run one at a time, and each waits for its own callbacks."""

import time

import mxnet as mx
import pytest
from mxnet import autograd, gluon

from tofu.gluon.session.backward_calls import BackwardCalls
from tofu.gluon.session.living import Living
from tofu.gluon.session.session import active
from tofu.gluon.training import views

from .models import assert_same, data, make_net, plainly, run_all, weights

ROUNDS = 25


@pytest.mark.parametrize("num_variables", [0, 1])
def test_one_call_at_a_time(num_variables):
    """A second call begins only when the first one, including its `after`, has ended."""
    calls, events = BackwardCalls(), []
    args = [None] * 9
    args[3] = num_variables

    def backward(*_args):
        events.append("backward")
        time.sleep(0.01)  # lets another thread run in between
        return 0

    def call():
        def before():
            events.append("before")

        def after():
            events.append("after")

        calls.run(backward, args, before, after)

    run_all(*[call] * 8)
    assert events == ["before", "backward", "after"] * 8


def steps_and_gradients(together):
    """Weights after steps of one net, and gradients of another from autograd.grad."""
    nets = [make_net(prefix=f"net{i}_") for i in range(2)]
    for net in nets:
        net.cast("float64")
    trainer = gluon.Trainer(nets[0].collect_params(), "sgd", {"learning_rate": 0.1})
    trained = [p for p in nets[1].collect_params().values() if p.grad_req != "null"]
    inputs, found = data().astype("float64"), []
    for net in nets:
        net(inputs)

    def train():
        for _ in range(ROUNDS):
            with autograd.record():
                loss = (nets[0](inputs) ** 2).mean()
            loss.backward()
            trainer.step(1)

    def ask():
        for _ in range(ROUNDS):
            with autograd.record():
                loss = (nets[1](inputs) ** 2).mean()
            gradients = autograd.grad(loss, [parameter.data() for parameter in trained])
            found.append([gradient.asnumpy() for gradient in gradients])

    if together:
        run_all(train, ask)
    else:
        train()
        ask()
    running = weights(nets[1])
    return weights(nets[0]), found, {n: v for n, v in running.items() if "running" in n}


def test_backward_and_grad_on_two_threads(workers):
    expected = plainly(steps_and_gradients, together=False)
    assert_same(steps_and_gradients(together=True), expected)


def test_recordings_are_read_under_the_lock(two, monkeypatch):
    """Another thread's backward call could free graphs in the meantime."""
    net, looks = make_net(), []
    net(data())
    calls = active().state.calls
    recorded = calls.recorded

    def watched():
        looks.append(calls.lock._is_owned())
        return recorded()

    monkeypatch.setattr(calls, "recorded", watched)
    with autograd.record():
        loss = net(data()).sum()
    autograd.grad(loss, [net[0].weight.data()])
    assert looks
    assert all(looks)


def test_a_value_is_flushed_while_it_is_freed(two, monkeypatch):
    """The flush after a script has dropped its array frees it, which may cause another flush."""
    net = make_net()
    net(data())
    value = net[0].weight.data()
    net(data())  # from here on only the script holds the array
    value[:] = 3
    free, freed = mx.nd.NDArray.__del__, []

    def flushing(self):
        freed.append(self.shape)
        views.flush(active().state.views)
        free(self)

    shape = value.shape
    del value
    mx.nd.waitall()  # operators that are under way share the memory
    monkeypatch.setattr(mx.nd.NDArray, "__del__", flushing, raising=False)
    views.flush(active().state.views)
    tiles = net[0].weight._tofu.variables
    monkeypatch.undo()
    assert shape in freed
    assert (tiles[0].asnumpy() == 3).all()


def test_values_are_dropped_while_another_thread_reads_them(two):
    """One thread takes and drops whole arrays while another thread's calls visit all of them."""
    nets = [make_net(prefix=f"net{i}_") for i in range(2)]
    for net in nets:
        net(data())
    values = weights(nets[1])

    def take():
        for _ in range(60):
            for name, parameter in nets[1].collect_params().items():
                assert parameter.data().asnumpy().tobytes() == values[name].tobytes()

    def call():
        for _ in range(60):
            nets[0](data())

    run_all(take, call)
    assert_same(weights(nets[1]), values)


def test_a_set_that_keeps_nothing_alive():
    found, one, other = Living(), BackwardCalls(), BackwardCalls()
    for each in (one, other, one):
        found.add(each)
    assert (len(found), list(found), one in found) == (2, [one, other], True)
    found.discard(other)
    del one, each
    assert (len(found), list(found)) == (0, [])


def test_it_may_grow_while_it_is_looked_at():
    found, kept = Living(), []

    def grow():
        for _ in range(2000):
            kept.append(BackwardCalls())
            found.add(kept[-1])

    def look():
        while len(kept) < 2000:
            list(found)

    run_all(grow, look)
    assert len(found) == 2000
