"""Blocks of composite operators train partitioned as they do serially."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import tofu
from tofu.gluon.session.session import looking

STEPS = 4


@pytest.fixture
def switched_on():
    """Turn tofu on for a number of CPU workers, and off again afterwards."""

    def enable(workers):
        tofu.enable(workers=workers, device="cpu")

    yield enable
    tofu.disable()


class Tagger(nn.HybridBlock):
    """Predicts a class for every step of a sequence, with a fused recurrent layer."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layer = layer()
            self.classes = nn.Dense(6, flatten=False)

    def hybrid_forward(self, F, x):
        return self.classes(self.layer(x))


LAYERS = {
    "lstm": lambda: rnn.LSTM(12, num_layers=2, input_size=6),
    "gru both ways": lambda: rnn.GRU(12, bidirectional=True, input_size=6, layout="NTC"),
    "rnn": lambda: rnn.RNN(12, input_size=6),
}


def train(layer):
    mx.random.seed(3)
    np.random.seed(3)
    net = Tagger(layer)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    loss_of, losses = gluon.loss.SoftmaxCELoss(), []
    for step in range(STEPS):
        draw = np.random.RandomState(step)
        x = mx.nd.array(draw.normal(size=(6, 12, 6)))
        y = mx.nd.array(draw.randint(0, 6, (6, 12)))
        with autograd.record():
            loss = loss_of(net(x), y).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    return losses


class Wide(nn.HybridBlock):
    """One row of features, so only the features can be divided."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            self.layers.add(nn.Dense(24), nn.LayerNorm(), nn.Activation("relu"), nn.Dense(12))

    def hybrid_forward(self, F, x, label):
        return -F.pick(F.log_softmax(self.layers(x)), label)


class Classes(nn.HybridBlock):
    """Class probabilities of one instance, from an operator that defines its own gradient."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            self.layers.add(nn.Dense(24), nn.Activation("tanh"), nn.Dense(12))

    def hybrid_forward(self, F, x, label):
        return F.SoftmaxOutput(self.layers(x), label, smooth_alpha=0.1, normalization="valid")


class Words(nn.HybridBlock):
    """An embedding with many rows, which do not divide, and a column that cannot be divided."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words, self.classes = nn.Embedding(23, 1), nn.Dense(12, flatten=False)

    def hybrid_forward(self, F, x, label):
        found = self.words(F.floor(F.abs(x) * 8)).sum(axis=1)
        return -F.pick(F.log_softmax(self.classes(found)), label)


class Grouped(nn.HybridBlock):
    """Convolutions of six groups on a single image."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            self.layers.add(
                nn.Conv2D(24, 3, groups=6, in_channels=12, activation="tanh"),
                nn.Conv2D(12, 3, groups=6, in_channels=24, use_bias=False),
            )

    def hybrid_forward(self, F, x, label):
        image = F.reshape(F.tile(x, (49,)), (1, 12, 7, 7))
        return F.sum(F.square(F.mean(self.layers(image), axis=(2, 3)))) + 0 * label


def train_one(block):
    mx.random.seed(3)
    np.random.seed(3)
    net = block()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for step in range(STEPS):
        draw = np.random.RandomState(step)
        x, y = mx.nd.array(draw.normal(size=(1, 12))), mx.nd.array(draw.randint(0, 12, 1))
        with autograd.record():
            loss = net(x, y)
        loss.backward()
        trainer.step(1)
        losses.append(loss.asnumpy())
    return losses


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("block", [Wide, Classes, Words, Grouped])
def test_a_batch_of_one_is_split_within_composites(block, workers, switched_on, capsys):
    expected = train_one(block)
    switched_on(workers)
    losses = train_one(block)
    assert f"over {workers} workers" in "".join(capsys.readouterr())
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-7)


def test_rows_of_an_embedding_that_do_not_divide(switched_on):
    made = []
    switched_on(5)
    with looking(compiled=made.append):
        train_one(Words)
    (rows,) = (v.layout.boxes for name, v in made[0].variables.items() if "embedding" in name)
    assert [box[0] for box in rows] == [(0, 5), (5, 10), (10, 15), (15, 19), (19, 23)]


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_fused_recurrent_layers(name, workers, switched_on, capsys):
    expected = train(LAYERS[name])
    switched_on(workers)
    losses = train(LAYERS[name])
    assert f"over {workers} workers" in "".join(capsys.readouterr())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
