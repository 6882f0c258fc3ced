"""Blocks that were never hybridized are partitioned."""

import collections

import mxnet as mx
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tofu.gluon

from .models import assert_same, batches, data, fit, make_net, plainly, started, train, weights
from .unhybridized import (
    MARKS,
    Net,
    chain,
    graphs_for_training,
    net_with,
    tiled,
    trainer_of,
)

pytestmark = MARKS


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_net_that_was_never_hybridized_is_partitioned(workers, dtype):
    def run():
        net = make_net(hybrid=False)
        net.cast(dtype)
        trainer, losses = trainer_of(net), []
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        for inputs, label in batches():
            with autograd.record():
                loss = loss_of(net(inputs.astype(dtype)), label)
            loss.backward()
            trainer.step(len(inputs))
            losses += [loss, net(inputs.astype(dtype))]
        assert not net._active and net._cached_graph == () and net._cached_op is None
        return losses, weights(net), tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[:2], expected[:2])
    assert (found[2], expected[2]) == (set(found[1]), set())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("request_", ["write", "add"])
def test_training_equals_the_serial_run(two, optimizer, request_):
    def run():
        net = net_with()
        net.collect_params().setattr("grad_req", request_)
        net.norm.running_mean.grad_req = net.norm.running_var.grad_req = "null"

        def clear(net):
            if request_ == "add":
                net.collect_params().zero_grad()

        trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.01})
        losses = fit(net, trainer)
        clear(net)
        return losses, fit(net, trainer, 2), weights(net)

    assert_same(run(), plainly(run))


def test_a_sequential_is_one_graph(two):
    def run():
        return train(net=chain())[:2]

    found = run()
    assert_same(found, plainly(run))
    assert graphs_for_training(two) == 2  # one for each size of batches, none for children


def test_a_sequential_with_other_blocks_runs_block_by_block(two):
    class Other(gluon.Block):
        def forward(self, x):
            return x * float(x.shape[1])

    def run():
        net = nn.Sequential(prefix="chain_")
        net.add(nn.Dense(12, prefix="a_"), Other(), nn.Dense(6, prefix="b_"))
        started(net, hybrid=False)
        return train(net=net)[:2], tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert len(found[1]) == 4


def test_a_loss_takes_tiles_from_its_second_call_on(two):
    def run(make_loss):
        net, kept = net_with(), gluon.loss.SoftmaxCrossEntropyLoss()
        trainer, losses = trainer_of(net), []
        for inputs, label in batches(3):
            with autograd.record():
                loss = (make_loss() or kept)(net(inputs), label)
            loss.backward()
            trainer.step(len(inputs))
            losses.append(loss)
        return losses, weights(net)

    def graphs_of_losses():
        return sum(not graph["parameters"] for graph in two.graphs)

    for make_loss, expected in ((gluon.loss.SoftmaxCrossEntropyLoss, 0), (lambda: None, 2)):
        assert_same(run(make_loss), plainly(run, make_loss))
        assert graphs_of_losses() == expected


def test_numpy_arrays(workers):
    def run():
        with mx.util.np_shape(True), mx.util.np_array(True):
            net = started(nn.HybridSequential(prefix="numpy_"), hybrid=False)
            with net.name_scope():
                net.add(nn.Dense(12, activation="relu"), nn.BatchNorm(), nn.Dense(6))
            started(net, hybrid=False)
            trainer, losses = trainer_of(net), []
            for _ in range(3):
                with autograd.record():
                    outputs = net(data().as_np_ndarray())
                    loss = (outputs**2).sum()
                loss.backward()
                trainer.step(12)
                losses += [loss.as_nd_ndarray(), net(data().as_np_ndarray()).as_nd_ndarray()]
            assert type(outputs) is mx.np.ndarray
            return losses, tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert len(found[1]) == 8


def test_one_line_tells_what_is_partitioned(fake, capsys):
    tofu.gluon.enable(workers=2, device="cpu", log="info")
    train(net=net_with())
    tofu.gluon.disable()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tofu:")]
    assert len(lines) == 1
    assert lines[0].startswith("tofu: net (1 operators, 258 parameters) over 2 workers")


def test_blocks_inside_a_plain_block_are_partitioned(two):
    class Plain(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.one = nn.Dense(12, activation="relu")
                self.two = Net()

        def forward(self, x):
            hidden = self.one(x)
            return self.two(hidden * (1 if hidden.asnumpy().max() > 0 else 2))

    def run():
        net = started(Plain(prefix="plain_"), hybrid=False)
        return train(net=net)[:2], tiled(net), set(net.collect_params())

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert found[1] == found[2]


def test_several_calls_in_a_step(two):
    def run():
        net, trainer, losses = net_with(), None, []
        for inputs, _ in batches():
            with autograd.record():
                loss = (net(inputs) ** 2).sum() + (net(inputs * 2) ** 2).sum()
            loss.backward()
            trainer = trainer or trainer_of(net, learning_rate=0.01)
            trainer.step(len(inputs))
            losses.append(loss)
        return losses, weights(net)

    assert_same(run(), plainly(run), rounded=True)


def test_two_nets_that_train_against_each_other(two):
    def run():
        maker = started(nn.Sequential(prefix="maker_"), hybrid=False)
        judge = nn.HybridSequential(prefix="judge_")
        with maker.name_scope():
            maker.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(10))
        with judge.name_scope():
            judge.add(nn.Dense(8), nn.LeakyReLU(0.2), nn.Dense(2))
        started(maker, hybrid=False)
        judge.initialize(mx.init.Xavier())
        trainers = [trainer_of(net, learning_rate=0.01) for net in (maker, judge)]
        loss_of, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
        real, fake = nd.ones((12,)), nd.zeros((12,))
        for _ in range(3):
            noise = nd.random.normal(shape=(12, 5))
            with autograd.record():
                of_real = loss_of(judge(data()), real)
                made = maker(noise)
                of_both = of_real + loss_of(judge(made.detach()), fake)
            of_both.backward()
            trainers[1].step(12)
            with autograd.record():
                of_made = loss_of(judge(made), real)
            of_made.backward()
            trainers[0].step(12)
            losses += [of_both, of_made]
        return losses, weights(maker), weights(judge), tiled(maker) | tiled(judge)

    found = run()
    assert_same(found[:3], plainly(run)[:3], rounded=True)
    assert len(found[3]) == len(found[1]) + len(found[2])


def test_parameters_are_initialized_in_the_order_of_the_code(two):
    class Crossed(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.one, self.two = nn.Dense(6), nn.Dense(6)

        def hybrid_forward(self, F, x):
            second = self.two(x)
            return self.one(x) + second

    def run():
        net = started(Crossed(prefix="crossed_"), hybrid=False)
        losses = fit(net, trainer_of(net), 1)
        return losses, weights(net)

    assert_same(run(), plainly(run))


def test_nested_arguments_and_results(two):
    Pair = collections.namedtuple("Pair", "left right")

    class Nested(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.dense = nn.Dense(6, in_units=10)

        def hybrid_forward(self, F, x, states=None, scale=1.0):
            y = self.dense(x) * scale
            if states is not None:
                y = y + states[0] * states[1]
            halves = F.split(y, num_outputs=2, axis=1)
            return {"all": y, "pair": Pair(y * 2, None)}, (halves, [y + 1]), "told"

    def run():
        net = started(Nested(prefix="nested_"), hybrid=False)
        results = []
        for args in ((), (None, 2.0), ([nd.ones((12, 6)), nd.ones((12, 6)) * 3],), (None, 2)):
            with autograd.record():
                first, second, third = net(data(), *args)
                loss = first["all"].sum() + second[0][1].sum()
            loss.backward()
            assert type(first["pair"]) is Pair and first["pair"].right is None
            assert type(second) is tuple and type(second[0]) is list and third == "told"
            arrays = [first["all"], first["pair"].left, *second[0], *second[1]]
            results.append([*arrays, net.dense.weight.grad()])
        return results, tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert found[1]
