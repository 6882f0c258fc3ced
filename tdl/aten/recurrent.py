"""Recurrent layers as one operator: sequences of a batch are independent of each other.

Data have shape (time, batch, features), states (directions, batch, hidden).
"""

from __future__ import annotations

from tofu.lang import op
from tofu.tdl._shapes import instances


def _reads(tensors, given):
    """Data, states and their gradients per sequence, weights whole."""
    names = [name.partition(".")[0] for name in given.split()]
    return [(x, "" if name == "weights" else ".n") for x, name in zip(tensors, names)], names


@op(name="tofu.recurrent.default")
def recurrent(*tensors, given):
    """Outputs of every step, and the last states."""
    reads, names = _reads(tensors, given)
    return instances(".n. " * (1 + names.count("states")), *reads)


@op(name="tofu.recurrent_backward.default")
def recurrent_backward(*tensors, given):
    """The gradients of data, states, and weights; those are sums over the sequences."""
    reads, names = _reads(tensors, given)
    words = [".n." if name != "weights" else "." * x.ndim for x, name in zip(tensors, names)]
    own = [word for word, name in zip(words, names) if name != "grads"]
    return instances(" ".join(own), *reads)
