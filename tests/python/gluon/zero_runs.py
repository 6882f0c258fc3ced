"""Runs of plans that divide a weight's states or gradient in other ways than the weight.

ZeRO's stages 1 and 2 do so with whole weights (docs/plans.md). The fakes also divide in ways that
no plan would, and with them all results are bit for bit those of plain MXNet.
"""

import contextlib
import itertools
import zlib

import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session import backend

from . import fakes
from .models import data, started

STAGES = ["stage 1", "stage 2"]
OTHERS = [kind for kind in fakes.KINDS if kind not in ("alike", *STAGES)]


MODES = ["zero-1", "zero-2"]


@contextlib.contextmanager
def dividing(kind, workers):
    """Turn tofu on with a search mode, or a fake that divides gradients and states."""
    is_mode = kind in MODES
    with fakes.using(backend.own() if is_mode else fakes.backend(kind)):
        options = {"search": kind} if is_mode else {"allow_replication": True}
        tofu.gluon.enable(workers=workers, device="cpu", log="quiet", **options)
        yield
        tofu.gluon.disable()


EACH = [*itertools.product(STAGES, (2, 4)), *itertools.product(OTHERS, (4,)), *zip(MODES, (2, 4))]


def some_of_each(metafunc):
    """Parametrize `divided`: a run takes two ways for a test, others for other tests."""
    first = zlib.crc32(metafunc.function.__name__.encode()) % (len(EACH) // 2)
    ways = [
        pytest.param(
            way,
            id=f"{way[0]} over {way[1]}",
            marks=[] if number % (len(EACH) // 2) == first else [pytest.mark.whole],
        )
        for number, way in enumerate(EACH)
    ]
    metafunc.parametrize("divided", ways, indirect=True)


OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.1}),
    "momentum": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
    "adam": ("adam", {"learning_rate": 0.05}),
    "nag": ("nag", {"learning_rate": 0.05, "momentum": 0.9}),
    "clipping": ("adam", {"learning_rate": 0.05, "clip_gradient": 0.01}),
}


def dense(dtype):
    """Dense layers with some dimensions that four workers divide, and some that they do not."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu"), nn.Dense(8), nn.Dense(6))
    started(net)
    net.cast(dtype)
    return net


def steps(net, trainer, dtype="float32", count=3, batch=12):
    losses = []
    for number in range(count):
        with autograd.record():
            loss = (net(data(batch).astype(dtype) * (1 + number)) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asnumpy())
    return losses


def steps_on(net, inputs):
    trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
    with autograd.record():
        loss = (net(inputs) ** 2).mean()
    loss.backward()
    trainer.step(1)
    loss.wait_to_read()


def state_arrays(state):
    if isinstance(state, (tuple, list)):
        return [array for each in state for array in state_arrays(each)]
    return [] if state is None else [state]


def state_bytes(trainer):
    """The bytes of optimizer states on each worker."""
    return [
        sum(
            array.size * np.dtype(array.dtype).itemsize
            for state in updater.states.values()
            for array in state_arrays(state)
        )
        for updater in trainer._tofu.updaters
    ]
