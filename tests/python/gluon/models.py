"""Nets and training loops in plain Gluon, to run with and without tofu."""

import contextlib
import re
import sys
import threading
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon

from . import fakes

STEPS = 4
WAIT_S = 60  # threads take milliseconds unless something hangs


def told_lines(capsys):
    """Tofu's messages on standard error since the last call, with all set-up times as 0."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tofu:")]
    return [re.sub(r"set up in [\d.]+ s", "set up in 0.00 s", line) for line in lines]


def make_net(hybrid=True, prefix="net_"):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu"), nn.BatchNorm(), nn.Dropout(0.0), nn.Dense(6))
    return started(net, hybrid)


def started(net, hybrid=True):
    """Initialize the net with weights that do not depend on earlier runs."""
    mx.random.seed(7)
    np.random.seed(7)
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    return net


def batches(count=STEPS, batch=12):
    random = np.random.RandomState(1)
    for i in range(count):
        size = batch if i < count - 1 or count == 1 else batch // 2  # the last one is smaller
        yield (
            mx.nd.array(random.uniform(-1, 1, (size, 10))),
            mx.nd.array(random.randint(0, 6, (size,))),
        )


def data(batch=12):
    return next(batches(1, batch))[0]


def train(optimizer="sgd", params=None, net=None, steps=STEPS, after_backward=None):
    """Train; return losses and a prediction, weights, and the trainer."""
    net = net or make_net()
    trainer = gluon.Trainer(
        net.collect_params(), optimizer, params or {"learning_rate": 0.1, "momentum": 0.9}
    )
    losses = fit(net, trainer, steps, after_backward)
    return losses, weights(net), trainer


def fit(net, trainer, steps=STEPS, after_backward=None):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()
    losses = []
    for inputs, label in batches(steps):
        with autograd.record():
            loss = loss_of(net(inputs), label)
        loss.backward()
        if after_backward is not None:
            after_backward(net)
        trainer.step(len(inputs))
        losses.append(loss.asnumpy())
    losses.append(net(inputs).asnumpy())
    return losses


def weights(net):
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


@contextlib.contextmanager
def plain():
    """Turn tofu off in this context, and keep the fixture's backend."""
    session = tofu.gluon.session.session.active()
    tofu.gluon.disable()
    try:
        yield
    finally:
        mode = session.wish.options.mode
        tofu.gluon.enable(workers=session.workers, device="cpu", log="quiet", search=mode)


def plainly(function, *args, **kwargs):
    with plain():
        return function(*args, **kwargs)


def assert_same(found, expected, what="", *, rounded=False):
    """Check that nested lists and dicts of arrays agree: exactly with fakes, else up to rounding.

    rounded: allow rounding with fakes, too, as MXNet may add three parts in another order.
    """
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_same(found[name], expected[name], name, rounded=rounded)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other, what, rounded=rounded)
    else:
        exact = fakes.are_used() and not rounded
        relative, absolute = (0, 0) if exact else (1e-4, 2e-5)
        np.testing.assert_allclose(
            as_numpy(found), as_numpy(expected), rtol=relative, atol=absolute, err_msg=what
        )


def as_numpy(value):
    return value.asnumpy() if isinstance(value, mx.nd.NDArray) else value


def wait_until(holds, act=lambda: None):
    """Repeat an action until a condition holds.

    A thread of MXNet lets go of a function a moment after the wait for its results ends. Then the
    next call of a block frees what the function held.
    """
    limit = time.monotonic() + 20
    act()
    while not holds():
        assert time.monotonic() < limit, "what was dropped is still alive"
        time.sleep(0.001)
        act()


def run_all(*functions):
    """Call each function on its own thread; raise the first error of any."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in functions]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
