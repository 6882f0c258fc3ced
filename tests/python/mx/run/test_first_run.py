"""If memory may not suffice, operators run one after another the first time."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import tofu
from tofu.mx.run import first_run, program


@pytest.fixture
def runs(monkeypatch):
    """The runs of executors' parts: the first node, and whether nodes run one by one."""
    found = []

    def spy(name, kind):
        own = getattr(program, name)

        def run(executor, begin, end, *, is_train):
            found.append((begin > 0, kind))
            own(executor, begin, end, is_train=is_train)

        monkeypatch.setattr(program, name, run)

    spy("run_part", False)
    spy("run_one_by_one", True)
    return found


def gradients(steps=2):
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        net = gluon.nn.Dense(8, in_units=6, prefix="net_")
        net.initialize(mx.init.One())
        net.hybridize()
        for step in range(steps):
            with autograd.record():
                loss = net(mx.nd.arange(24).reshape((4, 6)) + step) ** 2
            loss.backward()
        return net.weight.grad().asnumpy()
    finally:
        tofu.disable()


def test_only_once_and_only_where_memory_is_scarce(runs, monkeypatch):
    """Both halves run so, as the backward one later runs on a thread that must not wait."""
    forward, backward = False, True
    plenty = gradients()
    steps = 2 * [(forward, False), (backward, False)]
    assert runs == steps
    runs.clear()
    monkeypatch.setattr(first_run, "free_bytes", lambda contexts: 100)
    np.testing.assert_array_equal(gradients(), plenty)
    assert runs == [(forward, True), (backward, True), *steps]


def test_predictions_too(monkeypatch):
    """A prediction's executor has no backward half, and runs all at once."""

    def predicted():
        tofu.enable(workers=2, device="cpu", log="quiet")
        try:
            net = gluon.nn.Dense(8, in_units=6, prefix="net_")
            net.initialize(mx.init.One())
            net.hybridize()
            return [net(mx.nd.arange(24).reshape((4, 6)) + i).asnumpy() for i in range(2)]
        finally:
            tofu.disable()

    plenty, whole = predicted(), []
    own = program.run_one_by_one

    def spy(executor, *bounds, is_train):
        whole.append((bounds, is_train))
        own(executor, *bounds, is_train=is_train)

    monkeypatch.setattr(program, "run_one_by_one", spy)
    monkeypatch.setattr(first_run, "free_bytes", lambda contexts: 100)
    np.testing.assert_array_equal(predicted(), plenty)
    assert whole == [((), False)]


def test_stops_at_the_operator_that_fails():
    data = mx.sym.Variable("data")
    failing = mx.sym.linalg.potrf(data, name="failing")
    executor = mx.sym.Group([failing, data + 1]).bind(mx.cpu(), {"data": mx.nd.full((2, 2), -1)})
    with pytest.raises(mx.MXNetError, match="potrf"):
        first_run.run_one_by_one(executor, 0, 2, is_train=False)
    mx.nd.waitall()  # and there is no second error


def test_free_memory_follows_the_process_limit():
    contexts = [mx.cpu(0), mx.cpu(1)]
    resource = first_run.resource
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    before = first_run.free_bytes(contexts)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**26, hard))
        limited = first_run.free_bytes(contexts)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert 0 < limited <= 2**26 < before


@pytest.mark.parametrize(("free", "scarce"), [(2**40, False), (100, True)])
def test_executors_that_need_most_of_it_are_told_apart(free, scarce, monkeypatch):
    monkeypatch.setattr(first_run, "free_bytes", lambda contexts: free)
    executor = (mx.sym.Variable("data") + 1).bind(mx.cpu(), {"data": mx.nd.ones((512, 1024))})

    class Graph:
        tensor_bytes = 2 * 2**21

    assert first_run.is_memory_scarce([(executor, Graph)], [mx.cpu()]) is scarce


@pytest.mark.parametrize(("mib", "scarce"), [(2, True), (40, False)])
def test_the_bytes_that_mxnet_plans_decide(mib, scarce, monkeypatch):
    """All tensors of a chain take 64 MiB, but two at a time are alive."""
    symbol = mx.sym.Variable("data")
    for _ in range(32):
        symbol = mx.sym.tanh(symbol)
    executor = symbol.bind(mx.cpu(), {"data": mx.nd.ones((512, 1024))}, grad_req="null")

    class Graph:
        tensor_bytes = 64 * 2**20

    monkeypatch.setattr(first_run, "free_bytes", lambda contexts: mib * 2**20)
    assert first_run.is_memory_scarce([(executor, Graph)], [mx.cpu()]) is scarce
