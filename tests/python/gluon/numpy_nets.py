"""Nets on NumPy arrays, as textbooks write them: each with a loss and batches.

All of them run inside of ``npx.set_np()`` (the fixture ``numpy`` of test_np).
"""

import functools
import math

from mxnet import gluon, np
from mxnet.gluon import nn, rnn

__all__ = ["NETS"]

BATCH, CLASSES, WORDS, STEPS, HIDDEN = 12, 6, 10, 4, 8


def uniform(*shape, dtype):
    return np.random.uniform(-1, 1, size=shape).astype(dtype)


def integers(*shape, below):
    return np.random.randint(0, below, size=shape)


def sequential(*blocks):
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


class Residual(gluon.HybridBlock):
    """Two convolutions and a shortcut."""

    def __init__(self, channels, use_1x1conv=False, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(channels, kernel_size=3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(channels, kernel_size=3, padding=1)
        self.conv3 = None
        if use_1x1conv:
            self.conv3 = nn.Conv2D(channels, kernel_size=1, strides=strides)
        self.bn1, self.bn2 = nn.BatchNorm(), nn.BatchNorm()

    def hybrid_forward(self, F, x):
        y = F.npx.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.conv3:
            x = self.conv3(x)
        return F.npx.relu(y + x)


class Inception(gluon.HybridBlock):
    """Paths side by side, joined along the channels."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.p1 = nn.Conv2D(4, kernel_size=1, activation="relu")
        self.p2 = nn.Conv2D(4, kernel_size=3, padding=1, activation="relu")
        self.p3 = nn.MaxPool2D(pool_size=3, strides=1, padding=1)

    def hybrid_forward(self, F, x):
        return F.np.concatenate((self.p1(x), self.p2(x), self.p3(x)), axis=1)


class RNNModel(gluon.HybridBlock):
    """A character model: one-hot, a recurrent layer, and scores of the next character."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.rnn, self.dense, self.dtype = layer, nn.Dense(WORDS), "float32"

    def cast(self, dtype):
        self.dtype = dtype
        super().cast(dtype)

    def hybrid_forward(self, F, inputs, *state):
        x = F.npx.one_hot(inputs.T, WORDS, dtype=self.dtype)
        y, state = self.rnn(x, list(state))
        return [self.dense(F.np.reshape(y, (-1, HIDDEN))), *state]


def masked_softmax(F, x, lengths):
    """A softmax over the second dimension, up to the length of each sequence."""
    masked = F.npx.sequence_mask(x, lengths, True, value=-1e6, axis=1)
    return F.npx.softmax(masked, axis=1)


class MultiHeadAttention(gluon.HybridBlock):
    """Scaled dot products of several heads."""

    def __init__(self, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.Dense(HIDDEN, use_bias=False, flatten=False) for _ in range(4)
        )

    def split(self, F, x):
        """From (batch, items, hidden) to (batch * heads, items, hidden / heads)."""
        x = F.npx.reshape(x, (-2, -2, self.heads, -1))
        return F.npx.reshape(F.np.transpose(x, axes=(0, 2, 1, 3)), (-5, -2, -1))

    def hybrid_forward(self, F, x, lengths):
        queries, keys, values = (self.split(F, W(x)) for W in (self.W_q, self.W_k, self.W_v))
        scores = F.npx.batch_dot(queries, keys, transpose_b=True) / math.sqrt(HIDDEN / self.heads)
        lengths = F.np.repeat(lengths, self.heads, axis=0)
        weights = F.np.swapaxes(masked_softmax(F, F.np.swapaxes(scores, 1, 2), lengths), 1, 2)
        output = F.npx.reshape(F.npx.batch_dot(weights, values), (-6, -1, self.heads, -2, -2))
        output = F.npx.reshape(F.np.transpose(output, axes=(0, 2, 1, 3)), (-2, -2, -1))
        return self.W_o(output)


class EncoderBlock(gluon.HybridBlock):
    """Attention and a feed-forward net, each with a shortcut and a norm."""

    def __init__(self, heads, **kwargs):
        super().__init__(**kwargs)
        self.attention = MultiHeadAttention(heads)
        self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
        self.ffn = sequential(
            nn.Dense(2 * HIDDEN, flatten=False, activation="relu"), nn.Dense(HIDDEN, flatten=False)
        )

    def hybrid_forward(self, F, x, lengths):
        y = self.norm1(x + self.attention(x, lengths))
        return self.norm2(y + self.ffn(y))


class TransformerEncoder(gluon.HybridBlock):
    """Embedding, positions, blocks, and scores of the classes from the first item."""

    def __init__(self, layers=2, heads=2, **kwargs):
        super().__init__(**kwargs)
        self.embedding, self.dense = nn.Embedding(WORDS, HIDDEN), nn.Dense(CLASSES)
        self.positions = self.params.get("positions", shape=(1, STEPS, HIDDEN))
        self.layers = [EncoderBlock(heads) for _ in range(layers)]
        for layer in self.layers:
            self.register_child(layer)

    def hybrid_forward(self, F, tokens, lengths, positions):
        x = self.embedding(tokens) * math.sqrt(HIDDEN) + positions
        for layer in self.layers:
            x = layer(x, lengths)
        return self.dense(x[:, 0, :])


class MatrixFactorization(gluon.HybridBlock):
    """Products of the vectors of users and items, with a bias for each."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.P, self.Q = nn.Embedding(8, 4), nn.Embedding(6, 4)
        self.user_bias, self.item_bias = nn.Embedding(8, 1), nn.Embedding(6, 1)

    def hybrid_forward(self, F, users, items):
        outputs = (self.P(users) * self.Q(items)).sum(axis=1)
        outputs = outputs + F.np.squeeze(self.user_bias(users), axis=1)
        return outputs + F.np.squeeze(self.item_bias(items), axis=1)


class SkipGram(gluon.HybridBlock):
    """Scores of contexts for centers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.centers, self.contexts = nn.Embedding(WORDS, 4), nn.Embedding(WORDS, 4)

    def hybrid_forward(self, F, center, contexts):
        v, u = self.centers(center), self.contexts(contexts)
        return F.npx.batch_dot(v, F.np.swapaxes(u, 1, 2))


class ScalarLoss(gluon.HybridBlock):
    """A net that returns its mean loss, a number without dimensions, and its scores."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = nn.Dense(CLASSES)
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(1,), init="ones")

    def hybrid_forward(self, F, x, label, scale):
        scores = self.dense(x) * scale
        log_likelihood = F.npx.pick(F.npx.log_softmax(scores, axis=-1), label, axis=-1)
        return -F.np.mean(log_likelihood), scores

    @staticmethod
    def loss(found, _label):
        """The loss that the net has already computed."""
        return found[0]


def first(loss):
    """A loss of the first output only, for nets that also return states."""
    return lambda found, label: loss(found[0] if isinstance(found, (tuple, list)) else found, label)


def points(dtype):
    features = uniform(BATCH, 5, dtype=dtype)
    return (features,), np.dot(features, np.arange(5, dtype=dtype)).reshape(-1, 1)


def images(dtype):
    return (uniform(BATCH, 1, 8, 8, dtype=dtype),), integers(BATCH, below=CLASSES)


def labelled(dtype):
    features, label = uniform(BATCH, 5, dtype=dtype), integers(BATCH, below=CLASSES)
    return (features, label), label


def sequences(dtype, states=1):
    tokens = integers(BATCH, STEPS, below=WORDS)
    begin = [np.zeros((1, BATCH, HIDDEN), dtype=dtype) for _ in range(states)]
    return (tokens, *begin), tokens.T.reshape(-1)


def sentences(_dtype):
    lengths = 1 + integers(BATCH, below=STEPS).astype("float32")
    return (integers(BATCH, STEPS, below=WORDS), lengths), integers(BATCH, below=CLASSES)


def ratings(dtype):
    pair = integers(BATCH, below=8), integers(BATCH, below=6)
    return pair, uniform(BATCH, dtype=dtype)


def windows(dtype):
    pair = integers(BATCH, 1, below=WORDS), integers(BATCH, 3, below=WORDS)
    return pair, (uniform(BATCH, 1, 3, dtype=dtype) > 0).astype(dtype)


def lenet():
    return sequential(
        nn.Conv2D(channels=6, kernel_size=3, padding=1, activation="sigmoid"),
        nn.AvgPool2D(pool_size=2, strides=2),
        nn.Conv2D(channels=8, kernel_size=3, activation="sigmoid"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Dense(12, activation="sigmoid"),
        nn.Dense(CLASSES),
    )


def resnet():
    return sequential(
        nn.Conv2D(4, kernel_size=3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        Residual(4),
        Residual(8, use_1x1conv=True, strides=2),
        nn.GlobalAvgPool2D(),
        nn.Dense(CLASSES),
    )


def mlp():
    return sequential(
        nn.Flatten(), nn.Dense(16, activation="relu"), nn.Dropout(0.0), nn.Dense(CLASSES)
    )


def inception():
    return sequential(Inception(), Inception(), nn.GlobalAvgPool2D(), nn.Dense(CLASSES))


cross_entropy = first(gluon.loss.SoftmaxCrossEntropyLoss())
squares = first(gluon.loss.L2Loss())

# The net, its inputs and labels for a dtype, and the loss.
NETS = {
    "linear regression": (lambda: sequential(nn.Dense(1)), points, squares),
    "softmax regression": (lambda: sequential(nn.Dense(CLASSES)), images, cross_entropy),
    "mlp": (mlp, images, cross_entropy),
    "lenet": (lenet, images, cross_entropy),
    "resnet": (resnet, images, cross_entropy),
    "inception": (inception, images, cross_entropy),
    "rnn": (lambda: RNNModel(rnn.RNN(HIDDEN, activation="tanh")), sequences, cross_entropy),
    "gru": (lambda: RNNModel(rnn.GRU(HIDDEN)), sequences, cross_entropy),
    "lstm": (
        lambda: RNNModel(rnn.LSTM(HIDDEN)),
        functools.partial(sequences, states=2),
        cross_entropy,
    ),
    "transformer": (TransformerEncoder, sentences, cross_entropy),
    "matrix factorization": (MatrixFactorization, ratings, squares),
    "skip-gram": (SkipGram, windows, first(gluon.loss.SigmoidBinaryCrossEntropyLoss())),
    "scalar loss": (ScalarLoss, labelled, ScalarLoss.loss),
}
