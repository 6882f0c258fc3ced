"""A trace holds only for the values that a block's code reads besides its inputs."""

import types

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd
from mxnet.gluon import nn

from tofu.gluon.session import messages

from .models import assert_same, data, fit, plainly, started, train, weights
from .unhybridized import (
    MARKS,
    Net,
    Told,
    chain,
    graphs_for_training,
    net_with,
    reasons,
    steps,
    tiled,
    trainer_of,
)

pytestmark = MARKS


def scaled(net, F, hidden):
    return hidden * net.scale


SCALE = 1.0
SCALES = types.SimpleNamespace(scale=1.0)


def by_global(net, F, hidden):
    return hidden * SCALE * SCALES.scale


def in_closure():
    scale = 1.0

    def by_closure(net, F, hidden):
        return hidden * scale

    def change(value):
        nonlocal scale
        scale = value

    return by_closure, change


def set_global(_net, value):
    global SCALE
    SCALE = value


def set_field(_net, value):
    SCALES.scale = value


class Classy(Net):
    """Reads an attribute of its class through a method and a property."""

    scale = 1.0

    def hybrid_forward(self, F, x):
        return super().hybrid_forward(F, x) * self.of_method() * self.of_property

    def of_method(self):
        return self.scale

    @property
    def of_property(self):
        return type(self).scale


def with_attribute(value, change, read):
    net = net_with(lambda net, F, hidden: hidden * read(net), settings=value)
    return net, lambda new: change(net, new)


def changing(kind):
    """A net, and a function that sets the scale that its code reads."""
    if kind == "attribute":
        net = net_with(scaled, scale=1.0)
        return net, lambda value: setattr(net, "scale", value)
    if kind == "flag":
        net = net_with(lambda net, F, h: h * 2 if net.flag else h, flag=False)
        return net, lambda value: setattr(net, "flag", value == 2)
    if kind == "flag of a child":
        net = net_with(lambda net, F, h: h * 2 if net.last.flag else h)
        net.last.flag = False
        return net, lambda value: setattr(net.last, "flag", value == 2)
    if kind == "string":
        net = net_with(lambda net, F, h: h * len(net.text), text="a")
        return net, lambda value: setattr(net, "text", "a" * int(value))
    if kind == "none":
        net = net_with(lambda net, F, h: h if net.factor is None else h * net.factor, factor=None)
        return net, lambda value: setattr(net, "factor", None if value == 1 else value)
    if kind == "tuple":
        return with_attribute(
            (1, (1.0,)),
            lambda net, value: setattr(net, "settings", (1, (value,))),
            lambda net: net.settings[1][0],
        )
    if kind == "list in place":
        return with_attribute(
            [1.0],
            lambda net, value: net.settings.__setitem__(0, value),
            lambda net: net.settings[0],
        )
    if kind == "dict in place":
        return with_attribute(
            {"scale": 1.0},
            lambda net, value: net.settings.update(scale=value),
            lambda net: net.settings["scale"],
        )
    if kind == "set in place":
        return with_attribute(
            {1.0},
            lambda net, value: (net.settings.clear(), net.settings.add(value)),
            lambda net: max(net.settings),
        )
    if kind == "object":
        return with_attribute(
            Told(1.0),
            lambda net, value: setattr(net.settings, "scale", value),
            lambda net: net.settings.scale,
        )
    if kind == "numpy":
        return with_attribute(
            np.ones(1),
            lambda net, value: net.settings.fill(value),
            lambda net: float(net.settings[0]),
        )
    if kind == "function":
        return with_attribute(
            lambda: 1.0,
            lambda net, value: setattr(net, "settings", lambda: value),
            lambda net: net.settings(),
        )
    if kind == "global":
        set_global(None, 1.0)
        return net_with(by_global), lambda value: set_global(None, value)
    if kind == "field of a global":
        set_field(None, 1.0)
        return net_with(by_global), lambda value: set_field(None, value)
    if kind == "closure":
        between, change = in_closure()
        return net_with(between), change
    if kind == "class":
        net = started(Classy(prefix="net_"), hybrid=False)
        return net, lambda value: setattr(Classy, "scale", value)
    raise AssertionError(kind)


KINDS = (
    "attribute",
    "flag",
    "flag of a child",
    "string",
    "none",
    "tuple",
    "list in place",
    "dict in place",
    "set in place",
    "object",
    "numpy",
    "function",
    "global",
    "field of a global",
    "closure",
    "class",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_what_the_code_reads_is_followed(on, kind):
    def run():
        net, change = changing(kind)
        trainer, losses = trainer_of(net), []
        for value in (1.0, 1.0, 2.0, 2.0, 1.0):
            change(value)
            losses += fit(net, trainer, 1)
        change(1.0)
        return losses, weights(net), tiled(net)

    found = run()
    assert_same(found[:2], plainly(run)[:2])
    assert found[2]


def test_a_value_that_comes_back_finds_its_trace(two):
    net = net_with(scaled, scale=1.0)
    trainer = trainer_of(net)
    for value in (1.0, 2.0, 1.0, 2.0, 1.0):
        net.scale = value
        fit(net, trainer, 1)
    assert graphs_for_training(two) == 2


def test_values_that_are_equal_and_of_other_types(on):
    def run():
        net = net_with(lambda net, F, h: h * 2 if net.scale is True else h, scale=1)
        return steps(net, 3, lambda net, number: setattr(net, "scale", (1, True, 1.0)[number]))

    assert_same(run(), plainly(run))


def test_other_children_are_traced_again(on):
    def run():
        net = net_with()
        trainer = trainer_of(net)
        losses = fit(net, trainer, 2)
        mx.random.seed(3)
        with net.name_scope():
            net.last = nn.Dense(6, in_units=12, prefix="other_")
        net.last.initialize(mx.init.Xavier())
        losses += fit(net, trainer_of(net), 2)
        sequential = chain()
        losses += fit(sequential, trainer_of(sequential), 2)
        sequential.add(nn.Dense(6, in_units=6, prefix="more_"))
        sequential[-1].initialize(mx.init.Xavier())
        return losses + fit(sequential, trainer_of(sequential), 2), weights(sequential)

    assert_same(run(), plainly(run))


def test_branches_by_mode(on):
    def only_in_training(_net, F, hidden):
        return hidden * 3 if autograd.is_training() else hidden

    def only_recorded(_net, F, hidden):
        return hidden * 3 if autograd.is_recording() else hidden

    for between in (only_in_training, only_recorded):

        def run(between=between):
            net = net_with(between)
            losses = train(net=net)[:2]
            with autograd.train_mode():
                losses += (net(data()),)
            with autograd.record(train_mode=False):
                losses += (net(data()),)
            return losses, tiled(net)

        found = run()
        assert_same(found[0], plainly(run)[0])
        assert found[1]


def test_an_attribute_that_changes_all_the_time(on):
    def run():
        net = net_with(scaled, scale=1.0)
        return steps(net, 40, lambda net, number: setattr(net, "scale", 1 + number / 64))

    with pytest.warns(messages.TofuWarning) as seen:
        found = run()
    (text,) = reasons(seen)
    assert "more than 32 values; pass what changes in every call as an array" in text
    assert_same(found, plainly(run))
