"""Scripts see the usual attributes and results of blocks that were never hybridized."""

import gc
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session import messages, session
from tofu.gluon.training.parameter import TileState

from .models import assert_same, data, fit, make_net, plainly, started, train, weights
from .unhybridized import (
    MARKS,
    Net,
    net_with,
    reasons,
    tiled,
    trainer_of,
)

pytestmark = MARKS


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


def test_blocks_inside_one_that_cannot_be_planned_are_partitioned(on):
    def run():
        net = net_with(lambda net, F, hidden: F.sign(hidden) * hidden)
        return train(net=net)[:2], tiled(net)

    with pytest.warns(messages.TofuWarning, match="net itself runs eagerly: operator sign") as seen:
        found, names = run()
    assert len(reasons(seen)) == 1
    assert len(names) == 8
    assert_same(found, plainly(run)[0])


@pytest.mark.parametrize("log", ["real"], indirect=True)
def test_blocks_inside_one_that_only_arrays_can_broadcast_are_partitioned(two):
    """F.broadcast_mul would be right for symbols, too."""

    def run():
        net = net_with(lambda net, F, hidden: hidden * F.ones((1, 12)) * 2)
        return (fit(net, trainer_of(net), 1), weights(net)), tiled(net)

    with pytest.warns(messages.TofuWarning, match="net itself runs eagerly: .*Incompatible attr"):
        found, names = run()
    assert len(names) == 8
    assert_same(found, plainly(run)[0])


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
