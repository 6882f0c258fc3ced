"""Trains while single workers, or all of them, get no memory, in a separate process.

    LD_PRELOAD=libscarce_memory.so python out_of_memory.py --workers 4 forward backward

Prints a line of JSON for each place and worker: the errors of the step, the number of failed
allocations, and whether the steps after it have the same results as without the fault.
"""

import argparse
import ctypes
import faulthandler
import functools
import json
import os

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.mx.run import first_run

WATCHDOG_S = 150
ROWS, COLUMNS = 384, 256
LEAST = 2**16  # bytes; the tiles of parameters and activations are larger
MARK = 77_777  # elements of an array that marks the script's place
EVERY = "every worker"

memory = ctypes.CDLL(None)
memory.tofu_test_mark.argtypes = [ctypes.c_size_t]
memory.tofu_test_marked.restype = ctypes.c_size_t
memory.tofu_test_fail.argtypes = [ctypes.c_size_t, ctypes.c_size_t]


def thread_of(context):
    """The thread that allocates for a context."""
    memory.tofu_test_mark(MARK * 4)
    mx.nd.zeros(MARK, ctx=context).wait_to_read()
    found = memory.tofu_test_marked()
    memory.tofu_test_mark(0)
    assert found
    return found


class Net(nn.HybridBlock):
    """Has large activations, and a large and a small output; the script uses the small one."""

    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.a = self.params.get("a", shape=(ROWS, COLUMNS))
            self.b = self.params.get("b", shape=(ROWS, COLUMNS))

    def hybrid_forward(self, F, x, a, b):
        first = F.exp(F.broadcast_mul(x, F.expand_dims(a, axis=0)))
        found = F.sin(F.broadcast_mul(first, F.expand_dims(b, axis=0)))
        return found, F.mean(F.square(found), axis=(1, 2))


class Script:
    """A net that trains, and whose memory fails from a place on, in the thread of a worker."""

    def __init__(self, dtype):
        mx.random.seed(1)
        self.dtype = dtype
        self.net = Net()
        self.net.initialize(mx.init.Uniform(1))
        self.net.cast(dtype)
        self.net.hybridize()
        options = {"learning_rate": 0.5, "momentum": 0.9}
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", options)

    def step(self, rows, place=None, thread=0):
        def at(reached):
            if reached == place:
                mx.nd.waitall()
                memory.tofu_test_fail(thread, LEAST)

        x = mx.nd.ones((rows, ROWS, COLUMNS), dtype=self.dtype)
        x.wait_to_read()
        at("forward")
        with autograd.record():
            found, loss = self.net(x)
        loss.wait_to_read()
        at("fetch")
        if place == "fetch":
            found.asnumpy()
        at("backward")
        loss.backward()
        mx.nd.waitall()
        at("states")
        self.trainer.step(rows)
        mx.nd.waitall()
        return loss.asnumpy()

    def values(self):
        """The results of two more steps."""
        losses = [self.step(2) for _ in range(2)]
        return [*losses, self.net.a.data().asnumpy(), self.net.b.data().asnumpy()]


def started(place, dtype):
    """A script whose next step can fail at this place."""
    script = Script(dtype)
    if place not in ("parameters", "states"):
        script.step(1)  # the next batch gets another program
    return script


@functools.cache
def expected(place, dtype):
    """The results of two steps without a fault."""
    return started(place, dtype).values()


def attempt(place, thread, dtype):
    """The errors of a step in which memory fails, and the number of failed allocations."""
    script, errors = started(place, dtype), []
    for run in (
        lambda: script.step(2, "forward" if place == "parameters" else place, thread),
        mx.nd.waitall,
    ):
        try:
            run()
        except mx.MXNetError as error:
            errors.append(str(error))
        finally:
            memory.tofu_test_fail(0, 0)
    failures, found = memory.tofu_test_failures(), script.values()
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    right = all(
        np.allclose(a, b, rtol=tolerance, atol=tolerance)
        for a, b in zip(found, expected(place, dtype))
    )
    return {"errors": errors, "failures": failures, "right": right}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("places", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--every", type=int, help="how often all workers fail, instead of each")
    parser.add_argument("--scarce", action="store_true", help="as if there were little memory")
    arguments = parser.parse_args()
    if arguments.scarce:
        first_run.free_bytes = lambda _: 100
    tofu.enable(workers=arguments.workers, device="cpu", log="quiet")
    threads = {str(w): thread_of(mx.cpu(w)) for w in range(arguments.workers)}
    cases = [(EVERY, 0)] * arguments.every if arguments.every else list(threads.items())
    for place in arguments.places:
        for worker, thread in cases:
            faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
            found = attempt(place, thread, arguments.dtype)
            print(json.dumps({"place": place, "worker": worker, **found}), flush=True)
    print(json.dumps("survived"), flush=True)
    os._exit(0)


main()
