"""Trainer on tiles: updates, states, errors and warnings."""

import pickle

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import ConfigError
from tofu.gluon.training.parameter import is_tiled
from tofu.gluon.updates.optimizer_probe import updates_elementwise

from .models import assert_same, batches, data, fit, make_net, plainly, started, train, weights

# pytest.warns lets all other warnings pass, from anywhere.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RATE = {"learning_rate": 0.05}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", True),
        ("adam", True),
        ("adagrad", True),
        ("rmsprop", True),
        ("ftrl", True),
        ("signum", True),
        ("lars", False),
        ("lamb", False),
        ("nadam", False),
        ("sgld", False),
    ],
)
def test_elementwise_optimizers_are_found_by_trying(name, expected):
    assert updates_elementwise(mx.optimizer.create(name, **RATE), mx.cpu(0)) is expected


@mx.optimizer.Optimizer.register
class Centered(mx.optimizer.SGD):
    """Subtracts the mean from every gradient; no list of names has this class."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.aggregate_num = 0

    def update(self, index, weight, grad, state):
        super().update(index, weight, grad - grad.mean(), state)

    update_multi_precision = update


def test_own_optimizers_are_tried_too():
    assert not updates_elementwise(Centered(), mx.cpu(0))
    assert updates_elementwise(mx.optimizer.SGD(lr_scheduler=lambda count: 0.0), mx.cpu(0))


@mx.optimizer.Optimizer.register
class CenteredAlong(mx.optimizer.SGD):
    """Subtracts the mean along one dimension from the gradients with a number of dimensions."""

    def __init__(self, dim, rank, **kwargs):
        super().__init__(**kwargs)
        self.aggregate_num, self.dim, self.rank = 0, dim, rank

    def update(self, index, weight, grad, state):
        if grad.ndim == self.rank:
            grad = grad - grad.mean(self.dim, keepdims=True)
        super().update(index, weight, grad, state)

    update_multi_precision = update


@pytest.mark.parametrize(
    ("rank", "dim"), [(rank, dim) for rank in range(1, 6) for dim in range(rank)]
)
def test_every_dimension_is_tried(rank, dim):
    assert not updates_elementwise(CenteredAlong(dim, rank), mx.cpu(0))


def test_an_optimizer_along_a_dimension_updates_whole_tensors(two):
    params = {"dim": 1, "rank": 2, **RATE}
    expected = plainly(train, "centeredalong", params)
    with pytest.warns(UserWarning, match="does not update every element"):
        found = train("centeredalong", params)
    assert_same(found[:2], expected[:2])


@pytest.mark.parametrize("name", ["nadam", "centered"])
def test_other_optimizers_update_whole_tensors(name, two):
    expected = plainly(train, name, RATE)
    with pytest.warns(UserWarning, match="does not update every element") as seen:
        found = train(name, RATE)
    assert_same(found[:2], expected[:2])
    assert len([w for w in seen if "every element" in str(w.message)]) == 1


def test_learning_rate_schedules(two):
    def run():
        schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.2)
        found = train("sgd", {"lr_scheduler": schedule})
        return found[:2], found[2].learning_rate, found[2].optimizer.num_update

    found, expected = run(), plainly(run)
    assert found[1:] == expected[1:]
    assert_same(found[0], expected[0])


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "lamb"])
def test_a_schedule_advances_at_the_same_weight_on_all_workers(name, two, monkeypatch):
    """Stale gradients let the numbers of updates differ, and a schedule counts the highest one."""

    def run():
        nets = [started(nn.Dense(4, in_units=10, prefix=f"net{i}_")) for i in range(2)]
        params = nets[0].collect_params()
        params.update(nets[1].collect_params())
        schedule = mx.lr_scheduler.FactorScheduler(2, 0.25, base_lr=0.1)
        trainer = gluon.Trainer(params, name, {"lr_scheduler": schedule})
        for chosen in [nets[1:], nets[1:], nets, nets, nets]:
            with autograd.record():
                loss = sum((net(data()) ** 2).sum() for net in chosen)
            loss.backward()
            trainer.step(4, ignore_stale_grad=True)
        return [weights(net) for net in nets]

    monkeypatch.setenv("MXNET_OPTIMIZER_AGGREGATION_SIZE", "1")
    assert_same(run(), plainly(run), rounded=name == "lamb")  # it adds up squares of tiles


def test_setting_the_learning_rate(two):
    def run():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", dict(RATE))
        fit(net, trainer)
        trainer.set_learning_rate(0.01)
        return fit(net, trainer), weights(net)

    assert_same(run(), plainly(run))


def test_a_trainer_made_after_tiling(two):
    def run():
        net = make_net()
        net(data())
        return train(net=net)[:2]

    assert_same(run(), plainly(run))


def test_reduce_and_update_apart(two):
    def run():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", dict(RATE), update_on_kvstore=False)
        for inputs, _ in batches():
            with autograd.record():
                loss = (net(inputs) ** 2).sum()
            loss.backward()
            trainer.allreduce_grads()
            trainer.update(len(inputs))
        return weights(net)

    assert_same(run(), plainly(run))


def test_a_local_kvstore_object(two):
    def run():
        net = make_net()
        trainer = gluon.Trainer(
            net.collect_params(), "adam", dict(RATE), kvstore=mx.kv.create("local")
        )
        return fit(net, trainer), weights(net)

    assert_same(run(), plainly(run))


def test_tiled_and_other_parameters_in_one_trainer(two):
    def run():
        net = make_net()
        free = gluon.Parameter("free", shape=(6,), init=mx.init.One())
        free.initialize()
        params = gluon.ParameterDict()
        params.update(net.collect_params())
        params.update({"free": free})
        trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.05, "momentum": 0.5})
        for inputs, _ in batches():
            with autograd.record():
                loss = ((net(inputs) * free.data()) ** 2).sum()
            loss.backward()
            trainer.step(len(inputs))
        return weights(net), free.data(), is_tiled(free)

    found, expected = run(), plainly(run)
    assert_same(found[:2], expected[:2])
    assert not found[2]


def two_heads():
    body = started(nn.Dense(8, in_units=10, prefix="body_"))
    heads = [started(nn.Dense(4, in_units=8, prefix=f"head{i}_")) for i in range(2)]
    params = body.collect_params()
    for head in heads:
        params.update(head.collect_params())
    return body, heads, gluon.Trainer(params, "sgd", dict(RATE))


def test_stale_gradients_raise_as_in_mxnet(two):
    body, heads, trainer = two_heads()
    heads[1](body(data()))
    with autograd.record():
        loss = (heads[0](body(data())) ** 2).sum()
    loss.backward()
    with pytest.raises(UserWarning, match=r"`head1_bias` on context cpu\(0\) has not been updated"):
        trainer.step(4)


@pytest.mark.parametrize("is_partly_tiled", [False, True])
@pytest.mark.parametrize("ignore_stale_grad", [False, True])
def test_a_step_without_values_raises_as_in_mxnet(ignore_stale_grad, is_partly_tiled, two):
    nets = [started(nn.Dense(3, in_units=10, prefix="a_")), started(nn.Dense(3, prefix="b_"))]
    trainer = gluon.Trainer({**nets[0].collect_params(), **nets[1].collect_params()}, "sgd")
    with autograd.record():
        loss = nets[0](data()).sum()
    if is_partly_tiled:
        loss.backward()
    for _ in range(2):
        with pytest.raises(gluon.parameter.DeferredInitializationError, match="'b_weight'"):
            trainer.step(1, ignore_stale_grad)
    with pytest.raises(gluon.parameter.DeferredInitializationError, match="'b_weight'"):
        trainer.allreduce_grads()


def test_ignoring_stale_gradients(two):
    def run():
        body, heads, trainer = two_heads()
        for step in range(4):
            with autograd.record():
                loss = (heads[step % 2](body(data())) ** 2).sum()
            loss.backward()
            trainer.step(4, ignore_stale_grad=True)
        return [weights(each) for each in (body, *heads)]

    assert_same(run(), plainly(run))


def states_of(path):
    states, optimizer = pickle.loads(path.read_bytes())
    return states, optimizer


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_state_files_are_those_of_plain_mxnet(name, two, tmp_path):
    params = {"learning_rate": 0.1} if name == "adam" else {"learning_rate": 0.1, "momentum": 0.9}

    def save(file):
        _, _, trainer = train(name, params)
        trainer.save_states(str(tmp_path / file))
        return states_of(tmp_path / file)

    found, expected = save("found"), plainly(save, "expected")
    assert list(found[0]) == list(expected[0])
    assert_same(found[0], expected[0])
    assert found[1]._all_index_update_counts == expected[1]._all_index_update_counts
    assert found[1].num_update == expected[1].num_update


@pytest.mark.parametrize("saved_by", ["tofu", "plain"])
@pytest.mark.parametrize("tiled_before", [False, True])
def test_training_goes_on_from_files(saved_by, tiled_before, two, tmp_path):
    model, states = str(tmp_path / "net"), str(tmp_path / "states")

    def save():
        net = make_net()
        _, _, trainer = train("adam", RATE, net)
        net.save_parameters(model)
        trainer.save_states(states)

    def go_on():
        net = make_net()
        if tiled_before:
            train("adam", RATE, net)
        net.load_parameters(model, ctx=mx.cpu(0))
        trainer = gluon.Trainer(net.collect_params(), "adam", dict(RATE))
        trainer.load_states(states)
        return fit(net, trainer), weights(net)

    if saved_by == "tofu":
        save()
    else:
        plainly(save)
    assert_same(go_on(), plainly(go_on))


def test_loading_states_in_the_middle(two, tmp_path):
    def run():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "adam", dict(RATE))
        fit(net, trainer)
        trainer.save_states(str(tmp_path / "states"))
        fit(net, trainer, 2)
        trainer.load_states(str(tmp_path / "states"))
        return fit(net, trainer), weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_saving_what_was_loaded(name, two, tmp_path):
    """A load between two updates replaces the states on the workers, with no step between."""
    params = {"learning_rate": 0.1} if name == "adam" else {"learning_rate": 0.1, "momentum": 0.9}
    first, second = tmp_path / "first", tmp_path / "second"
    net = make_net()
    trainer = gluon.Trainer(net.collect_params(), name, params)
    fit(net, trainer)
    trainer.save_states(str(first))
    fit(net, trainer, 2)
    trainer.load_states(str(first))
    trainer.save_states(str(second))
    (expected, before), (found, after) = states_of(first), states_of(second)
    assert list(found) == list(expected)
    assert_same(found, expected)
    assert after._all_index_update_counts == before._all_index_update_counts


def test_states_survive_disabling(two):
    def run(switch):
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "adam", dict(RATE))
        fit(net, trainer)
        switch()
        return fit(net, trainer), weights(net)

    found = run(tofu.gluon.disable)
    assert_same(found, run(lambda: None))


class Rows(gluon.Block):
    """A row-sparse weight, used eagerly, and a layer that may be partitioned."""

    def __init__(self):
        super().__init__(prefix="rows_")
        with self.name_scope():
            self.rows = self.params.get(
                "rows", stype="row_sparse", shape=(6, 8), grad_stype="row_sparse"
            )
            self.dense = nn.Dense(4, in_units=16)

    def forward(self, x):
        rows = self.rows.row_sparse_data(x)
        return self.dense(mx.nd.Embedding(x, rows, input_dim=6, output_dim=8, sparse_grad=True))


def sparse_weight(between=None, hybrid=True, optimizer="sgd"):
    """Losses and weights of a net whose trainer needs a kvstore for one weight."""
    net = started(Rows(), hybrid)
    params = {"learning_rate": 0.1, "momentum": 0.9} if optimizer == "sgd" else dict(RATE)
    trainer = gluon.Trainer(net.collect_params(), optimizer, params)
    losses = []
    for step in range(6):
        with autograd.record():
            loss = (net(mx.nd.array([[0, step % 3], [1, 2], [4, 4], [5, 0]])) ** 2).sum()
        loss.backward()
        trainer.step(4)
        losses.append(loss)
        if between is not None and step == 2:
            between(trainer)
    rows = net.rows.row_sparse_data(mx.nd.arange(6)).asnumpy()
    return losses, rows, weights(net.dense)


@pytest.mark.filterwarnings("ignore:.*to have the rest partitioned")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_sparse_weights_beside_tiled_ones(two, hybrid, optimizer):
    found = sparse_weight(hybrid=hybrid, optimizer=optimizer)
    assert_same(found, plainly(sparse_weight, hybrid=hybrid, optimizer=optimizer))


@pytest.mark.filterwarnings("ignore:.*to have the rest partitioned")
@pytest.mark.filterwarnings("ignore:.*unclosed file")  # MXNet's kvstore leaves it open
@pytest.mark.filterwarnings("ignore:Exception ignored in")
def test_states_of_sparse_and_tiled_weights(two, tmp_path):
    path = str(tmp_path / "states")

    def save_and_load(trainer):
        trainer.save_states(path)
        trainer.load_states(path)

    expected = plainly(sparse_weight)
    assert_same(sparse_weight(save_and_load), expected)
    assert_same(plainly(sparse_weight, lambda trainer: trainer.load_states(path)), expected)


@pytest.mark.filterwarnings("ignore:.*to have the rest partitioned")
def test_disabling_with_sparse_weights(two):
    expected = plainly(sparse_weight)
    assert_same(sparse_weight(lambda _: tofu.gluon.disable()), expected)


@pytest.mark.filterwarnings("ignore:.*to have the rest partitioned")
def test_a_kvstore_from_before_is_refused(fake):
    def switch_on(_trainer):
        tofu.gluon.enable(workers=2, device="cpu", log="quiet")

    with pytest.raises(ConfigError, match=r"filled before tofu\.enable.*rows_dense0"):
        sparse_weight(switch_on)
    tofu.gluon.disable()


class Product(gluon.HybridBlock):
    """A product in half precision that MXNet's CPU operators can differentiate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get("weight", shape=(4, 8), dtype="float16")

    def hybrid_forward(self, F, x, weight):
        return x * weight


def test_multi_precision(two):
    """float16 alone would round the steps away. The net has no sums, so all bits agree."""

    def run(multi_precision=True):
        net = started(Product(prefix="half_"))
        params = {"learning_rate": 1e-4, "momentum": 0.9, "multi_precision": multi_precision}
        trainer = gluon.Trainer(net.collect_params(), "sgd", params)
        for _ in range(10):
            with autograd.record():
                loss = (net(mx.nd.ones((4, 8), dtype="float16")) ** 2).sum()
            loss.backward()
            trainer.step(4)
        return weights(net)["half_weight"]

    found, expected = run(), plainly(run)
    assert found.dtype == np.float16
    assert found.tobytes() == expected.tobytes()
    with pytest.warns(UserWarning, match="Accumulating with float16"):
        assert found.tobytes() != plainly(run, multi_precision=False).tobytes()


class Scaler:
    """Like AMP's scaler: checks whether all gradients are finite."""

    def __init__(self):
        self.seen = []

    def has_overflow(self, params):
        values = [p._grad[0].asnumpy() for p in params if p._grad is not None]
        self.seen.append(not all(np.isfinite(value).all() for value in values))
        return self.seen[-1]


def test_overflow_on_any_worker_skips_the_step(two):
    net = make_net()
    trainer = gluon.Trainer(net.collect_params(), "sgd", dict(RATE))
    fit(net, trainer, 2)
    trainer._amp_loss_scaler = Scaler()
    before = weights(net)
    with autograd.record():
        (net(data()) ** 2).sum().backward()
    net[3].weight._tofu.gradients.keep()[1][:] = np.inf
    trainer.step(1)
    assert_same({n: v for n, v in weights(net).items() if "running" not in n},
                {n: v for n, v in before.items() if "running" not in n})  # fmt: skip
    net[3].weight._tofu.gradients.keep()[1][:] = 0
    trainer.step(1)
    assert trainer._amp_loss_scaler.seen == [True, False]
