"""Arrays that ``data()`` and ``list_data()`` return are variables of autograd, wherever taken."""

import threading

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from tofu.gluon.session.session import active
from tofu.gluon.training.parameter import is_tiled

from .models import assert_same, plainly

INPUTS = (5, 6)


def started():
    mx.random.seed(0)
    net = nn.Dense(8, in_units=INPUTS[1])
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net, gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})


def output(net):
    return net(mx.nd.ones(INPUTS))


def step(net, trainer, penalty=lambda: 0.0):
    with autograd.record():
        loss = (output(net) ** 2).sum() + penalty()
    loss.backward()
    gradient = net.weight.list_grad()[0].copy()
    trainer.step(INPUTS[0], ignore_stale_grad=True)
    return loss, gradient, net.weight.data().copy()


def steps_with(take, use, count=2):
    """Losses, gradients and weights; `use` gets what `take` took before the first record()."""

    def run():
        net, trainer = started()
        step(net, trainer)
        taken = take(net.weight)
        return [step(net, trainer, lambda: use(taken)) for _ in range(count)]

    return run


def square(array):
    return (array**2).sum()


USES = {
    "data": (lambda weight: weight.data(), square),
    "list": (lambda weight: weight.list_data()[0], square),
    "slice inside": (lambda weight: weight.data(), lambda taken: square(taken[2])),
    "reshape inside": (
        lambda weight: weight.data(),
        lambda taken: taken.reshape((-1,)).slice_axis(0, 3, 9).exp().sum(),
    ),
    "slice outside": (lambda weight: weight.data()[2], square),  # no variable in MXNet
    "reshape outside": (lambda weight: weight.data().reshape((-1,)), square),
    "detached": (lambda weight: weight.data().detach(), square),
    "inside": (lambda weight: weight, lambda weight: square(weight.data())),
    "inside twice": (
        lambda weight: weight,
        lambda weight: (weight.data() * weight.list_data()[0]).sum(),
    ),
    "list of modules": (
        lambda weight: [weight.data(), weight.data()],
        lambda taken: sum(map(square, taken)),
    ),
}


@pytest.mark.parametrize("how", USES)
def test_values_deliver_gradients(two, how):
    run = steps_with(*USES[how])
    assert_same(run(), plainly(run), rounded=True)


def add_up():
    net, trainer = started()
    step(net, trainer)
    net.weight.grad_req = "add"
    weight = net.weight.data()
    gradients = []
    for _ in range(2):
        with autograd.record():
            loss = square(weight) + square(output(net))
        loss.backward()
        gradients.append(net.weight.grad().copy())
    trainer.step(1)
    with autograd.record():
        square(weight).backward()
    return gradients, net.weight.grad(), net.weight.data()


def freeze():
    net, trainer = started()
    step(net, trainer)
    frozen = net.weight.data()
    net.weight.grad_req = "null"
    result = [frozen + 0, net.weight.data() + 0, net.weight.data().grad is None]
    net.weight.grad_req = "write"
    weight = net.weight.data()
    return result, step(net, trainer, lambda: square(weight))


def drop_before_backward():
    net, trainer = started()
    step(net, trainer)
    with autograd.record():
        loss = square(net.weight.data()) + square(output(net))
        output(net)
    output(net)
    loss.backward()
    trainer.step(1)
    return net.weight.grad(), net.weight.data()


def hold_from_record():
    """Use an array of one record() in later ones; it shows the present value."""
    net, trainer = started()
    step(net, trainer)
    taken = []
    first = step(net, trainer, lambda: taken.append(net.weight.data()) or square(taken[0]))
    return first, step(net, trainer, lambda: square(taken[0])), taken[0]


def two_graphs():
    net, trainer = started()
    step(net, trainer)
    weight = net.weight.data()
    with autograd.record():
        first, second = square(weight), square(output(net))
    first.backward(retain_graph=True)
    gradients = [net.weight.grad().copy()]
    second.backward()
    gradients.append(net.weight.grad().copy())
    first.backward()
    trainer.step(1)
    return gradients, net.weight.grad(), net.weight.data()


def only_a_penalty():
    """A backward call that reaches no block; the bias is stale."""
    net, trainer = started()
    step(net, trainer)
    weight = net.weight.data()
    with autograd.record():
        loss = square(weight)
    loss.backward()
    with pytest.raises(UserWarning, match="bias"):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)
    return net.weight.grad(), net.weight.data(), net.bias.data()


def ask():
    """autograd.grad with respect to a value that a block reads, too, and gradients of it."""
    net, trainer = started()
    step(net, trainer)
    weight = net.weight.data()
    with autograd.record():
        both, alone = square(output(net)) + square(weight), mx.nd.sin(weight)
        (gradient,) = autograd.grad(alone, [weight], create_graph=True, retain_graph=True)
        penalty = square(gradient)
    result = autograd.grad(both, [weight, net.bias.data()])
    penalty.backward()
    return *result, gradient, net.weight.grad()


@pytest.mark.parametrize(
    "run",
    [add_up, freeze, drop_before_backward, hold_from_record, two_graphs, only_a_penalty, ask],
)
def test_variables_are_those_of_mxnet(two, run):
    assert_same(run(), plainly(run), rounded=True)


def hold_from_before(take):
    """Arrays taken before the first call of the block, which divides its parameters."""

    def run():
        net, trainer = started()
        taken = take(net.weight)
        result = [step(net, trainer), taken + 0, step(net, trainer), taken + 0]
        taken[:] = 0.5
        return *result, step(net, trainer), net.weight.data()

    return run


@pytest.mark.parametrize(
    "take",
    [
        lambda weight: weight.data(),
        lambda weight: weight.list_data()[0][2:4],
        lambda weight: weight.data().reshape((-1,)).detach(),
        lambda weight: weight.grad(),
        lambda weight: weight.list_grad()[0].reshape((-1,)),
    ],
)
def test_arrays_from_before_the_division_follow_and_write(two, take):
    run = hold_from_before(take)
    assert_same(run(), plainly(run))


def test_gradients_that_were_read_before_training_stay(two):
    """As the error about a gradient that is gone advises."""

    def run():
        net, trainer = started()
        net.weight.grad()
        found = []
        for _ in range(2):
            with autograd.record():
                square(output(net)).backward()
            trainer.step(1)
            with autograd.record():
                output(net)  # in the memory where the program computes gradients
            found.append(net.weight.grad().copy())
        return found

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("is_held", [True, False])
def test_graphs_from_before_the_division_deliver(two, request_, is_held):
    """The script records a penalty, and only then calls the block for the first time."""

    def run():
        net, trainer = started()
        net.weight.grad_req = request_
        weight, gradient = net.weight.data(), net.weight.grad()
        with autograd.record():
            loss = square(weight) + weight.sin().sum()
            if not is_held:
                del weight, gradient
            loss = loss + square(output(net))
        loss.backward()
        result = [net.weight.grad().copy()]
        if is_held:
            with autograd.record():
                loss = square(weight)
            loss.backward()
            result += [gradient, net.weight.grad().copy()]
        trainer.step(1, ignore_stale_grad=True)
        return *result, step(net, trainer)

    assert_same(run(), plainly(run), rounded=True)


def test_the_division_frees_arrays_that_nothing_holds(two):
    net, _ = started()
    held = net.bias.data()
    for _ in range(2):  # the second call is after any operator that still read the arrays
        with autograd.record():
            output(net)
        mx.nd.waitall()
    assert [view._copy is None for view in net.weight._tofu_views] == [True, True]
    assert net.bias._tofu_views[0]._copy is not None
    assert held.shape == (8,)


def test_a_thread_that_reads_between_a_backward_call_and_its_delivery(two, monkeypatch):
    net, trainer = started()
    step(net, trainer)
    calls = active().state.calls
    run = calls.run

    def run_and_read(backward, args, before, after):
        def read_first():
            reader = threading.Thread(target=lambda: net.weight.data().norm().asscalar())
            reader.start()
            reader.join()
            after()

        return run(backward, args, before, read_first)

    monkeypatch.setattr(calls, "run", run_and_read)
    with autograd.record():
        loss = square(net.weight.data())
    loss.backward()
    assert_same(net.weight.grad(), 2 * net.weight.data())


def test_a_value_is_freed_with_its_graph(two):
    net, trainer = started()
    step(net, trainer)
    assert is_tiled(net.weight)
    with autograd.record():
        loss = square(net.weight.data()) + square(output(net))
    value, _ = net.weight._tofu_views
    loss.backward()
    trainer.step(1)
    mx.nd.waitall()
    output(net)
    assert value._copy is None
