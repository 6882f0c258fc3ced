"""Gradients of tiled parameters stay with their program without effect on scripts."""

import copy
import os
import textwrap
import types

import mxnet as mx
import pytest
from mxnet import autograd, gluon

import tofu.gluon
from tofu.errors import GradientError
from tofu.gluon.session.session import active
from tofu.gluon.training.gradients import Gradients
from tofu.plans.layout import Layout

from ..support import forked
from .models import assert_same, data, make_net, plainly


class Steps:
    """A net and its trainer, with methods for the parts of a step."""

    def __init__(self, grad_req="write"):
        self.net = make_net()
        self.net(data())
        self.parameters = [p for p in self.net.collect_params().values() if p.grad_req != "null"]
        for parameter in self.parameters:
            parameter.grad_req = grad_req
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.1})

    def forward(self, factor=1):
        with autograd.record():
            return (self.net(data() * factor) ** 2).mean()

    def step(self, factor=1):
        self.forward(factor).backward()
        self.trainer.step(1)

    def read(self):
        return [parameter.grad().asnumpy() for parameter in self.parameters]


def lent(parameters):
    return [parameter._tofu.gradients.is_lent for parameter in parameters]


def test_gradients_lie_with_the_program(two):
    steps = Steps()
    steps.step()
    assert all(lent(steps.parameters))
    steps.step()
    assert all(lent(steps.parameters))


def after_each_stage():
    steps, found = Steps(), []
    for _ in range(3):
        loss = steps.forward()
        loss.backward()
        found.append(steps.read())
        steps.trainer.step(1)
        found.append(steps.read())
        steps.net(data())  # a prediction
        found.append(steps.read())
    return found


def test_they_read_as_without_tofu(two):
    assert_same(after_each_stage(), plainly(after_each_stage))


def unused():
    """A gradient that no update has used, read after the next forward pass."""
    steps = Steps()
    steps.forward().backward()
    loss = steps.forward(2)
    first = steps.read()
    loss.backward()
    steps.trainer.step(1)
    return first, steps.read()


def test_an_unused_gradient_outlives_the_next_forward_pass(two):
    assert_same(unused(), plainly(unused))


def two_trainers():
    """Two Trainers, one of which uses its half of the gradients a step later."""
    steps = Steps()
    trainers = [
        gluon.Trainer(some, "sgd", {"learning_rate": 0.1})
        for some in (steps.parameters[::2], steps.parameters[1::2])
    ]
    steps.forward().backward()
    trainers[0].step(1)
    loss = steps.forward(2)
    trainers[1].step(1)
    loss.backward()
    trainers[0].step(1)
    return [parameter.data() for parameter in steps.parameters], steps.read()


def test_a_gradient_used_late(two):
    assert_same(two_trainers(), plainly(two_trainers))


@pytest.mark.parametrize("read", ["grad", "list_grad"])
def test_one_that_is_gone_says_so(two, read):
    steps = Steps()
    steps.step()
    loss = steps.forward()
    with pytest.raises(GradientError, match=r"net_dense0_weight.*expected it to be read before"):
        getattr(steps.net[0].weight, read)()
    loss.backward()
    assert getattr(steps.net[0].weight, read)() is not None


def asked_for_once():
    steps = Steps()
    steps.net[0].weight.list_grad()
    steps.step()
    loss = steps.forward()
    found = [steps.net[0].weight.grad().asnumpy()]
    loss.backward()
    return [*found, steps.net[0].weight.grad()]


def test_one_that_was_asked_for_is_kept(two):
    assert_same(asked_for_once(), plainly(asked_for_once))


def test_tiles_that_the_script_holds_follow(two):
    steps = Steps()
    parameter = steps.net[0].weight
    held = parameter._tofu.gradients.keep()
    for factor in (1, 2):
        steps.step(factor)
        whole = parameter.grad().asnumpy()
        steps.forward()
        assert_same(parameter._tofu.gather(held, mx.cpu()), whole)


def zeroed_in_flight(one_by_one):
    """The script writes zeros while the gradients' memory holds activations."""
    steps, found = Steps(), []
    for _ in range(2):
        loss = steps.forward()
        if one_by_one:
            for parameter in steps.parameters:
                parameter.zero_grad()
        else:
            steps.net.collect_params().zero_grad()
        found.append(steps.read())
        loss.backward()
        found.append(steps.read())
        steps.trainer.step(1)
    return found


@pytest.mark.parametrize("one_by_one", [False, True])
def test_zero_grad_between_forward_and_backward(two, one_by_one):
    assert_same(zeroed_in_flight(one_by_one), plainly(zeroed_in_flight, one_by_one))


def test_zero_grad_takes_no_memory(two):
    steps = Steps()
    for _ in range(2):
        steps.net.collect_params().zero_grad()
        steps.step()
    assert all(lent(steps.parameters))


def several_parts():
    """Two calls of a block and a penalty on its weight, in one backward call."""
    steps, found = Steps(), []
    weight = steps.net[0].weight
    for _ in range(2):
        with autograd.record():
            loss = (steps.net(data()) ** 2).mean() + steps.net(data() * 2).mean()
            loss = loss + 0.1 * (weight.data() ** 2).sum()
        loss.backward()
        found.append(steps.read())
        steps.trainer.step(1)
    return found


def test_parts_add_up(two):
    assert_same(several_parts(), plainly(several_parts), rounded=True)


def penalty_on_tiles():
    steps = Steps()
    with autograd.record():
        loss = (steps.net(data()) ** 2).mean()
        for tile in steps.net[0].weight.list_data():
            loss = loss + 0.1 * (tile**2).sum().as_in_context(mx.cpu())
    loss.backward()
    found = steps.read()
    steps.trainer.step(1)
    return found, [parameter.data() for parameter in steps.parameters]


def test_a_part_by_autograd_itself(two):
    assert_same(penalty_on_tiles(), plainly(penalty_on_tiles))


def penalty_on_one_tile():
    """Autograd writes a gradient only for the first tile."""
    steps, found = Steps(), []
    for _ in range(3):
        with autograd.record():
            loss = (steps.net(data()) ** 2).mean()
            loss = loss + 0 * steps.net[0].weight.list_data()[0].sum()
        loss.backward()
        found.append(steps.read())
    return found


def test_a_part_of_one_tile(two):
    assert_same(penalty_on_one_tile(), plainly(penalty_on_one_tile))


def updated_by_hand():
    steps = Steps()
    for _ in range(3):
        steps.forward().backward()
        for parameter in steps.parameters:
            for tile in parameter.list_data():
                assert tile._fresh_grad
                tile[:] = tile - 0.1 * tile.grad
    return [parameter.data() for parameter in steps.parameters]


def test_gradients_of_tiles(two):
    assert_same(updated_by_hand(), plainly(updated_by_hand))


def set_to_zero_by_hand():
    steps = Steps()
    for _ in range(3):
        loss = steps.forward()
        for parameter in steps.parameters:
            parameter.grad()[:] = 0
        loss.backward()
        steps.trainer.step(1)
    return [parameter.data() for parameter in steps.parameters]


def test_what_is_read_in_flight_is_kept(two):
    assert_same(set_to_zero_by_hand(), plainly(set_to_zero_by_hand))


def test_sums_are_the_same_in_every_run(two):
    def run():
        steps = Steps()
        with autograd.record():
            loss = sum((steps.net(data() * factor) ** 2).mean() for factor in range(1, 6))
        loss.backward()
        return [values.tobytes() for values in steps.read()]

    assert len({tuple(run()) for _ in range(8)}) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_parts_add_up_from_the_latest_to_the_first(order):
    """Their order of arrival does not matter, though (1 + 1e8) - 1e8 is 0 in float32."""
    values = [-1e8, 1e8, 1.0]  # by the recording's number
    tile = mx.nd.zeros(1)
    tile.attach_grad()
    state = types.SimpleNamespace(layout=Layout((1,), "float32", ()), parts_of=lambda t, *_: t)
    gradients = Gradients("w", [tile], [tile.grad], state, has_memory=True)
    gradients.before_backward()
    for serial in order:
        gradients.hand_over(serial, [mx.nd.array([values[serial]])], None)
    gradients.after_backward()
    assert gradients.tiles()[0].asscalar() == 0


def test_a_copy_leaves_it_gone(two):
    steps = Steps()
    steps.step()
    steps.forward()
    weight = steps.net[0].weight
    copy.deepcopy(weight)
    with pytest.raises(GradientError):
        weight.grad()


@pytest.mark.parametrize("change", ["initialize", "reset_ctx", "request"])
def test_new_arrays_get_nothing_of_an_old_graph(two, change):
    def run():
        steps = Steps()
        loss = steps.forward()
        for parameter in steps.parameters:
            if change == "initialize":
                parameter.initialize(mx.init.One(), force_reinit=True)
            elif change == "reset_ctx":
                parameter.reset_ctx(mx.cpu())
            else:
                parameter.grad_req = "null"
                parameter.grad_req = "write"
        loss.backward()
        found = steps.read()
        with pytest.raises(UserWarning, match="has not been updated by backward"):
            steps.trainer.step(1)
        return found

    assert_same(run(), plainly(run))


def test_autograd_grad_of_tiles(two):
    steps = Steps()
    weight = steps.net[0].weight
    tiles = weight.list_data()
    found = autograd.grad(steps.forward(), tiles)
    steps.forward().backward()
    assert_same(found, weight.list_grad())


def test_autograd_grad_of_a_tile_stays(two):
    """The script owns the result: no later pass of the program writes to it."""
    steps = Steps()
    tile = steps.net[0].weight.list_data()[0]
    (found,) = autograd.grad(steps.forward(), [tile])
    before = found.asnumpy()
    steps.forward(3).backward()
    steps.net(data() * 5)
    assert before.any()
    assert found.asnumpy().tobytes() == before.tobytes()


def test_autograd_grad_of_what_is_not_in_the_graph(two):
    one, other = Steps(), Steps()
    loss = one.forward()
    with pytest.raises(mx.MXNetError, match="unreachable from the outputs"):
        autograd.grad(loss, [other.net[0].weight.data()])


def test_a_gradient_of_a_gradient_is_an_error(two):
    """A penalty on the gradient of a weight or an input would have no effect."""
    steps, inputs = Steps(), data()
    inputs.attach_grad()
    weight = steps.net[0].weight
    with autograd.record():
        loss = steps.net(inputs * 2).sum()
        for asked, name in ((weight.data(), f"parameter {weight.name}"), (inputs, "an array")):
            with pytest.raises(GradientError, match=f"the gradient of {name} comes from a part"):
                autograd.grad(loss, [asked], create_graph=True)


def test_a_gradient_of_a_gradient_beside_a_partitioned_block(two):
    """The outer gradient does not come from the net."""

    def run():
        steps, scale = Steps(), mx.nd.array([3.0])
        scale.attach_grad()
        with autograd.record():
            heads = [steps.net(data()), mx.nd.sin(scale)]
            (slope,) = autograd.grad(heads, [scale], create_graph=True, retain_graph=True)
            penalty = (slope * slope).sum()
        penalty.backward()
        return [scale.grad]

    assert_same(run(), plainly(run))


def test_an_interrupted_call_delivers_nothing_later(two):
    steps = Steps()
    steps.forward().backward()
    expected = steps.read()
    calls = active().state.calls
    release = calls.release

    def interrupted(_):
        raise KeyboardInterrupt

    for _ in range(20):
        with autograd.record():
            loss = sum((steps.net(data()) ** 2).mean() for _ in range(3))
        calls.release = interrupted
        try:
            with pytest.raises(KeyboardInterrupt):
                loss.backward()
        finally:
            calls.release = release
        steps.forward().backward()
        assert_same(steps.read(), expected)


def backward_twice():
    steps = Steps()
    loss = steps.forward()
    loss.backward(retain_graph=True)
    first = steps.read()
    loss.backward(mx.nd.array([2]))
    return first, steps.read()


def test_a_second_backward_pass(two):
    assert_same(backward_twice(), plainly(backward_twice))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("change", ["step", "set_data"])
def test_a_second_backward_pass_after_an_update_is_refused(workers, change, dtype):
    """That pass would recompute activations with new weights; MXNet would use the old ones."""
    steps = Steps()
    steps.net.cast(dtype)
    inputs = data().astype(dtype)
    inputs.attach_grad()
    with autograd.record():
        loss = (steps.net(inputs) ** 2).mean()
    loss.backward(retain_graph=True)
    first = inputs.grad.asnumpy()
    loss.backward(retain_graph=True)
    assert_same(inputs.grad, first)
    if change == "step":
        steps.trainer.step(1)
    else:
        weight = steps.net[0].weight
        weight.set_data(weight.data() * 2)
    for _ in range(2):
        with pytest.raises(GradientError, match=r"after its parameters were updated.*record"):
            loss.backward(retain_graph=True)
    with autograd.record():
        loss = (steps.net(inputs) ** 2).mean()
    loss.backward()
    steps.trainer.step(1)


def test_gradients_by_name_change_no_others(two):
    steps = Steps()
    weight = steps.net[0].weight
    steps.forward().backward()
    before = steps.read()
    loss = steps.forward(2)
    (named,) = autograd.grad(loss, [weight.data()])
    assert_same(steps.read(), before)
    steps.forward(2).backward()
    assert_same(named, weight.grad())


def changed_requests(requests):
    steps, found = Steps(), []
    for request in requests:
        steps.net[3].weight.grad_req = request
        for factor in (1, 2):
            steps.forward(factor).backward()
        found += [p.grad() for p in steps.parameters if p.grad_req != "null"]
    return found


@pytest.mark.parametrize("requests", [("add", "write"), ("write", "add"), ("null", "write")])
def test_other_requests(two, requests):
    assert_same(changed_requests(requests), plainly(changed_requests, requests))


MEMORY = """
    import mxnet as mx
    from mxnet import autograd, gluon

    def resident_mib():
        mx.nd.waitall()
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if "VmRSS" in line) // 1024

    start = resident_mib()
    net = gluon.nn.Dense(4096, in_units=8192, use_bias=False)  # 128 MiB
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(3):
        with autograd.record():
            loss = net(mx.nd.ones((2, 8192))).mean()
        loss.backward()
        trainer.step(2)
    trained = resident_mib()
    net.weight._tofu.gradients.keep()
    print(trained - start, resident_mib() - trained)
"""


def test_memory_of_a_run():
    """A run holds weights and one set of gradients, or two once gradients are kept."""
    variables = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2", "OMP_NUM_THREADS": "1"}
    environ = {**os.environ, **variables, "TOFU_DEVICE": "cpu"}
    found = forked.run(["-c", textwrap.dedent(MEMORY)], env=environ)
    assert found.returncode == 0, found.stderr
    trained, asked = map(int, found.stdout.split()[-2:])
    assert 2 * 128 <= trained < 2.7 * 128
    assert 0.9 * 128 < asked < 1.3 * 128


def bias_gradients(frozen):
    net = make_net()
    net(data())
    for name, parameter in net.collect_params().items():
        if frozen and name.endswith("weight"):
            parameter.grad_req = "null"
    with autograd.record():
        loss = (net(data()) ** 2).mean()
    loss.backward()
    return [p.grad().asnumpy() for name, p in net.collect_params().items() if name.endswith("bias")]


def test_a_bias_is_trained_beside_a_frozen_weight():
    """Plain MXNet 1.9.1 gives the bias of a frozen dense layer a gradient of 0."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    try:
        assert_same(bias_gradients(frozen=True), plainly(bias_gradients, False), rounded=True)
    finally:
        tofu.gluon.disable()
    (*_, last) = bias_gradients(frozen=True)
    assert not last.any()
