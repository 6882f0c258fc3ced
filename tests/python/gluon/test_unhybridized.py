"""Blocks that were never hybridized: partitioned, and otherwise as the script knows them."""

import collections
import gc
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon import messages, session
from tofu.gluon.parameter import TileState

from .models import assert_same, batches, data, fit, make_net, plainly, started, train, weights
from .unhybridized import (
    MARKS,
    Net,
    chain,
    graphs_for_training,
    net_with,
    reasons,
    tiled,
    trainer_of,
)

pytestmark = MARKS


# --- What is partitioned -----------------------------------------------------------------------


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


# --- What the script sees ----------------------------------------------------------------------


def test_predictions_before_training_tile_nothing(two):
    def run():
        net = net_with()
        return net(data()), tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert not found[1] and not two.graphs


def test_predictions_after_training_use_the_tiles(two, monkeypatch):
    net = net_with()
    fit(net, trainer_of(net), 1)
    expected = net(data()).asnumpy()
    monkeypatch.setattr(TileState, "gather", None)
    assert_same(net(data()), expected)
    assert not two.graphs[-1]["train"]


def test_children_can_be_called_by_themselves(two):
    def run():
        net = net_with()
        losses = fit(net, trainer_of(net), 2)
        losses += [net.first(data()), net.norm(net.first(data()))]
        with autograd.record():
            loss = (net.first(data()) ** 2).sum()
        loss.backward()
        return [*losses, net.first.weight.grad(), net(data())]

    assert_same(run(), plainly(run))


def test_hybridizing_later_and_taking_it_back(on):
    def run(path="model"):
        net = net_with()
        trainer = trainer_of(net)
        losses = fit(net, trainer, 2)
        net.hybridize()
        losses += fit(net, trainer, 2)
        active = net._active, bool(net._cached_graph)
        net.hybridize(active=False)
        return losses + fit(net, trainer, 2), active

    with pytest.warns(messages.TofuWarning, match="net is not hybridized.*call its hybridize"):
        found = run()
    expected = plainly(run)
    assert_same(found[0], expected[0])
    assert found[1] == expected[1] == (True, True)


def test_hybridizing_drops_the_trace(on):
    net = net_with()
    fit(net, trainer_of(net), 1)
    traces = session.active().state.traces
    assert net in traces
    net.hybridize()
    net(data())
    assert net not in traces


def test_a_net_that_hybridizes_a_part_of_itself(on, tmp_path):
    def run():
        net = net_with()
        net.first.hybridize()
        losses = train(net=net)[:2]
        net.first.export(str(tmp_path / "first"))
        return losses, tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert len(found[1]) == 8


@pytest.mark.filterwarnings("ignore:Cannot decide type")
def test_export_wants_a_hybridized_net(two, tmp_path):
    net = net_with()
    fit(net, trainer_of(net), 1)
    with pytest.raises(RuntimeError, match=r"first call block\.hybridize"):
        net.export(str(tmp_path / "net"))
    net.hybridize()
    expected = net(data())
    net.export(str(tmp_path / "net"))
    path = str(tmp_path / "net")
    block = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
    assert_same(block(data()), expected)


def test_summary_parameters_and_files(two, capsys, tmp_path):
    def run():
        net = net_with()
        net.summary(data())
        before = capsys.readouterr().out
        losses = train(net=net)[:2]
        net.summary(data())
        path = str(tmp_path / "net.params")
        net.save_parameters(path)
        other = Net(prefix="net_")
        other.load_parameters(path)
        after = capsys.readouterr().out
        return [losses, other(data()), net(data())], before, after, list(net.collect_params())

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert found[1:] == expected[1:]


def test_casting(two):
    def run():
        net = net_with()
        first = fit(net, trainer_of(net), 2)
        net.cast("float64")
        with autograd.record():
            loss = (net(data().astype("float64")) ** 2).sum()
        loss.backward()
        double = [loss, net.last.weight.grad()]
        assert loss.dtype == np.float64
        net.cast("float32")
        return first, double, fit(net, trainer_of(net), 2)

    assert_same(run(), plainly(run))


def test_names_of_later_blocks(two):
    class Unnamed(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="")
            self.dense = nn.Dense(6, prefix="unnamed_")

        def hybrid_forward(self, F, x):
            return F.Activation(self.dense(x), act_type="relu")

    def run():
        with mx.name.NameManager():
            net = started(Unnamed(), hybrid=False)
            train(net=net)
            made = nn.Activation("relu"), net.dense.weight.var().attr("__shape__")
            return made[0].prefix, made[1], mx.sym.Activation(mx.sym.var("x"), "relu").name

    assert run() == plainly(run)


def test_several_contexts_run_as_they_are(on):
    def run():
        contexts = [mx.cpu(0), mx.cpu(1)]
        net = Net(prefix="parallel_")
        mx.random.seed(1)
        net.initialize(mx.init.Xavier(), ctx=contexts)
        trainer = trainer_of(net)
        results = []
        for _ in range(2):
            parts = gluon.utils.split_and_load(data(), contexts)
            with autograd.record():
                losses = [(net(part) ** 2).sum() for part in parts]
            autograd.backward(losses)
            trainer.step(12)
            results += losses
        return results, net.last.weight.data(mx.cpu(0))

    with pytest.warns(messages.TofuWarning, match=r"runs serially.*expected one context") as seen:
        found = run()
    assert len(reasons(seen)) == 1, reasons(seen)
    assert_same(found, plainly(run))


def test_sparse_gradients_are_told_once(on):
    def run():
        net = nn.Embedding(8, 4, sparse_grad=True, prefix="sparse_")
        started(net, hybrid=False)
        trainer = trainer_of(net, learning_rate=0.1)
        for _ in range(3):
            with autograd.record():
                loss = (net(nd.array([1, 2])) ** 2).sum()
            loss.backward()
            trainer.step(2)
        return loss

    with pytest.warns(messages.TofuWarning, match=r"sparse_weight.*row_sparse") as seen:
        found = run()
    assert len(reasons(seen)) == 1
    assert_same(found, plainly(run))


def test_what_cannot_be_planned_runs_serially(on):
    def run():
        return train(net=net_with(lambda net, F, hidden: F.sign(hidden) * hidden))[:2]

    with pytest.warns(messages.TofuWarning, match="net runs serially: operator sign") as seen:
        found = run()
    assert len(reasons(seen)) == 1
    assert_same(found, plainly(run))


def test_blocks_without_anything_to_train_are_left_alone(two):
    def run():
        net = net_with()
        net.collect_params().setattr("grad_req", "null")
        with autograd.record():
            return net(data())

    assert_same(run(), plainly(run))
    assert not two.graphs


def test_recurrent_cells_and_layers(two):
    def run():
        layer = started(gluon.rnn.LSTM(8, input_size=10, prefix="lstm_"), hybrid=False)
        cell = gluon.rnn.GRUCell(8, input_size=8, prefix="cell_")
        cell.initialize(mx.init.Xavier())
        trainer = trainer_of(layer, learning_rate=0.1)
        losses = []
        for _ in range(3):
            with autograd.record():
                hidden = layer(nd.ones((4, 6, 10)))
                state = cell.begin_state(6)
                for step in range(4):
                    _, state = cell(hidden[step], state)
                loss = (state[0] ** 2).sum()
            loss.backward()
            trainer.step(6)
            losses += [loss, cell.i2h_weight.grad(), layer(nd.ones((4, 6, 10)))]
        return losses, tiled(layer), tiled(cell)

    found = run()
    assert_same(found[0], plainly(run)[0], rounded=True)
    assert found[1] and found[2]


def test_dropped_nets_are_freed(two):
    net = net_with()
    train(net=net)
    reference = weakref.ref(net)
    gc.collect()
    gc.disable()
    try:
        del net
        assert reference() is None
    finally:
        gc.enable()


def test_turning_tofu_off_between_steps(two):
    def run(switch):
        net = net_with()
        trainer = trainer_of(net)
        losses = fit(net, trainer, 2)
        switch()
        return losses + fit(net, trainer, 2), weights(net)

    found = run(tofu.gluon.disable)
    assert_same(found, run(lambda: None))


def test_an_argument_of_enable_switches_it_off(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", hybridize=False)
    net = make_net(hybrid=False)
    with pytest.warns(messages.TofuWarning, match="net is not hybridized"):
        train(net=net)
    assert not tiled(net)
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    train(net=net)
    assert tiled(net)
    tofu.gluon.disable()
