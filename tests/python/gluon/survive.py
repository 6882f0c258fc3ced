"""Trains through one kind of trouble again and again, in a separate process.

    python survive.py interrupts --workers 2 --times 100 --seed 0

After each time it resets the parameters, and a step must have the same results as without tofu.
Prints "survived", or ends with the first error. A watchdog ends a process that makes no progress.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import signal
import sys
import time

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu

WATCHDOG_S = 150
SIZE, UNITS = 24, 32


class Net(nn.HybridBlock):
    """Layers with state, several outputs, and activations to communicate."""

    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.first = nn.Conv2D(8, 3, padding=1, in_channels=2)
            self.norm = nn.BatchNorm(in_channels=8)
            self.last = nn.Dense(UNITS, in_units=8 * 36)

    def hybrid_forward(self, F, x):
        hidden = F.relu(self.norm(self.first(x)))
        return self.last(hidden), F.mean(hidden, axis=(1, 2, 3))


def watch():
    """End the process with a traceback of all threads unless this is called again in time."""
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)


class Script:
    """A net and its Trainer, which can be reset to the start."""

    def __init__(self, dtype):
        mx.random.seed(3)
        self.dtype = dtype
        self.net = Net()
        self.net.initialize(mx.init.Xavier())
        self.net.cast(dtype)
        self.net.hybridize()
        self.start = self.values()
        self.new_trainer()

    def new_trainer(self):
        options = {"learning_rate": 0.05, "momentum": 0.9}
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", options)

    def values(self):
        return {n: p.data().asnumpy() for n, p in self.net.collect_params().items()}

    def reset(self):
        for name, parameter in self.net.collect_params().items():
            parameter.set_data(mx.nd.array(self.start[name], dtype=self.dtype))
        self.new_trainer()

    def step(self):
        drawn = np.random.RandomState(0).normal(size=(SIZE, 2, 6, 6))
        data = mx.nd.array(drawn, dtype=self.dtype)
        with autograd.record():
            one, other = self.net(data)
            loss = (one**2).mean() + other.sum()
        loss.backward()
        self.trainer.step(SIZE)
        return loss.asnumpy()

    def steps(self):
        """Two steps from the start: the losses and the parameters."""
        self.reset()
        losses = [self.step() for _ in range(2)]
        mx.nd.waitall()
        return {"losses": np.concatenate(losses), **self.values()}


def check(script, expected, when):
    """Check that two steps from the start have the same results as without tofu."""
    watch()
    found = script.steps()
    tolerance = 1e-10 if script.dtype == "float64" else 2e-4
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=tolerance, atol=tolerance, err_msg=f"{name} {when}"
        )


def interrupts(script, expected, arguments):
    """Control-C at random moments of a step; of the first step of a new net, too."""
    draw = random.Random(arguments.seed)
    script.steps()
    began = time.monotonic()
    script.steps()
    span, hits = time.monotonic() - began, 0
    for number in range(arguments.times):
        watch()
        if number % 10 == 9:
            script = Script(arguments.dtype)
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-4, span))
            for _ in range(20):
                script.step()
        except KeyboardInterrupt:
            hits += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        check(script, expected, f"after interrupt {number}")
    # Python ignores interrupts while it frees an object.
    assert hits >= arguments.times / 2, f"only {hits} interrupts of {arguments.times}"


class Wide(nn.HybridBlock):
    """Has an activation of ten gigabytes, more than the process may allocate."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, in_units=4)

    def hybrid_forward(self, F, x):
        hidden = F.expand_dims(self.dense(x), 2)
        return F.sum(F.tanh(F.broadcast_axis(hidden, axis=2, size=2**24)), axis=2)


def wide_step(net, data):
    with autograd.record():
        loss = net(data)
    loss.backward()
    loss.asnumpy()


def memory(script, expected, arguments):
    """Steps that need more memory than there is, on every worker and serially."""
    script.steps()
    for number in range(arguments.times):
        watch()
        script.step()
        net = Wide()
        net.initialize()
        net.cast(script.dtype)
        net.hybridize()
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + 2**29
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            with pytest.raises(mx.MXNetError, match="allocate"):
                wide_step(net, mx.nd.ones((SIZE, 4), dtype=script.dtype))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        check(script, expected, f"after running out of memory {number} times")


class Images(gluon.data.Dataset):
    """Draws its items with MXNet's operators, in the process that loads them."""

    def __len__(self):
        return 2 * SIZE

    def __getitem__(self, index):
        drawn = np.random.RandomState(index).normal(size=(2, 6, 6))
        return (mx.nd.array(drawn) * 2).asnumpy()


def forks(script, expected, arguments):
    """Processes that load data, started in the middle of the training."""
    for number in range(arguments.times):
        script.step()  # the engine is at work
        watch()
        loader = gluon.data.DataLoader(Images(), batch_size=SIZE, num_workers=2, timeout=30)
        for batch in loader:
            with autograd.record():
                one, other = script.net(batch.astype(script.dtype))
                loss = (one**2).mean() + other.sum()
            loss.backward()
            script.trainer.step(SIZE)
        del loader
        check(script, expected, f"after {number + 1} loaders")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trouble", choices=("interrupts", "memory", "forks"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fetch", default="multifetch")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Control-C does
    watch()
    expected = Script(arguments.dtype).steps()
    tofu.enable(workers=arguments.workers, device="cpu", fetch=arguments.fetch, log="quiet")
    trouble = {"interrupts": interrupts, "memory": memory, "forks": forks}[arguments.trouble]
    trouble(Script(arguments.dtype), expected, arguments)
    print("survived")
    sys.stdout.flush()


main()
