"""Gradients that are divided in other ways than their weights are what scripts expect."""

import copy
import math

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session.session import active

from .models import assert_same, data, plainly, started, train, weights
from .test_gradients import Steps, after_each_stage, lent, two_trainers, unused
from .zero_runs import (
    MODES,
    OPTIMIZERS,
    OTHERS,
    STAGES,
    dense,
    dividing,
    steps,
    steps_on,
)

# pytest.warns lets all other warnings pass, from anywhere.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("scenario", [after_each_stage, unused, two_trainers])
def test_gradients_read_as_without_tofu(scenario, divided):
    assert_same(scenario(), plainly(scenario))


def test_gradients_stay_lent(divided):
    made = Steps()
    for _ in range(3):
        made.forward().backward()
        made.read()
        assert all(lent(made.parameters))
        made.trainer.step(1)


def listed():
    """The script keeps one gradient's tiles, and reads other gradients as wholes."""
    made, found = Steps(), []
    for step in range(3):
        made.forward().backward()
        if step == 1:
            made.parameters[0].list_grad()
        found.append(made.read())
        made.trainer.step(1)
    return found, weights(made.net)


def test_listed_gradients(divided):
    assert_same(listed(), plainly(listed))


def test_writes_to_listed_gradients_count(divided):
    def run():
        made = Steps()
        for _ in range(3):
            made.forward().backward()
            for gradient in made.parameters[0].list_grad():
                gradient *= 0.5
            made.trainer.step(1)
        return made.read(), weights(made.net)

    assert_same(run(), plainly(run))


def test_clipping_whole_gradients(divided):
    def run():
        def clip(net):
            found = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
            gluon.utils.clip_global_norm(found, 0.01)

        return train(after_backward=clip)[:2]

    assert_same(run(), plainly(run))


def test_clipping_keeps_gradients_lent(divided):
    made = Steps()
    made.forward().backward()
    gluon.utils.clip_global_norm([p.grad() for p in made.parameters], 0.01)
    made.trainer.step(1)
    assert all(lent(made.parameters))


def accumulated():
    made, found = Steps("add"), []
    for step in range(2):
        for factor in (1, 2):
            made.forward(factor + step).backward()
        found.append(made.read())
        made.trainer.step(1)
        made.net.collect_params().zero_grad()
    return found, weights(made.net)


def test_gradients_that_are_added_up(divided):
    assert_same(accumulated(), plainly(accumulated))


def two_calls():
    """Train with gradients of two parts."""
    made, found = Steps(), []
    for _ in range(2):
        with autograd.record():
            loss = (made.net(data()) ** 2).mean() + (made.net(data() * 2) ** 2).mean()
        loss.backward()
        found.append(made.read())
        made.trainer.step(1)
    return found, weights(made.net)


def test_gradients_of_several_parts(divided):
    assert_same(two_calls(), plainly(two_calls))


def of_autograd():
    made = Steps()
    made.step()
    with autograd.record():
        loss = (made.net(data()) ** 2).mean()
    return autograd.grad(loss, [p.data() for p in made.parameters])


def test_autograd_grad(divided):
    assert_same(of_autograd(), plainly(of_autograd))


def penalized():
    """Autograd writes one part of a gradient to tiles, and the program delivers the other."""
    made = Steps()
    for _ in range(2):
        with autograd.record():
            loss = (made.net(data()) ** 2).mean()
            for parameter in made.parameters:
                loss = loss + (parameter.data() ** 2).sum().as_in_context(loss.context)
        loss.backward()
        made.trainer.step(1)
    return made.read(), weights(made.net)


def test_penalties_on_weights(divided):
    assert_same(penalized(), plainly(penalized))


def test_tiles_of_the_value_in_a_graph(divided):
    """A script differentiates with respect to tiles that it read itself."""
    made = Steps()
    tiles = made.parameters[0]._tofu.variables
    made.parameters[0]._tofu.gradients.keep()
    before = made.forward()
    before.backward()
    expected = [tile.grad.asnumpy() for tile in tiles]
    with autograd.record():
        losses = [(made.net(data()) ** 2).mean(), (tiles[0] * 3).sum()]
    autograd.backward(losses)
    boxes = made.parameters[0]._tofu.layout.boxes
    for number, (tile, gradient) in enumerate(zip(tiles, expected)):
        added = 3 if number == 0 else 0
        np.testing.assert_array_equal(tile.grad.asnumpy(), gradient + added)
        assert tile.shape == boxes[number].shape


def test_overflow_skips_the_step(divided):
    class Scaler:
        def has_overflow(self, params):
            values = [p._grad[0].asnumpy() for p in params if p._grad is not None]
            return not all(np.isfinite(value).all() for value in values)

    made = Steps()
    made.step()
    made.trainer._amp_loss_scaler = Scaler()
    before = weights(made.net)
    made.forward(math.inf).backward()
    made.trainer.step(1)
    after = weights(made.net)
    names = [parameter.name for parameter in made.parameters]
    assert_same({n: after[n] for n in names}, {n: before[n] for n in names})
    assert all(lent(made.parameters))


@pytest.mark.parametrize("kind", [*STAGES, *OTHERS, *MODES])
def test_a_gradient_survives_disabling_and_copies(kind):
    with dividing(kind, 2):
        made = Steps()
        made.forward().backward()
        expected = made.read()
        copied = [copy.deepcopy(parameter).grad() for parameter in made.parameters]
        assert all(lent(made.parameters))
        tofu.gluon.disable()
        assert_same(copied, expected)
        assert_same(made.read(), expected)


@pytest.mark.parametrize("workers", [2, 4])
def test_the_second_stage_holds_parts_of_gradients(workers):
    with dividing("zero-2", workers):
        net = started(nn.Dense(12, in_units=10, prefix="net_"))
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        steps(net, trainer)
        tiles, _ = net.weight._tofu.gradients.in_place()
        assert [tile.shape for tile in tiles] == [(12 // workers, 10)] * workers
        assert [tile.shape for tile in net.weight._tofu.tiles] == [(12, 10)] * workers


@pytest.mark.parametrize("kind", ["stage 2", "zero-2"])
def test_without_states_workers_update_their_parts_of_the_gradient(kind):
    with dividing(kind, 2):
        net = dense("float32")
        steps(net, gluon.Trainer(net.collect_params(), *OPTIMIZERS["sgd"]), count=1)
        state = net[0].weight._tofu
        assert state.layout.boxes[0] == state.layout.boxes[1]  # whole on both
        rows, columns = state.layout.boxes[0].shape
        assert [box.shape for box in state.update_layout.boxes] == [(rows // 2, columns)] * 2


def footprint_of_gradients(grad_req):
    """The memory of gradients, as predicted under a limit, and that of their parameters."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", search="zero-2", memory="1TiB")
    net = started(nn.Dense(512, in_units=512, use_bias=False, prefix="net_"))
    net.weight.grad_req = grad_req
    steps_on(net, mx.nd.ones((4, 512)))
    (found,) = active().state.footprints.values()
    tofu.gluon.disable()
    return found.plan.bytes_per_worker["gradients"], found.plan.bytes_per_worker["parameters"]


def test_gradients_that_are_added_up_count_whole():
    part, whole = footprint_of_gradients("write")
    assert part == whole // 2
    # The computed gradient, the same cut like the weight, and the array that it is added to.
    assert footprint_of_gradients("add") == (part + 2 * whole, whole)
