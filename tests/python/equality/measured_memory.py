"""Trains a reduced model of odd sizes while MXNet counts the memory that one worker holds.

    python -m tests.python.equality.measured_memory MODEL WORKERS WATCHED

Prints the most MiB that worker WATCHED holds in the third step. MXNet's profiler has one counter
for cpu(1), and others for the contexts of OTHERS. On a machine without GPUs, contexts of pinned
memory are CPU contexts, too, except for operators' workspaces, which are on cpu(N).
"""

import dataclasses
import json
import os
import sys
import tempfile
import time

import mxnet as mx
from mxnet import autograd, gluon

import tofu
from tofu import models
from tofu.gluon.session.session import active

from . import test_reduced_models as reduced

# Sizes that replace the odd ones of test_reduced_models, and the batch. In smaller or flatter
# models the buffers of fetches, and in ResNets oneDNN's padding of channels, would weigh more.
LARGER = {
    "rnn-10-8k": ({"steps": 9, "hidden": 255}, {"data": (9, 17), "label": (9,)}, 255),
    "wresnet-152-10": ({"width": 4}, {}, 35),
    "transformer": ({"layers": 5, "units": 105, "vocabulary": 511, "hidden": 385}, {}, 255),
    "gpt-24": ({"layers": 9, "units": 105, "vocabulary": 511}, {}, 255),
}
STEPS = 3
WATCHED = mx.cpu(1)
OTHERS = (
    mx.cpu(0), mx.cpu(2), mx.cpu(3), mx.cpu_pinned(0), mx.cpu_pinned(2), mx.cpu_pinned(3),
)  # fmt: skip
_MIB = 2**20


def watched_mib(name, workers, watched):
    model, _ = reduced.sized(name, odd=True)
    options, inputs, size = LARGER[name]
    old = model.reduced
    larger = models.Size({**old.options, **options}, {**old.inputs, **inputs})
    model = dataclasses.replace(model, reduced=larger)
    tofu.enable(workers=workers, device="cpu")
    others = iter(OTHERS)
    contexts = [WATCHED if each == watched else next(others) for each in range(workers)]
    object.__setattr__(active(), "contexts", tuple(contexts))
    return most_mib(lambda: train(model, size))


def most_mib(run):
    """The most memory on WATCHED, from the time that `run` returns."""
    file = os.path.join(tempfile.gettempdir(), f"{os.getpid()}-memory.json")
    mx.profiler.set_config(profile_memory=True, filename=file)
    mx.profiler.set_state("run")
    begin_us = run() * 1e6
    mx.profiler.set_state("stop")
    mx.profiler.dump()
    with open(file, encoding="utf-8") as dumped:
        events = json.load(dumped)["traceEvents"]
    os.remove(file)
    name = f"Memory: cpu/{WATCHED.device_id}"
    values = sorted((each["ts"], each["args"][name]) for each in events if each["name"] == name)
    before = [value for when, value in values if when < begin_us][-1:]
    return max(before + [value for when, value in values if when >= begin_us]) / _MIB


def train(model, size):
    """Train, and return the time when the last step began."""
    net = models.create_block(model, reduced=True)
    net.apply(reduced.without_dropout)
    net.initialize(mx.init.Xavier(magnitude=2))
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    for step in range(STEPS):
        *inputs, labels = reduced.batch(model, size, "float32", step)
        mx.nd.waitall()
        begin = time.time()
        with autograd.record():
            loss = loss_of(net(*inputs), labels)
        loss.backward()
        trainer.step(size)
        mx.nd.waitall()
    return begin


if __name__ == "__main__":
    print(watched_mib(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
