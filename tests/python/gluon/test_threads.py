"""Threads that call blocks, read parameters and train at once."""

import threading

import pytest
from mxnet import autograd
from mxnet.gluon import nn

from tofu.gluon.training import parameter as parameter_module

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
