"""The first call of a signature is compared without changing the script's results."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

from tofu.gluon.blocks import unhybridized
from tofu.gluon.session import messages, session

from . import fakes
from .models import assert_same, data, fit, plainly, started, train, weights
from .unhybridized import MARKS, Net, differs_from_symbols, net_with, tiled, trainer_of

pytestmark = MARKS


class Dropping(Net):
    """Drops units."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.drop = nn.Dropout(0.5)

    def hybrid_forward(self, F, x):
        return super().hybrid_forward(F, self.drop(x))


def recurring():
    net = nn.HybridSequential(prefix="recurring_")
    with net.name_scope():
        net.add(nn.HybridLambda(lambda F, x: x.reshape((0, 5, 2))))
        net.add(gluon.rnn.LSTM(8, 2, layout="NTC", dropout=0.5), nn.Dense(6))
    return net


NETS = {
    "dropout": lambda: Dropping(prefix="drop_"),
    "recurrent": recurring,
}


@pytest.mark.parametrize("log", ["real"], indirect=True)
@pytest.mark.parametrize("kind", NETS)
def test_comparing_draws_no_random_numbers(two, kind):
    def run(hybridize):
        net = NETS[kind]()
        started(net, hybrid=False)
        net(data())  # parameters are initialized
        if hybridize:
            net.hybridize()
        mx.random.seed(11)
        losses = fit(net, trainer_of(net))
        return losses, weights(net), nd.random.uniform(shape=(4,)), tiled(net)

    found = run(False)
    assert_same(found[:3], run(True)[:3])
    assert found[3]


def test_nets_that_draw_in_training_are_compared_in_predictions(on, monkeypatch):
    asked, run_code = [], unhybridized._First._run_code

    def noted(self, *, is_training):
        asked.append(is_training)
        return run_code(self, is_training=is_training)

    monkeypatch.setattr(unhybridized._First, "_run_code", noted)
    net = started(Dropping(prefix="drop_"), hybrid=False)
    with autograd.record():
        net(data())
    assert asked == [False]


def test_when_operators_draw(on):
    state = session.active().state
    for op, attrs, expected in (
        ("Dropout", {"p": "0.5"}, "in training"),
        ("Dropout", {"p": "0.0"}, "never"),
        ("Dropout", {"p": "0.5", "mode": "always"}, "always"),
        ("RNN", {"p": "0.2"}, "in training"),
        ("RNN", {}, "never"),
        ("LeakyReLU", {"act_type": "rrelu"}, "in training"),
        ("LeakyReLU", {"act_type": "leaky"}, "never"),
        ("Custom", {"op_type": "mine"}, "always"),
        ("_random_uniform", {}, "always"),
        ("_sample_normal", {}, "always"),
        ("_shuffle", {}, "always"),
        ("FullyConnected", {}, "never"),
        ("UpSampling", {}, "never"),
    ):
        assert unhybridized._draws(op, attrs, state) == expected, op


def test_predictions_are_compared_where_training_drops_units(on):
    class Wrong(Dropping):
        def hybrid_forward(self, F, x):
            return super().hybrid_forward(F, x) * (2 if F is mx.nd else 1)

    net = started(Wrong(prefix="wrong_"), hybrid=False)
    with autograd.record(), pytest.warns(messages.TofuWarning, match="output 0 differs"):
        net(data())


class Noisy(Net):
    """Adds noise, in predictions too."""

    wrong = False

    def hybrid_forward(self, F, x):
        noise = F.random.uniform(0, 1, shape=(1, 10))
        outputs = super().hybrid_forward(F, F.broadcast_add(x, noise))
        return F.concat(outputs, outputs) if self.wrong and F is mx.nd else outputs


def test_a_net_that_always_draws_runs_its_code_once(two):
    def run():
        net = started(Noisy(prefix="noisy_"), hybrid=False)
        mx.random.seed(3)
        trainer = trainer_of(net)
        with autograd.record():
            first = net(data())
        first.backward()
        trainer.step(12)
        drawn = nd.random.uniform(shape=(4,))
        after = tiled(net)
        with autograd.record():
            net(data())
        return [first, drawn], after, tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert not found[1] and found[2]  # partitioned from the second call on


def test_shapes_are_compared_where_code_always_draws(on):
    net = started(Noisy(prefix="noisy_"), hybrid=False)
    net.wrong = True
    with autograd.record(), pytest.warns(messages.TofuWarning, match=r"is \(12, 6\) float32 where"):
        found = net(data())
    assert found.shape == (12, 12)
    with autograd.record():
        assert net(data()).shape == (12, 12)


class Doubling(mx.operator.CustomOp):
    """Counts its calls."""

    calls = 0

    def forward(self, is_train, req, in_data, out_data, aux):
        Doubling.calls += 1
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("counted_doubling")
class DoublingProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=True)

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Doubling()


def test_operators_in_python_are_not_called_for_comparing(on):
    net = net_with(lambda net, F, hidden: F.Custom(hidden, op_type="counted_doubling"))
    net(data())
    mx.nd.waitall()
    Doubling.calls = 0
    with autograd.record():
        net(data())
    mx.nd.waitall()
    assert Doubling.calls == 1


def test_running_statistics_are_updated_once(on, monkeypatch):
    """On GPUs the forward pass updates them; the test makes the operator do so here."""
    real = nd.BatchNorm

    def batch_norm(x, gamma, beta, mean, variance, **options):
        if autograd.is_training() and not autograd.is_recording():
            mean[:] = mean * 0.5 + 1
        return real(x, gamma, beta, mean, variance, **options)

    def run():
        net = net_with()
        return train(net=net, steps=3)[:2]

    expected = plainly(run)
    monkeypatch.setattr(nd, "BatchNorm", batch_norm)
    assert_same(run(), expected)


def prediction_raises(net, F, hidden):
    assert autograd.is_training(), "the script never predicts"
    return hidden


def test_the_first_call_runs_no_code_of_predictions(two):
    """Its statistics have no value before: their shapes follow from the data."""

    def run():
        net = net_with(prediction_raises)
        trainer = trainer_of(net)
        for _ in range(2):
            with autograd.record():
                loss = (net(data()) ** 2).mean()
            loss.backward()
            trainer.step(1)
        return weights(net), tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert len(found[1]) == 8


def test_statistics_that_the_forward_pass_of_parts_updates(on):
    """On GPUs the forward pass updates them."""

    class Program(fakes.Program):
        def forward_tiles(self, inputs, *, is_train):
            if is_train:
                for tile in self._tiles("net_batchnorm0_running_mean"):
                    tile += 1
            return super().forward_tiles(inputs, is_train=is_train)

    with fakes.using(fakes.backend(), program=Program):
        net = net_with()
        for count in range(1, 4):
            with autograd.record():
                net(data())
            assert_same(net.norm.running_mean.data(), np.full(12, count))


def test_a_program_for_comparing_is_freed(on):
    net = started(Dropping(prefix="drop_"), hybrid=False)
    with autograd.record():
        net(data())
    (found,) = session.active().state.traces[net].traces
    pools = found.partitioned._pools.items()
    assert {(bool(s.gradients), len(pool._bound)) for s, pool in pools} == {(True, 1), (False, 0)}


def test_what_only_fits_in_parts_is_not_compared(on, monkeypatch):
    asked = []

    def run_code(self, *, is_training):
        asked.append(is_training)
        raise mx.MXNetError("cudaMalloc failed: out of memory")

    net = net_with(differs_from_symbols)
    net(data())
    monkeypatch.setattr(unhybridized._First, "_run_code", run_code)
    with autograd.record():
        net(data())
    assert asked == [True]
    assert len(tiled(net)) == 8
