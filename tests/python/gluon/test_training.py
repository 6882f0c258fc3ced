"""Training gives the results of plain MXNet: losses, weights, running statistics."""

import gc
import os
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session import autograd_hooks
from tofu.gluon.session.session import active
from tofu.gluon.training.parameter import is_tiled
from tofu.plans.parts import Parts

from .models import (
    assert_same,
    batches,
    data,
    make_net,
    plainly,
    started,
    train,
    wait_until,
    weights,
)

OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "rmsprop": {"learning_rate": 0.01, "clip_gradient": 0.5},
    "nag": {"learning_rate": 0.1, "momentum": 0.5},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_and_weights(optimizer, workers):
    expected = plainly(train, optimizer, OPTIMIZERS[optimizer])
    net = make_net()
    found = train(optimizer, OPTIMIZERS[optimizer], net)
    assert_same(found[:2], expected[:2])
    assert all(map(is_tiled, net.collect_params().values()))


def test_predicting_first_plans_the_training_graph_first(two):
    net = make_net()
    net(data())
    assert [graph["train"] for graph in two.graphs] == [True, False]
    assert two.pins[0] == {}
    assert set(two.pins[1]) == set(net.collect_params())
    expected = plainly(train)
    assert_same(train(net=net)[:2], expected[:2])


def unequal_parts(dtype):
    """Train two batch sizes, and predict; the search prefers another order of steps for each."""
    net = nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(
            nn.Dense(96, activation="relu", in_units=48),
            nn.Dense(96, activation="relu", in_units=96),
            nn.Dense(10, in_units=96),
        )
    started(net)
    net.cast(dtype)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    found = []
    for rows in (32, 20, 24, 32):
        inputs = mx.nd.ones((rows, 48), dtype=dtype)
        with autograd.record():
            loss = (net(inputs) ** 2).sum()
        loss.backward()
        trainer.step(rows)
        found += [loss, net(inputs)]
    return found, weights(net)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [6, 12, 18])
@pytest.mark.filterwarnings("ignore:.*they are replicated")
def test_later_graphs_keep_the_order_of_steps(count, dtype):
    """Warnings are errors: no graph runs serially."""
    expected = unequal_parts(dtype)
    tofu.gluon.enable(workers=count, device="cpu", log="quiet")
    found = unequal_parts(dtype)
    tofu.gluon.disable()
    assert_same(found, expected)


def test_parameters_cut_in_other_steps_are_refused(two):
    one, other = (started(nn.Dense(8, in_units=8, prefix=f"{n}_")) for n in ("one", "other"))
    for each in (one, other):
        each(mx.nd.ones((4, 8)))
    both = nn.HybridSequential(prefix="both_")
    both.add(one, other)
    both.hybridize()
    one.weight._tofu.parts = one.bias._tofu.parts = Parts((3, 2))
    other.weight._tofu.parts = other.bias._tofu.parts = Parts((2, 3))
    with pytest.warns(UserWarning, match=r"one_\w+ in 3 x 2, other_\w+ in 2 x 3 parts"):
        both(mx.nd.ones((4, 8)))


def test_each_signature_is_planned_once(two):
    net = make_net()
    train(net=net, steps=6)
    # Two batch sizes to train, each of the net and of the loss, and one to predict.
    assert len(two.graphs) == 5
    assert two.programs == 5


def test_the_optimizer_is_planned_for(two):
    for optimizer, kind in (("sgd", "sgd_mom"), ("adam", "adam"), ("rmsprop", None)):
        train(optimizer, OPTIMIZERS[optimizer], steps=1)
        net, loss, prediction = two.graphs[-3:]
        assert net["optimizer"] == kind
        assert loss["optimizer"] is prediction["optimizer"] is None


def accumulate():
    net = make_net()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.1})
    found = []
    for inputs, label in batches():
        for part in (slice(0, 3), slice(3, 6)):
            with autograd.record():
                loss = gluon.loss.SoftmaxCELoss()(net(inputs[part]), label[part])
            loss.backward()
        found.append(params["net_dense1_weight"].grad().asnumpy())
        trainer.step(6)
        params.zero_grad()
    return found, weights(net)


def test_gradient_accumulation(two):
    assert_same(accumulate(), plainly(accumulate))


def call_twice():
    net = make_net()
    one, other = data(), data() * 2
    with autograd.record():
        loss = (net(one) * net(other)).sum()
    loss.backward()
    gradients = {n: p.grad() for n, p in net.collect_params().items() if p.grad_req != "null"}
    return gradients, loss


def test_two_calls_in_one_record(two):
    assert_same(call_twice(), plainly(call_twice))
    assert two.programs == 2


def test_programs_are_used_again(two):
    net = make_net()
    for _ in range(4):
        with autograd.record():
            loss = (net(data()) * net(data())).sum()
        loss.backward()
    with autograd.record():
        net(data())
        net(data())  # a call whose outputs are dropped without a backward pass
        net(data())
    assert two.programs == 2


def test_nothing_piles_up(two):
    net = make_net()
    train(net=net)
    gc.collect()
    before = len(autograd_hooks._functions), len(active().state.calls.recorded())
    train(net=net, steps=12)
    gc.collect()
    wait_until(lambda: len(autograd_hooks._functions) <= before[0] + 1, autograd_hooks.free_dropped)
    assert len(active().state.calls.recorded()) <= before[1] + 1


def retain():
    net = make_net()
    net.collect_params().setattr("grad_req", "add")
    with autograd.record():
        outputs = net(data())
        first, second = outputs.sum(), (outputs * outputs).sum()
    first.backward(retain_graph=True)
    with autograd.record():
        other = net(data() * 3).sum()  # must not take the program that is still needed
    second.backward(retain_graph=True)  # MXNet's graphs share its running statistics
    other.backward()
    return {n: p.grad() for n, p in net.collect_params().items() if p.grad_req != "null"}


def test_retained_graphs(two):
    assert_same(retain(), plainly(retain))


def several_calls(asked, shared):
    """Statistics after three calls before one backward pass, with gradients of some inputs."""
    net = make_net()
    inputs = [data() * scale for scale in (1, 2, 5)]
    for number in asked:
        inputs[number].attach_grad()
    if shared:
        inputs[2] = inputs[0]
    with autograd.record():
        losses = [net(each).sum() for each in inputs]
    autograd.backward(losses)
    return {n: value for n, value in weights(net).items() if "running" in n}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("asked", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_running_statistics_of_several_calls(asked, shared, two):
    """Statistics are updated in the order of MXNet's backward passes."""
    assert_same(several_calls(asked, shared), plainly(several_calls, asked, shared))


def gradients_of_inputs():
    net = make_net()
    inputs = data()
    inputs.attach_grad()
    with autograd.record():
        loss = (net(inputs * 2) ** 2).sum()
    loss.backward()
    with autograd.record():
        loss = (net(inputs) ** 2).sum()
    (asked,) = autograd.grad([loss], [inputs])
    return inputs.grad, asked


def test_gradients_of_inputs(two):
    assert_same(gradients_of_inputs(), plainly(gradients_of_inputs))


def test_autograd_grad_of_parameters(two):
    net = make_net()
    net(data())
    asked = [net[0].weight, net[3].bias]
    with autograd.record():
        loss = net(data()).sum()
    found = autograd.grad(loss, [parameter.data() for parameter in asked])
    with autograd.record():
        net(data()).sum().backward()
    assert_same(found, [parameter.grad() for parameter in asked])


class Two(gluon.HybridBlock):
    """Nested inputs and outputs, one parameter used twice."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.one = nn.Dense(8, in_units=8, flatten=False)
            self.other = nn.Dense(8, params=self.one.params)

    def hybrid_forward(self, F, x, states, scale=None):
        first, (second,) = states
        y = self.one(x) + first
        z = self.other(y) * second
        if scale is not None:
            z = z * scale
        return y, [z, [y + z]]


def nested():
    net = started(Two(prefix="two_"))
    random = np.random.RandomState(3)
    x, a, b = (mx.nd.array(random.uniform(size=(4, 8))) for _ in range(3))
    a.attach_grad()
    with autograd.record():
        y, (z, (total,)) = net(x, [a, [b]])
        loss = (z * total).sum()
    loss.backward()
    return y, z, total, a.grad, {n: p.grad() for n, p in net.collect_params().items()}


def test_nested_inputs_outputs_and_shared_parameters(two):
    assert_same(nested(), plainly(nested))


def test_arguments_nested_otherwise_are_refused(two):
    net = started(Two(prefix="two_"))
    x = mx.nd.ones((4, 8))
    net(x, [x, [x]])
    net(x, [x, [x]], None)
    with pytest.raises(ValueError, match="arguments nested as"):
        net(x, [x, x])


def two_blocks_share():
    one = started(nn.Dense(8, in_units=8, prefix="shared_"))
    other = nn.HybridSequential(prefix="other_")
    with other.name_scope():
        other.add(nn.Dense(8, in_units=8, params=one.params), nn.Dense(4, in_units=8))
    other[1].initialize(mx.init.One())
    other.hybridize()
    trainer = gluon.Trainer(other.collect_params(), "sgd", {"learning_rate": 0.01})
    found = []
    for _ in range(3):
        with autograd.record():
            loss = one(mx.nd.ones((4, 8))).sum() + other(mx.nd.ones((4, 8)) * 2).sum()
        loss.backward()
        trainer.step(4)
        found.append(loss)
    return found, weights(other)


def test_blocks_that_share_parameters(two):
    assert_same(two_blocks_share(), plainly(two_blocks_share))
    assert "shared_weight" in two.pins[1]


def adversaries():
    generator, judge = make_net(prefix="generator_"), make_net(prefix="judge_")
    head = started(nn.Dense(10, prefix="head_"))
    trainers = [
        gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for net in (generator, judge)
    ]
    head(mx.nd.ones((12, 6)))
    for _ in range(3):
        with autograd.record():
            fake = head(generator(data()))
            loss = ((judge(data() + 1) - 1) ** 2).mean() + (judge(fake.detach()) ** 2).mean()
        loss.backward()
        trainers[1].step(1)
        with autograd.record():
            loss = ((judge(head(generator(data()))) - 1) ** 2).mean()
        loss.backward()
        trainers[0].step(1)
    return weights(generator), weights(judge)


def test_two_nets_against_each_other(two):
    assert_same(adversaries(), plainly(adversaries))


def test_the_naive_engine_keeps_the_order_of_calls():
    """It runs callbacks in the order of MXNet's graph, on which running statistics depend."""
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-k",
            "two_nets",
            "-p",
            "no:cacheprovider",
            __file__,
        ],
        env={**os.environ, "MXNET_ENGINE_TYPE": "NaiveEngine"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout
    assert "2 passed" in found.stdout


def recorded_prediction():
    net = make_net()
    with autograd.record(train_mode=False):
        loss = net(data()).sum()
    loss.backward(train_mode=False)
    return loss, net.collect_params()["net_dense0_weight"].grad()


def test_recording_in_predict_mode(two):
    assert_same(recorded_prediction(), plainly(recorded_prediction))


def frozen():
    net = make_net()
    net[0].collect_params().setattr("grad_req", "null")
    return train(net=net)[:2]


def test_frozen_layers(two):
    assert_same(frozen(), plainly(frozen))


def test_frozen_after_tiling(two):
    def run():
        net = make_net()
        train(net=net)
        net[0].collect_params().setattr("grad_req", "null")
        frozen = train(net=net)[:2]
        net[0].collect_params().setattr("grad_req", "write")
        return frozen, train(net=net)[:2]

    assert_same(run(), plainly(run))


def in_float64():
    net = make_net()
    inputs, label = next(batches(1))
    net(inputs)
    net.cast("float64")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(3):
        with autograd.record():
            loss = gluon.loss.SoftmaxCELoss()(net(inputs.astype("float64")), label)
        loss.backward()
        trainer.step(12)
    assert loss.dtype == np.float64
    double = weights(net)
    net.cast("float32")
    return loss, double, net(inputs)


def test_cast(two):
    assert_same(in_float64(), plainly(in_float64))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dehybridized_blocks_run_eagerly(two):
    def run():
        net = make_net()
        train(net=net)
        net.hybridize(active=False)
        eager = train(net=net)[:2]
        net.hybridize()
        return eager, train(net=net)[:2]

    with pytest.warns(UserWarning, match="net is not hybridized"):
        found = run()
    assert_same(found, plainly(run))


@pytest.mark.filterwarnings("ignore:Cannot decide type")
def test_symbol_blocks(two, tmp_path):
    def run():
        net = make_net()
        train(net=net)
        path = str(tmp_path / "model")
        net.export(path)
        block = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
        return net(data()), block(data()), train(net=block)[:2]

    assert_same(run(), plainly(run))


def test_blocks_without_parameters_stay_as_they_are(two):
    loss_of = gluon.loss.L2Loss()
    loss_of.hybridize()
    loss_of(mx.nd.ones((4,)), mx.nd.zeros((4,)))
    assert not two.graphs


def test_recurrent_states(two):
    def run():
        cell = started(gluon.rnn.LSTMCell(8, input_size=4, prefix="lstm_"))
        states = cell.begin_state(batch_size=4)
        with autograd.record():
            for _ in range(3):
                output, states = cell(mx.nd.ones((4, 4)), states)
            loss = output.sum()
        loss.backward()
        return loss, {n: p.grad() for n, p in cell.collect_params().items()}

    assert_same(run(), plainly(run), rounded=True)
    assert two.programs >= 3


@pytest.mark.parametrize("steps", [1, 3])
def test_deferred_initialization(two, steps):
    net = make_net()
    assert net[0].weight.shape == (12, 0)
    train(net=net, steps=steps)
    assert net[0].weight.shape == (12, 10)
