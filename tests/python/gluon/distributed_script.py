"""A script for test_distributed.py: trains nets in one of several processes, or alone.

    python distributed_script.py FOLDER PART CASE [CASE...]

Each CASE is OPTIMIZER:DTYPE:KVSTORE:UPDATE, for a net of its own; UPDATE is 1 where the servers
update, else 0. The weights go to FOLDER/CASE-PART.npz. PART is all, or the first N processes'.
"""

import os
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

STEPS = 4
BATCH = 16
PARAMS = {
    "sgd": {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.02},
    "lamb": {"learning_rate": 0.02},
}


class Net(gluon.HybridBlock):
    """A convolution and dense layers; no gradient is 0 in truth."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = nn.Conv2D(8, 3, padding=1, in_channels=4, activation="relu")
            self.dense = nn.Dense(12, in_units=8 * 16, activation="relu")
            self.last = nn.Dense(7, in_units=12)  # 7 rows: whole on every worker

    def hybrid_forward(self, F, x):
        return self.last(self.dense(self.conv(x)))


def build(dtype):
    mx.random.seed(7)
    np.random.seed(7)
    net = Net(prefix="net_")
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    return net


def fit(net, trainer, dtype, steps, part=slice(None)):
    """Steps on a part of each batch; the gradients are rescaled by the whole batch."""
    for step in steps:
        inputs = np.random.RandomState(step).uniform(-1, 1, (BATCH, 4, 4, 4))[part]
        with autograd.record():
            loss = (net(mx.nd.array(inputs, dtype=dtype)) ** 2).sum()
        loss.backward()
        trainer.step(BATCH)


def weights(net):
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def train(case, part=slice(None)):
    optimizer, dtype, kvstore, update = case.split(":")
    net = build(dtype)
    trainer = gluon.Trainer(
        net.collect_params(),
        optimizer,
        dict(PARAMS[optimizer]),
        kvstore=kvstore,
        update_on_kvstore=bool(int(update)),
    )
    fit(net, trainer, dtype, range(STEPS), part)
    return net, trainer


def main(folder, *cases):
    rank, size = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
    share = BATCH // size
    for case in cases:
        net, trainer = train(case, slice(rank * share, (rank + 1) * share))
        np.savez(f"{folder}/{case.replace(':', '-')}-{rank}.npz", **weights(net))
        if case is cases[0]:
            net.save_parameters(f"{folder}/net")
        if case is cases[0] and not trainer._update_on_kvstore:
            trainer.save_states(f"{folder}/states")
    from tofu.gluon.session import session

    if session.active() is not None:
        tiles = [len(p.list_data()) for p in net.collect_params().values()]
        keys = sum(len(s.keys) for s in slots(trainer))
        # One write: the processes share their standard output, which is not buffered.
        sys.stdout.write(f"tiles {tiles} keys {keys}\n")


def slots(trainer):
    return trainer._tofu_connection.slots.values()


if __name__ == "__main__":
    main(*sys.argv[1:])
