"""A script for test_distributed.py: trains nets in one of several processes, or alone.

    python distributed_script.py FOLDER CASE [CASE...]

Each CASE is OPTIMIZER:DTYPE:KVSTORE:UPDATE, for a net of its own; UPDATE is 1 if the servers
update, else 0. A CASE that ends in :odd trains a net of odd sizes on odd batches. Weights and
losses go to FOLDER/CASE-TASK.npz. The first CASE continues from FOLDER/net and FOLDER/states.
"""

import os
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

STEPS = 4
BATCH = {False: 16, True: 15}  # by whether sizes are odd
SIZES = {False: (8, 12, 7), True: (7, 13, 5)}
PARAMS = {
    "sgd": {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.02},
    "lamb": {"learning_rate": 0.02},
}


class Net(gluon.HybridBlock):
    """A convolution and dense layers; no gradient's true value is 0."""

    def __init__(self, odd, **kwargs):
        super().__init__(**kwargs)
        channels, hidden, outputs = SIZES[odd]
        with self.name_scope():
            self.conv = nn.Conv2D(channels, 3, padding=1, in_channels=4, activation="relu")
            self.dense = nn.Dense(hidden, in_units=channels * 16, activation="relu")
            self.last = nn.Dense(outputs, in_units=hidden)  # 7 rows: whole on every worker

    def hybrid_forward(self, F, x):
        return self.last(self.dense(self.conv(x)))


def build(dtype, *, odd=False):
    mx.random.seed(7)
    np.random.seed(7)
    net = Net(odd, prefix="net_")
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    return net


def fit(net, trainer, dtype, steps, part=slice(None), *, odd=False):
    """Train on a part of each batch; rescale gradients by the whole batch."""
    losses = []
    for step in steps:
        inputs = np.random.RandomState(step).uniform(-1, 1, (BATCH[odd], 4, 4, 4))[part]
        with autograd.record():
            loss = (net(mx.nd.array(inputs, dtype=dtype)) ** 2).sum()
        loss.backward()
        trainer.step(BATCH[odd])
        losses.append(loss.asscalar())
    return losses


def weights(net):
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def train(case, part=slice(None), *, folder=None, steps=STEPS):
    """A net and its Trainer after some steps, and the losses.

    folder: the folder of the net and states to continue from, or None.
    """
    optimizer, dtype, kvstore, update, *odd = case.split(":")
    odd = bool(odd)
    net = build(dtype, odd=odd)
    trainer = gluon.Trainer(
        net.collect_params(),
        optimizer,
        dict(PARAMS[optimizer]),
        kvstore=kvstore,
        update_on_kvstore=bool(int(update)),
    )
    first = 0
    if folder is not None:
        first = STEPS
        net.load_parameters(f"{folder}/net")
        if not int(update):
            trainer.load_states(f"{folder}/states")
    return net, trainer, fit(net, trainer, dtype, range(first, first + steps), part, odd=odd)


def part_of(case, rank, size):
    """The part of each batch that one of several processes has."""
    batch = BATCH[case.endswith(":odd")]
    return slice(rank * batch // size, (rank + 1) * batch // size)


def main(folder, *cases):
    rank, size = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
    # Process 0 writes the files after a step, which all take together.
    goes_on = os.path.exists(f"{folder}/net")
    for case in cases:
        found = folder if goes_on and case is cases[0] else None
        net, trainer, losses = train(case, part_of(case, rank, size), folder=found)
        np.savez(f"{folder}/{case.replace(':', '-')}-{rank}.npz", losses=losses, **weights(net))
        if case is cases[0]:
            net.save_parameters(f"{folder}/net")
        if case is cases[0] and not trainer._update_on_kvstore:
            trainer.save_states(f"{folder}/states")
    from tofu.gluon.session import session

    if session.active() is not None:
        tiles = [len(p._tofu.variables) for p in net.collect_params().values()]
        keys = sum(len(s.keys) for s in slots(trainer))
        # One write: the processes share their standard output, which is not buffered.
        sys.stdout.write(f"tiles {tiles} keys {keys}\n")


def slots(trainer):
    return trainer._tofu_connection.slots.values()


if __name__ == "__main__":
    main(*sys.argv[1:])
