"""Small models of the three kinds that users train, and a plain Gluon loop for them.

This module has no tofu code: the same loop runs serially and partitioned.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

STEPS = 20


class Residual(nn.HybridBlock):
    """Two 3x3 convolutions with BatchNorm around an identity shortcut."""

    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(
                nn.Conv2D(channels, 3, padding=1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.Conv2D(channels, 3, padding=1, use_bias=False),
                nn.BatchNorm(),
            )

    def hybrid_forward(self, F, x):
        return F.relu(x + self.body(x))


class LanguageModel(nn.HybridBlock):
    """Embedding, an unrolled LSTM, and a decoder over all time steps."""

    def __init__(self, vocabulary, hidden, steps, **kwargs):
        super().__init__(**kwargs)
        self._steps = steps
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, hidden)
            self.cell = rnn.LSTMCell(hidden, input_size=hidden)
            self.decoder = nn.Dense(vocabulary, flatten=False)

    def hybrid_forward(self, F, tokens):
        embedded = self.embedding(tokens)
        # A state of the data's own dtype: LSTMCell's default is always float32.
        state = F.zeros_like(F.sum(embedded, axis=1))
        outputs, _ = self.cell.unroll(
            self._steps, embedded, begin_state=[state, state], layout="NTC", merge_outputs=True
        )
        return self.decoder(outputs)


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(48, activation="relu"), nn.Dense(24, activation="tanh"), nn.Dense(12))
    return net


def residual_cnn():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(24, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        Residual(24),
        nn.MaxPool2D(2),
        Residual(24),
        nn.GlobalAvgPool2D(),
        nn.Dense(12),
    )
    return net


def lstm():
    return LanguageModel(vocabulary=48, hidden=24, steps=5)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the shape of its input, and the settings of its training."""

    net: Callable[[], nn.HybridBlock]
    data_shape: tuple[int, ...]
    labels: int
    optimizer: str
    optimizer_params: dict
    tokens: bool = False


CASES = {
    "mlp": Case(mlp, (24, 36), 12, "adam", {"learning_rate": 0.003}),
    "residual_cnn": Case(
        residual_cnn, (24, 4, 8, 8), 12, "sgd", {"learning_rate": 0.02, "momentum": 0.9}
    ),
    "lstm": Case(lstm, (24, 5), 48, "sgd", {"learning_rate": 0.1}, tokens=True),
}


def batch(case, dtype, seed):
    """One batch of random inputs and labels, the same for equal seeds."""
    random = np.random.RandomState(seed)
    if case.tokens:
        tokens = random.randint(0, case.labels, case.data_shape)
        return mx.nd.array(tokens, dtype=dtype), mx.nd.array(np.roll(tokens, -1, 1), dtype=dtype)
    data = random.normal(size=case.data_shape)
    labels = random.randint(0, case.labels, case.data_shape[0])
    return mx.nd.array(data, dtype=dtype), mx.nd.array(labels, dtype=dtype)


def train(case, dtype, steps=STEPS, batch_of=batch):
    """Train from a fixed start; return the losses and the final parameters as NumPy arrays."""
    mx.random.seed(7)
    np.random.seed(7)
    net = case.net()
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), case.optimizer, dict(case.optimizer_params))
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step in range(steps):
        data, labels = batch_of(case, dtype, step % 4)
        with autograd.record():
            loss = loss_of(net(data), labels)
        loss.backward()
        trainer.step(data.shape[0])
        losses.append(float(loss.mean().asscalar()))
    weights = {
        name: parameter.data().asnumpy()
        for name, parameter in net._collect_params_with_prefix().items()
    }
    return np.array(losses), weights
