"""Nets, losses and a record of gathered outputs, for the tests of outputs that stay tiles."""

import contextlib
from unittest import mock

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

from tofu.gluon.session.session import active
from tofu.gluon.training import outputs

from .models import started

CLASSES = 6


@contextlib.contextmanager
def gathers():
    """Yield a list that gets the shapes of outputs gathered in the block."""
    found = []
    original = outputs.Memory.gather

    def gather(memory):
        if memory._whole is None:
            found.append(tuple(memory.layout.shape))
        return original(memory)

    with mock.patch.object(outputs.Memory, "gather", gather):
        yield found


def label(rows=12):
    return mx.nd.array(np.arange(rows) % CLASSES)


def dense(units=CLASSES, prefix="dense_", **options):
    return started(nn.Dense(units, in_units=8, prefix=prefix, **options))


def batch(rows=12, columns=8):
    return mx.nd.array(np.random.RandomState(3).uniform(-1, 1, (rows, columns)))


def softmax_loss():
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    return loss


def gradients(*blocks):
    return [
        p.grad()
        for block in blocks
        for p in block.collect_params().values()
        if p.grad_req != "null"
    ]


def bound_of(block):
    pools = active().state.blocks[block]._pools.values()
    return [bound for pool in pools for bound in pool._bound]
