"""A net that is never hybridized, with a test's code in the middle."""

import mxnet as mx
import pytest
from mxnet import gluon
from mxnet.gluon import nn

from tofu.gluon.session import messages
from tofu.gluon.training.parameter import is_tiled

from .models import fit, started

MARKS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("error::tofu.gluon.session.messages.TofuWarning"),
]


class Net(gluon.HybridBlock):
    """Two layers, with a test's code in between."""

    def __init__(self, between=None, layers=6, **kwargs):
        super().__init__(**kwargs)
        self.between = between
        with self.name_scope():
            self.first = nn.Dense(12, activation="relu")
            self.norm = nn.BatchNorm()
            self.last = nn.Dense(layers)

    def hybrid_forward(self, F, x):
        hidden = self.norm(self.first(x))
        if self.between is not None:
            hidden = self.between(self, F, hidden)
        return self.last(hidden)


def net_with(between=None, prefix="net_", **attributes):
    net = Net(between, prefix=prefix)
    for name, value in attributes.items():
        setattr(net, name, value)
    return started(net, hybrid=False)


def trainer_of(net, **options):
    options = options or {"learning_rate": 0.1, "momentum": 0.9}
    return gluon.Trainer(net.collect_params(), "sgd", options)


def steps(net, count=2, before=None):
    """Losses of steps; calls a function before each."""
    trainer, losses = trainer_of(net), []
    for number in range(count):
        if before is not None:
            before(net, number)
        losses += fit(net, trainer, 1)
    return losses


def tiled(net):
    return {name for name, p in net.collect_params().items() if is_tiled(p)}


def reasons(seen):
    return [str(w.message) for w in seen if issubclass(w.category, messages.TofuWarning)]


def graphs_for_training(log):
    # A loss, which has no parameters, is partitioned where its input is.
    return sum(bool(graph["gradients"] and graph["parameters"]) for graph in log.graphs)


class Told:
    """A configuration."""

    def __init__(self, scale):
        self.scale = scale


def chain():
    net = nn.Sequential(prefix="chain_")
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu"), nn.BatchNorm())
        inner = nn.Sequential()
        with inner.name_scope():
            inner.add(nn.Dense(8), nn.Dropout(0.0))
        net.add(inner, nn.Dense(6))
    return started(net, hybrid=False)


def differs_from_symbols(net, F, hidden):
    return hidden * 2 if F is mx.nd else hidden
