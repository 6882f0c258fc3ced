"""LAMB, LARS and LBSGD: norms of whole tensors, and no tensor gathered."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.training.parameter import TileState, is_tiled
from tofu.gluon.updates.norm_updates import Spread, rule_for

from .models import started, weights

# The weights of the second layer divide by no number of workers.
pytestmark = pytest.mark.filterwarnings("ignore:.*no dimension of")

SETTINGS = {
    "lamb": ("lamb", {"wd": 0.01}),
    "lamb with bounds": (
        "lamb",
        {"lower_bound": 0.3, "upper_bound": 0.7, "clip_gradient": 0.5, "bias_correction": False},
    ),
    "lars": ("lars", {"eta": 0.5, "wd": 0.01}),
    "lbsgd": ("lbsgd", {"warmup_strategy": "lars", "momentum": 0.9, "wd": 0.01}),
    "lars with momentum": ("lars", {"eta": 0.5, "momentum": 0.9, "clip_gradient": 0.5}),
}


# MXNet adds up gradients that the next backward pass overwrites, so that nets differ.
LARGE = {"lbsgd of large batches": ("lbsgd", {"batch_scale": 2, "clip_gradient": 0.5})}


class Halving(mx.lr_scheduler.LRScheduler):
    """A rate that changes in every step, for which LARS corrects its momentum."""

    def __call__(self, num_update):
        return self.base_lr / (1 + num_update)


def make(dtype="float32"):
    net = nn.HybridSequential(prefix="norms_")
    with net.name_scope():
        net.add(nn.Dense(13, activation="tanh", in_units=12), nn.Dense(7, in_units=13))
        net.add(nn.LayerNorm(in_channels=7))
    net = started(net)
    net.cast(dtype)
    return net


def batch(dtype):
    return mx.nd.array(np.random.RandomState(2).uniform(-1, 1, (12, 12)), dtype=dtype)


def trainer_of(net, name):
    optimizer, options = SETTINGS[name]
    schedule = Halving(base_lr=0.1)
    made = mx.optimizer.create(optimizer, learning_rate=0.1, lr_scheduler=schedule, **options)
    return gluon.Trainer(net.collect_params(), made)


def steps(net, trainer, count=4):
    for _ in range(count):
        with autograd.record():
            loss = (net(batch(net[0].weight.dtype)) ** 3).sum()
        loss.backward()
        trainer.step(12)


def train(name, dtype="float32"):
    net = make(dtype)
    steps(net, trainer_of(net, name))
    return weights(net)


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for each, value in expected.items():
        np.testing.assert_allclose(found[each], value, rtol=tolerance, atol=tolerance, err_msg=each)


@pytest.mark.parametrize("workers", [2, 3, 4])
# MXNet sums squares in single precision, whatever the tensor's precision.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 2e-6)])
@pytest.mark.parametrize("name", SETTINGS)
def test_weights(name, dtype, tolerance, workers):
    expected = train(name, dtype)
    tofu.gluon.enable(workers=workers, device="cpu", log="quiet")
    found = train(name, dtype)
    tofu.gluon.disable()
    assert_close(found, expected, tolerance)


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_is_gathered(name, two, monkeypatch):
    net = make()
    trainer = trainer_of(net, name)
    steps(net, trainer, 1)
    assert all(map(is_tiled, net.collect_params().values()))
    with autograd.record():
        loss = (net(batch("float32")) ** 3).sum()
    loss.backward()
    monkeypatch.setattr(TileState, "gather", None)
    monkeypatch.setattr(TileState, "scatter", None)
    trainer.step(12)


@pytest.mark.parametrize("name", SETTINGS)
def test_states_are_those_of_plain_mxnet(name, two, tmp_path):
    """Each of tofu and plain MXNet loads the states that the other has saved."""

    def save(path):
        net = make()
        trainer = trainer_of(net, name)
        steps(net, trainer, 2)
        net.save_parameters(f"{path}.params")
        trainer.save_states(f"{path}.states")

    def go_on(path):
        net = make()
        trainer = trainer_of(net, name)
        net.load_parameters(f"{path}.params")
        trainer.load_states(f"{path}.states")
        steps(net, trainer, 2)
        return weights(net)

    own, plain = str(tmp_path / "own"), str(tmp_path / "plain")
    save(own)
    by_plain = go_on(own)
    tofu.gluon.disable()
    save(plain)
    expected = go_on(plain)
    assert_close(go_on(own), expected, 2e-5)
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    assert_close(by_plain, expected, 2e-5)
    assert_close(go_on(plain), expected, 2e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float32", 2e-6)])
@pytest.mark.parametrize("name", [*SETTINGS, *LARGE])
def test_tiles_are_updated_as_the_whole(name, dtype, tolerance):
    """Includes half precision with master copies, which MXNet does not train on CPUs."""
    optimizer, options = {**SETTINGS, **LARGE}[name]
    random = np.random.RandomState(0)
    weight, gradient = (random.uniform(-1, 1, (4, 6)).astype(dtype) for _ in range(2))

    def updated(pieces, update):
        made = mx.optimizer.create(optimizer, learning_rate=0.1, multi_precision=True, **options)
        weights = [mx.nd.array(weight[piece], dtype=dtype) for piece in pieces]
        gradients = [mx.nd.array(gradient[piece], dtype=dtype) for piece in pieces]
        states = [made.create_state_multi_precision(0, each) for each in weights]
        for _ in range(3):
            update(made, weights, gradients, states)
        return np.concatenate([each.asnumpy() for each in weights])

    def by_rule(made, weights, gradients, states):
        spread = Spread(0, weights, gradients, states, range(len(weights)))
        rule_for(made)(made, [spread], made._update_count)

    def by_mxnet(made, *lists):
        if made.aggregate_num:
            made.update_multi_precision([0], *lists)
        else:
            made.update_multi_precision(0, *(each[0] for each in lists))

    found = updated([slice(0, 2), slice(2, 4)], by_rule)
    np.testing.assert_allclose(
        found, updated([slice(None)], by_mxnet), rtol=tolerance, atol=tolerance
    )
    assert found.dtype == np.dtype(dtype)


def test_heirs_are_not_taken_for_their_parents():
    """A subclass that changes the update runs on whole tensors."""
    heir = type("Heir", (mx.optimizer.LAMB,), {})
    assert rule_for(mx.optimizer.LAMB()) is not None
    assert rule_for(heir()) is None
