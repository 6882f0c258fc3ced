"""Arrays in oneDNN's blocked layout, in which float32 convolutions leave weights and outputs."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.training.parameter import is_tiled

from .models import assert_same, plainly, started, weights

# The nets run eagerly on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*is not hybridized")


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Turn tofu on so that blocks that are not hybridized run eagerly."""
    monkeypatch.setenv("TOFU_HYBRIDIZE", "0")


CHANNELS = 48  # oneDNN has blocks of 8 and 16; 2, 3 and 4 workers divide it


def make_net(dtype="float32"):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(
            nn.Conv2D(CHANNELS, 3, padding=1, activation="relu"),
            nn.BatchNorm(),
            nn.Conv2D(CHANNELS, 3, padding=1),
            nn.Dense(4),
        )
    started(net, hybrid=False)
    net.cast(dtype)
    return net


def images(dtype="float32", seed=1):
    random = np.random.RandomState(seed)
    return mx.nd.array(random.uniform(-1, 1, (12, 3, 8, 8)), dtype=dtype)


def step(net, trainer, dtype):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        loss = loss_of(net(images(dtype)), mx.nd.arange(12, dtype=dtype) % 4)
    loss.backward()
    trainer.step(12)
    return loss


def predict(net, dtype):
    net(images(dtype)).wait_to_read()


def summary(net, dtype):
    net.summary(images(dtype))


def eager_backward(net, dtype):
    """A backward pass of eager convolutions, which leaves gradients in the blocked layout, too."""
    with autograd.record():
        loss = (net(images(dtype)) ** 2).sum()
    loss.backward()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("before", [predict, summary, eager_backward])
def test_eager_calls_before_training(before, dtype, workers, capsys):
    def run():
        net = make_net(dtype)
        before(net, dtype)
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        losses = [step(net, trainer, dtype) for _ in range(3)]
        return losses, weights(net), is_tiled(net[0].weight)

    found, expected = run(), plainly(run)
    assert_same(found[:2], expected[:2])
    assert (found[2], expected[2]) == (True, False)


@pytest.mark.parametrize("mode", ["add", "write"])
def test_gradients_of_eager_calls_are_kept(mode, workers):
    def run():
        net = make_net()
        net(images())
        net.collect_params().setattr("grad_req", mode)
        eager_backward(net, "float32")
        net.hybridize()
        net(images())
        return [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_and_eager_calls_between_steps(dtype, workers):
    def run():
        net = make_net(dtype)
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        found = []
        for _ in range(3):
            found.append(step(net, trainer, dtype))
            found.append(net(images(dtype)))  # leaves tiles in the blocked layout
            # Plain MXNet's asnumpy() may read a mixture while a prediction reorders weights.
            found[-1].wait_to_read()
            found.append(net[0].weight.data().asnumpy()[1:5])
            net.hybridize(active=False)
            found.append(net(images(dtype)))
            net.hybridize()
        return found, weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("batch", [12, 7])
def test_inputs_in_the_blocked_layout(batch, workers):
    """An eager convolution, such as a frozen feature extractor, precedes a hybridized block."""

    def run():
        body = started(nn.Conv2D(CHANNELS, 3, in_channels=3, prefix="body_"), hybrid=False)
        head = started(nn.Conv2D(CHANNELS, 3, in_channels=CHANNELS, prefix="head_"))
        trainer = gluon.Trainer(head.collect_params(), "sgd", {"learning_rate": 0.1})
        losses = []
        for _ in range(3):
            features = body(images()[:batch])
            with autograd.record():
                loss = (head(features) ** 2).mean()
            loss.backward()
            trainer.step(1)
            losses.append(loss)
        return losses, weights(head)

    assert_same(run(), plainly(run))


def blocked_like(net):
    """A weight of another net after a prediction."""
    other = make_net()
    for parameter in other.collect_params().values():
        parameter.initialize(mx.init.Uniform(0.5), force_reinit=True)
    predict(other, "float32")
    return other[2].weight.data()


def test_setting_loading_and_untiling(two, tmp_path):
    def run():
        mx.random.seed(2)
        np.random.seed(2)
        net = make_net()
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        step(net, trainer, "float32")
        net[2].weight.set_data(blocked_like(net))
        losses = [step(net, trainer, "float32")]
        predict(net, "float32")
        net.save_parameters(str(tmp_path / "net"))
        net.load_parameters(str(tmp_path / "net"))
        losses.append(step(net, trainer, "float32"))
        predict(net, "float32")
        for parameter in net.collect_params().values():
            parameter.cast("float64")
        return losses, weights(net)

    assert_same(run(), plainly(run))


def test_disabling_after_a_prediction(two):
    net = make_net()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    step(net, trainer, "float32")
    before = weights(net)
    found = net(images())
    tofu.gluon.disable()
    assert_same(weights(net), before)
    assert_same(net(images()), found, rounded=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_setting_weights_of_any_rank_after_a_prediction(rank, workers):
    """MXNet itself cannot set those of Conv1D and Conv3D."""
    convolution = (nn.Conv1D, nn.Conv2D, nn.Conv3D)[rank - 1]
    net = nn.HybridSequential(prefix="net_")
    net.add(convolution(CHANNELS, 3, padding=1))
    started(net)
    x = mx.nd.array(np.random.RandomState(1).uniform(-1, 1, (12, CHANNELS, *(4,) * rank)))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for factor in (1, 2, 3):
        with autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        trainer.step(1)
        net(x).wait_to_read()
        weight = mx.nd.random.uniform(shape=net[0].weight.shape)
        net[0].weight.set_data(weight)
        np.testing.assert_array_equal(net[0].weight.data().asnumpy(), weight.asnumpy())
        before = net(x)
        net[0].weight.set_data(weight * factor)
        net[0].bias.set_data(net[0].bias.data() * factor)
        np.testing.assert_allclose(net(x).asnumpy(), factor * before.asnumpy(), atol=1e-3)


class Grows(gluon.HybridBlock):
    """Appends channels to its input, as DenseNet's layers do."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm()
        self.layer = nn.Conv2D(12, 3, padding=1)

    def hybrid_forward(self, F, x):
        return F.concat(x, self.layer(F.relu(self.norm(x))), dim=1)


@pytest.mark.parametrize("log", ["real"], indirect=True)
def test_parts_of_channels_that_begin_within_a_block(workers):
    """MXNet ends such a gradient of Concat with "could not construct a sub-memory"."""

    def run(dtype):
        net = nn.HybridSequential(prefix="net_")
        net.add(nn.Conv2D(24, 3, padding=1), Grows(), Grows(), nn.BatchNorm(), nn.Conv2D(8, 3))
        net.add(nn.Dense(4))
        net.initialize(mx.init.Constant(0.01))
        random = np.random.RandomState(1)
        net.cast(dtype)
        net(images(dtype))
        for parameter in net.collect_params(".*weight").values():
            values = random.uniform(-0.1, 0.1, parameter.shape).astype("float32")
            parameter.set_data(mx.nd.array(values, dtype=dtype))
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
        return [step(net, trainer, dtype) for _ in range(3)]

    for found, expected in zip(run("float32"), plainly(run, "float64")):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), 1e-4, 1e-5)
