"""Creates blocks, or trains one with changing shapes, and prints the memory in use as it goes.

    MXNET_GRAPH_PASS=tofu python flat.py creations --warm 8 --samples 4 --each 8

Prints a number of bytes before the first sample and after each. They are those of malloc,
which unlike the process's resident memory do not depend on how full its pages are.
"""

from __future__ import annotations

import argparse
import ctypes
import gc

import mxnet as mx
from mxnet import autograd, gluon

FEATURES = 64
# More shapes than tofu keeps bound at a time, so it binds and frees a program in each step.
SHAPES = 34


class _Use(ctypes.Structure):
    """The result of glibc's mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def bytes_in_use():
    for _ in range(2):  # the engine's threads free an operator's memory some time after its end
        gc.collect()
        mx.nd.waitall()
    look = ctypes.CDLL(None).mallinfo2
    look.restype = _Use
    use = look()
    return use.uordblks + use.hblkhd


def build(units=FEATURES):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(units, in_units=FEATURES, activation="relu"), gluon.nn.BatchNorm())
    net.add(gluon.nn.Dense(8))
    net.initialize()
    net.hybridize()
    return net, gluon.Trainer(net.collect_params(), "adam")


def train(net, trainer, rows):
    with autograd.record():
        loss = net(mx.nd.ones((rows, FEATURES))).sum()
    loss.backward()
    trainer.step(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("creations", "steps"))
    for name in ("--warm", "--samples", "--each"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    kept = build() if given.what == "steps" else None
    found = []
    for number in range(given.warm + given.samples * given.each):
        if number >= given.warm and (number - given.warm) % given.each == 0:
            found.append(bytes_in_use())
        if kept is None:
            train(*build(), rows=32)
        else:
            train(*kept, rows=2 + number % SHAPES)
    print(*found, bytes_in_use())


if __name__ == "__main__":
    main()
