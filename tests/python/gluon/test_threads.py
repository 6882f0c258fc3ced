"""Threads that call blocks, read parameters and train at once."""

import contextlib
import threading

import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from tofu.errors import GradientError
from tofu.gluon.session.session import active
from tofu.gluon.training import delivery, views
from tofu.gluon.training import parameter as parameter_module
from tofu.gluon.training.gradients import Gradients

from .models import assert_same, data, make_net, plainly, run_all, started, weights

THREADS = 4


def make_whole(hybrid, prefix):
    """A net whose parameters have their values before its first call."""
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(12, in_units=10), nn.BatchNorm(in_channels=12), nn.Dense(6, in_units=12))
    return started(net, hybrid)


def first_calls(together, shared, hybrid):
    """Outputs and weights of nets after one recorded call by each thread."""
    nets = [make_whole(hybrid, f"net{i}_") for i in range(1 if shared else THREADS)]
    found = {}

    def call(number):
        with autograd.record():
            outputs = nets[number % len(nets)](data())
        found[number] = outputs.asnumpy()

    if together:
        run_all(*[lambda number=number: call(number) for number in range(THREADS)])
    else:
        for number in range(THREADS):
            call(number)
    return found, [weights(net) for net in nets]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_first_calls_on_several_threads(shared, hybrid, two):
    expected = plainly(first_calls, False, shared, hybrid)
    assert_same(first_calls(True, shared, hybrid), expected)


def test_a_gradient_is_read_while_its_parameter_is_divided(two, monkeypatch):
    net = make_whole(True, "net_")
    mark, found, threads = parameter_module._mark_zeros, [], []

    def read():
        parameter = net[0].weight
        found.append((parameter.grad().asnumpy(), parameter.data().asnumpy()))

    def marking(parameter, fresh):
        if parameter is net[0].weight:
            threads.append(threading.Thread(target=read))
            threads[0].start()
            threads[0].join(0.2)  # it may have to wait
        mark(parameter, fresh)

    monkeypatch.setattr(parameter_module, "_mark_zeros", marking)
    value = net[0].weight.data().asnumpy()
    with autograd.record():
        net(data())
    threads[0].join()
    assert [(0, value.tobytes())] == [(g.max(), v.tobytes()) for g, v in found]


def test_a_trace_leaves_other_threads_their_attributes(two):
    """Gluon's collect_params() goes through the children of a block."""
    net = make_net(hybrid=False)
    net(data())
    children = iter(net._children.values())
    next(children)
    with autograd.record():
        net(data())
    assert len(list(children)) == 3  # else: "OrderedDict mutated during iteration"


def trained_while_read(reads):
    """Weights after some steps, while another thread reads all gradients again and again."""
    net, done = make_whole(True, "net_"), threading.Event()
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    trainer = gluon.Trainer(trained, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    net(data()).wait_to_read()

    def train():
        for _ in range(60):
            with autograd.record():
                loss = (net(data()) ** 2).mean()
            loss.backward()
            trainer.step(1)
        done.set()

    def read():
        while not done.is_set():
            for parameter in trained:
                with contextlib.suppress(GradientError):  # an update has used it
                    parameter.grad().asnumpy()

    run_all(train, *([read] if reads else ()))
    return weights(net)


def test_gradients_that_another_thread_reads_update_as_ever(two):
    assert_same(trained_while_read(reads=True), plainly(trained_while_read, reads=False))


def gradients_of_two_calls():
    net = make_whole(True, "net_")
    net(data())
    for factor in (1, 2):
        with autograd.record():
            loss = (net(data() * factor) ** 2).mean()
        loss.backward()
    return [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]


def test_a_gradient_is_first_read_during_a_backward_call(two, monkeypatch):
    """It is kept from then on; the marks from before that call are no news."""
    expected, before, calls = plainly(gradients_of_two_calls), delivery.before_backward, []

    def reading(state):
        before(state)
        calls.append(state)
        if len(calls) == 2:
            for parameter in state.tiled:
                if parameter.grad_req != "null":
                    parameter._tofu.gradients.read()

    monkeypatch.setattr(delivery, "before_backward", reading)
    assert_same(gradients_of_two_calls(), expected)
    assert len(calls) == 2


def test_gradients_change_under_the_lock_under_which_threads_read(two, monkeypatch):
    net, held = make_whole(True, "net_"), []
    net(data())

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*args):
            if threading.current_thread() is threading.main_thread():  # MXNet's may not wait for it
                held.append((name, active().state.changing._is_owned()))
            return original(*args)

        monkeypatch.setattr(owner, name, watched)

    watch(Gradients, "reclaim")
    watch(Gradients, "after_backward")
    watch(views, "after_backward")
    with autograd.record():
        loss = net(data()).sum()
    loss.backward()
    assert set(held) == {("reclaim", True), ("after_backward", True)}
