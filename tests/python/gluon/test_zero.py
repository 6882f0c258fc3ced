"""Runs of plans that divide a weight's states or gradient in other ways than the weight."""

import pickle

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.training.parameter import is_tiled
from tofu.gluon.updates.grouped_updates import calls_for
from tofu.mx.run import transfer

from . import fakes
from .models import assert_same, data, fit, make_net, plainly, started, train, weights
from .zero_runs import (
    MODES,
    OPTIMIZERS,
    OTHERS,
    STAGES,
    dense,
    dividing,
    state_bytes,
    steps,
    steps_on,
)

# pytest.warns lets all other warnings pass, from anywhere.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name, dtype, divided):
    def run():
        net = dense(dtype)
        optimizer, options = OPTIMIZERS[name]
        trainer = gluon.Trainer(net.collect_params(), optimizer, dict(options))
        return steps(net, trainer, dtype), weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("name", ["lamb", "lars", "lbsgd"])
def test_norms_of_whole_tensors(name, divided):
    """Tiles add up squares in another order."""

    def run():
        net = dense("float64")
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.05})
        return steps(net, trainer, "float64"), weights(net)

    assert_same(run(), plainly(run), rounded=True)


def test_an_optimizer_of_whole_tensors(divided):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), "nadam", {"learning_rate": 0.05})
        return steps(net, trainer), weights(net)

    expected = plainly(run)
    with pytest.warns(UserWarning, match="does not update every element"):
        found = run()
    assert_same(found, expected)


def test_schedules(divided):
    def run():
        schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.2)
        found = train("sgd", {"lr_scheduler": schedule, "momentum": 0.9})
        return found[:2]

    assert_same(run(), plainly(run))


class Product(gluon.HybridBlock):
    """A product in half precision that MXNet's CPU operators can differentiate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get("weight", shape=(4, 8), dtype="float16")

    def hybrid_forward(self, F, x, weight):
        return x * weight


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_half_precision_with_masters(momentum, divided):
    def run():
        net = started(Product(prefix="half_"))
        options = {"learning_rate": 1e-4, "momentum": momentum, "multi_precision": True}
        trainer = gluon.Trainer(net.collect_params(), "sgd", options)
        for _ in range(5):
            with autograd.record():
                loss = (net(mx.nd.ones((4, 8), dtype="float16")) ** 2).sum()
            loss.backward()
            trainer.step(4)
        return weights(net)

    assert_same(run(), plainly(run))


def convolutions():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(48, 3, padding=1, activation="relu"), nn.BatchNorm(), nn.Dense(4))
    return started(net)


def test_weights_in_the_blocked_layout(divided):
    def run():
        net = convolutions()
        images = mx.nd.random.normal(shape=(4, 3, 8, 8))
        net(images).wait_to_read()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
        for _ in range(3):
            with autograd.record():
                loss = (net(images) ** 2).mean()
            loss.backward()
            trainer.step(1)
            net(images).wait_to_read()  # oneDNN keeps the weights in blocks from here on
        return weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_state_files_are_those_of_plain_mxnet(name, divided, tmp_path):
    def save(file):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS[name])
        steps(net, trainer)
        trainer.save_states(str(tmp_path / file))
        return pickle.loads((tmp_path / file).read_bytes())

    found, expected = save("found"), plainly(save, "expected")
    assert_same(found[0], expected[0])
    assert found[1]._all_index_update_counts == expected[1]._all_index_update_counts


def test_loading_states_in_the_middle(divided, tmp_path):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer)
        trainer.save_states(str(tmp_path / "states"))
        steps(net, trainer, count=2)
        trainer.load_states(str(tmp_path / "states"))
        return steps(net, trainer), weights(net)

    assert_same(run(), plainly(run))


def test_a_smaller_last_batch_and_a_prediction(divided):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        found = [steps(net, trainer), net(data(4)).asnumpy(), steps(net, trainer, batch=8)]
        return found, weights(net)

    assert_same(run(), plainly(run))


def test_a_prediction_before_training(divided):
    """The first graph has no update, so the second one says how states are divided."""

    def run():
        net = dense("float32")
        net(data())
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        return steps(net, trainer), weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("kind", [*STAGES, *OTHERS, *MODES])
def test_disabling_in_the_middle(kind):
    def run(between):
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        found = fit(net, trainer, 2)
        between()
        return found + fit(net, trainer, 2), weights(net)

    with dividing(kind, 2):
        found = run(tofu.gluon.disable)
        assert_same(found, run(lambda: None))


def test_new_values_and_types(divided):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        found = [steps(net, trainer)]
        net[0].weight.set_data(net[0].weight.data() * 0.5)
        found.append(steps(net, trainer))
        net.cast("float64")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        return [*found, steps(net, trainer, "float64")], weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("kind", [*STAGES, *MODES])
def test_workers_hold_parts_of_the_states(kind, workers):
    with dividing(kind, workers):
        net = started(nn.Dense(12, in_units=10, prefix="net_"))
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer)
        assert all(map(is_tiled, net.collect_params().values()))
        assert state_bytes(trainer) == [2 * 4 * (120 + 12) // workers] * workers


@pytest.mark.parametrize("kind", [*STAGES, *MODES])
def test_parts_of_matrices_are_views(kind, monkeypatch):
    """Updates of rows, and their gradients, take no memory of their own."""
    with dividing(kind, 2):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer)
        with autograd.record():
            loss = (net(data()) ** 2).mean()
        loss.backward()
        monkeypatch.setattr(mx.nd, "empty", None)
        monkeypatch.setattr(mx.nd, "slice", None)
        trainer.step(1)
        monkeypatch.undo()


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_equal_in_double_precision(name, mode, workers):
    def run():
        net = dense("float64")
        optimizer, options = OPTIMIZERS[name]
        trainer = gluon.Trainer(net.collect_params(), optimizer, dict(options))
        return steps(net, trainer, "float64"), weights(net)

    expected, expected_weights = run()
    with dividing(mode, workers):
        found, found_weights = run()
    np.testing.assert_allclose(found, expected, 1e-12)
    for key, value in expected_weights.items():
        np.testing.assert_allclose(found_weights[key], value, 1e-12, 1e-14, err_msg=key)


def test_an_interrupted_update_leaves_the_same_weight_on_all_workers(monkeypatch):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", search="zero-2")
    net = started(nn.Dense(8, in_units=4, prefix="net_"))
    steps_on(net, mx.nd.ones((4, 4)))

    def interrupted(update):
        def of_worker(*args):
            update(*args)
            raise KeyboardInterrupt

        return of_worker

    def calls(*args):
        return [call._replace(update=interrupted(call.update)) for call in calls_for(*args)]

    monkeypatch.setattr("tofu.gluon.updates.trainer.calls_for", calls)
    before = net.weight.data().asnumpy().copy()
    with pytest.raises(KeyboardInterrupt):
        steps_on(net, mx.nd.ones((4, 4)))
    first, second = (tile.asnumpy() for tile in net.weight._tofu.variables)
    np.testing.assert_array_equal(first, second)
    assert (first != before).any()
    tofu.gluon.disable()


class Copies(list):
    """Counts the living lists of this kind, and the most at once."""

    now = most = 0

    def __init__(self, arrays):
        super().__init__(arrays)
        Copies.now += 1
        Copies.most = max(Copies.most, Copies.now)

    def __del__(self):
        Copies.now -= 1


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_copies_of_parts_last_for_one_call(name, monkeypatch):
    def counted(*args):
        return Copies(transfer.parts_of(*args))

    monkeypatch.setattr(Copies, "most", 0)
    monkeypatch.setattr("tofu.gluon.updates.grouped_updates._ELEMENTS", 1)
    monkeypatch.setenv("MXNET_OPTIMIZER_AGGREGATION_SIZE", "1")
    with fakes.using(fakes.backend("crossed"), parts_of=counted):
        tofu.gluon.enable(workers=2, device="cpu", log="quiet", allow_replication=True)
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS[name])
        steps(net, trainer)
        tofu.gluon.disable()
    assert 1 <= Copies.most <= 2  # a weight's, and its gradient's
