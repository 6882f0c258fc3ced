"""Scripts that put other arrays into a parameter's lists train as with plain MXNet."""

import mxnet as mx
import pytest
from mxnet import autograd, gluon

from tofu.errors import GradientError
from tofu.gluon.session.messages import TofuWarning
from tofu.gluon.training.parameter import is_tiled

from .models import assert_same, data, make_net, plainly, weights

WEIGHT_SHAPE = (12, 10)


def other(value=0.1):
    return mx.nd.full(WEIGHT_SHAPE, value)


def computed(net, state):
    """A value that the script computes inside record() from an array that it trains."""
    state["goes on"] = True  # as backward has freed what computed it
    if "source" not in state:
        state["source"] = other(0.3)
        state["source"].attach_grad()
        state["gradient"] = state["source"].grad
    net[0].weight._data[0] = mx.nd.tanh(state["source"])


def replaced(net, _):
    net[0].weight._data[0] = other()


def replaced_list(net, _):
    net[0].weight._data = [other()]


def another_gradient(net, state):
    state["gradient"] = other(0.0)
    net[0].weight._grad[0] = state["gradient"]


def with_its_gradient(net, _):
    value = other()
    value.attach_grad()
    net[0].weight._data[0], net[0].weight._grad[0] = value, value.grad


def in_place(net, _):
    with autograd.pause():
        net[0].weight._data[0] += 0.5
        net[0].weight._data[0][:, 1] = 0.25


def set_while_recording(net, _):
    with autograd.pause():
        net[0].weight.set_data(other())


def statistics(net, _):
    net[1].running_mean._data[0] = mx.nd.full((12,), 0.2)


def read(net, state):
    lists = net[0].weight._data, net[0].weight._grad
    state["read"] = [array.asnumpy() for each in lists for array in each]


CHANGES = [
    computed, replaced, replaced_list, another_gradient, with_its_gradient, in_place,
    set_while_recording, statistics, read,
]  # fmt: skip


def trained(change, first, last, *, hybridized=True):
    """What a script sees that changes arrays inside record() from step `first` to step `last`."""
    net, state = make_net(hybrid=False), {}
    net[0].bias.grad_req = "null"  # MXNet does not write its gradient if the weight has none
    net.infer_shape(data())
    for parameter in net.collect_params().values():
        parameter._finish_deferred_init()
    net.hybridize(hybridized)
    parameters = list(net.collect_params().values())
    weight = parameters.pop(0) if change is computed else parameters[0]
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    held, seen = weight.data(), []
    for step in range(4):
        with autograd.record():
            if first <= step and (step < last or "goes on" in state):
                change(net, state)
            loss = (net(data()) ** 2).mean()
        seen += [told(loss.backward) == ""]
        arrays = [loss, weight.data(), weight.grad(), weight._data[0], weight._grad[0], held]
        arrays += [
            array for array in [weight.data().grad, state.get("gradient")] if array is not None
        ]
        seen += [array.asnumpy() for array in arrays]
        stepped = told(lambda: trainer.step(8))
        if stepped:
            told(lambda: trainer.step(8, ignore_stale_grad=True))
        seen += [stepped == "", "stale" in stepped]
        seen += [told(lambda p=p: p.data()._fresh_grad) == "True" for p in parameters]
    return seen, state.get("read", []), weights(net)


def told(act):
    """What an action returns or raises, in words."""
    try:
        return str(act() or "")
    except (UserWarning, mx.MXNetError) as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:tofu")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("steps", [(0, 1), (2, 3), (1, 4)], ids=["first", "one", "each"])
@pytest.mark.parametrize("hybridized", [True, False], ids=["hybridized", "eager"])
def test_arrays_in_place_of_a_parameters(two, change, steps, hybridized):
    found = trained(change, *steps, hybridized=hybridized)
    assert_same(found, plainly(trained, change, *steps, hybridized=hybridized))


def test_a_replaced_array_is_told_and_makes_a_parameter_plain(two):
    net, inputs = make_net(), data()
    with autograd.record():
        net(inputs)
    assert is_tiled(net[0].weight)
    net[0].weight._data[0] = other()
    assert not is_tiled(net[0].weight)
    with pytest.warns(TofuWarning, match="the script has replaced its array or its gradient"):
        net(inputs)


def test_a_graph_recorded_before_its_array_was_replaced(two):
    net = make_net()
    with autograd.record():
        loss = net(data()).sum()
    net[0].weight._data[0] = other()
    with pytest.raises(GradientError, match="has replaced the array or gradient of a parameter"):
        loss.backward()


@pytest.mark.filterwarnings("ignore:tofu")
def test_a_gradient_that_mxnet_marks_and_does_not_write_is_zero(two):
    net = make_net()
    net(data())
    held = [mx.nd.full((12,), 1e9) for _ in range(200)]
    net[0].weight._data[0] = other()
    del held  # memory that a new array may get
    with autograd.record():
        loss = net(data()).sum()
    loss.backward()
    assert (net[0].bias.grad().asnumpy() == 0).all()


def test_the_lists_of_a_parameter_are_lists(two):
    net = make_net()
    net(data())
    values = net[0].bias._data
    assert len(values) == 1 and repr(values) == repr([net[0].bias.data()])
    values.insert(0, mx.nd.ones((12,)))
    assert not is_tiled(net[0].bias) and len(values) == 2
    del values[1]
    assert (net[0].bias.data().asnumpy() == 1).all()
