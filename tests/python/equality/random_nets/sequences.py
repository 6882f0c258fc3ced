"""Kinds of layers on sequences and words: recurrent layers, attention, embeddings."""

from __future__ import annotations

from mxnet.gluon import nn, rnn

from .kinds import HIDDEN, WIDTHS, Function, Weighted, choose, divisors, kind

FUSED = {"rnn": rnn.RNN, "lstm": rnn.LSTM, "gru": rnn.GRU}
CELLS = {"rnn": rnn.RNNCell, "lstm": rnn.LSTMCell, "gru": rnn.GRUCell}
STATES = {"rnn": 1, "lstm": 2, "gru": 1}


@kind("tokens", "sequence", lambda rng, shape, words: {"words": words, **choose(rng, units=WIDTHS)})
def embedding(words, units):
    return nn.Embedding(words, units)


def draw_fused(rng, shape):
    found = choose(
        rng, cell=tuple(FUSED), hidden=HIDDEN, layers=(1, 1, 2), bidirectional=(False, False, True)
    )
    return {"length": shape[1], **found}


class Fused(nn.HybridBlock):
    """A fused recurrent layer that starts from zeros of the data's own dtype.

    Attributes:
        unfused: cells with the same parameters, to use instead, or None. In float64, without
            oneDNN, MXNet's own gradients of a fused layer are wrong: finite differences differ.
    """

    def __init__(self, length, cell, hidden, layers, bidirectional):
        super().__init__()
        self._length = length
        self.layer = FUSED[cell](hidden, layers, layout="NTC", bidirectional=bidirectional)
        self._states, self._hidden = STATES[cell], hidden
        self._layers, self._sides = layers, 2 if bidirectional else 1
        self.unfused = None

    def unfuse(self):
        """Use cells instead of the fused layer."""
        self.unfused = (self.layer._unfuse(),)  # in a tuple, it is no child of its own

    def hybrid_forward(self, F, x):
        zero = F.sum(F.zeros_like(x), axis=(1, 2))
        if self.unfused:
            (cells,) = self.unfused
            state = F.broadcast_axis(F.expand_dims(zero, 1), axis=1, size=self._hidden)
            states = [state] * (self._states * self._layers * self._sides)
            return cells.unroll(
                self._length, x, begin_state=states, layout="NTC", merge_outputs=True
            )[0]
        depth = self._layers * self._sides
        state = F.broadcast_axis(
            F.reshape(zero, (1, -1, 1)), axis=(0, 2), size=(depth, self._hidden)
        )
        return self.layer(x, [state] * self._states)[0]


@kind("sequence", "sequence", draw_fused, weight=4)
def fused(**options):
    return Fused(**options)


def draw_unrolled(rng, shape):
    if shape[1] > 6:
        return None
    return {
        "length": shape[1],
        **choose(rng, cell=tuple(CELLS), hidden=HIDDEN, merge=(True, False)),
        **choose(rng, wrap=("", "", "stacked", "bidirectional", "residual", "zoneout")),
    }


@kind("sequence", "sequence", draw_unrolled, weight=3)
def unrolled(length, cell, hidden, merge, wrap):
    def one():
        return CELLS[cell](hidden)

    made, count = one(), STATES[cell]
    if wrap == "bidirectional":
        made, count = rnn.BidirectionalCell(made, one()), 2 * count
    elif wrap == "zoneout":
        made = rnn.ZoneoutCell(made, 0.0, 0.0)
    elif wrap in ("stacked", "residual"):
        second = rnn.ResidualCell(one()) if wrap == "residual" else one()
        made, first = rnn.HybridSequentialRNNCell(), made
        made.add(first)
        made.add(second)
        count *= 2

    def run(F, x, cell):
        zero = F.sum(F.zeros_like(x), axis=(1, 2), keepdims=False)
        state = F.broadcast_axis(F.expand_dims(zero, 1), axis=1, size=hidden)
        outputs, _ = cell.unroll(
            length, x, begin_state=[state] * count, layout="NTC", merge_outputs=merge
        )
        return outputs if merge else F.stack(*outputs, axis=1)

    return Function(run, cell=made)


def _attend(F, query, key, value, heads, width):
    def split(x):
        x = F.transpose(F.reshape(x, (0, 0, heads, width)), axes=(0, 2, 1, 3))
        return F.reshape(x, (-3, 0, 0))

    scores = F.batch_dot(split(query), split(key), transpose_b=True) / width**0.5
    mixed = F.batch_dot(F.softmax(scores, axis=-1), split(value))
    mixed = F.transpose(F.reshape(mixed, (-4, -1, heads, 0, 0)), axes=(0, 2, 1, 3))
    return F.reshape(mixed, (0, 0, -1))


@kind(
    "sequence",
    "sequence",
    lambda rng, shape: choose(rng, heads=(1, 2, 3), width=(1, 2, 4)),
    weight=3,
)
def self_attention(heads, width):
    units = heads * width
    q, k, v = (nn.Dense(units, flatten=False, use_bias=i != 1) for i in range(3))
    return Function(lambda F, x, q, k, v: _attend(F, q(x), k(x), v(x), heads, width), q=q, k=k, v=v)


@kind(
    "sequence sequence",
    "sequence",
    lambda rng, one, other: choose(rng, heads=(1, 2, 3), width=(1, 2, 4)),
    weight=2,
)
def cross_attention(heads, width):
    units = heads * width
    q, k, v = (nn.Dense(units, flatten=False) for _ in range(3))
    return Function(
        lambda F, x, y, q, k, v: _attend(F, q(x), k(y), v(y), heads, width), q=q, k=k, v=v
    )


@kind("sequence", "sequence", lambda rng, shape: choose(rng, heads=(1, 2, 3), width=(2, 4)))
def interleaved_attention(heads, width):
    """Queries, keys and values stand next to each other, head by head."""

    def run(F, x, project):
        joined = project(F.swapaxes(x, 0, 1))
        scores = F.contrib.interleaved_matmul_selfatt_qk(joined, heads=heads)
        mixed = F.contrib.interleaved_matmul_selfatt_valatt(
            joined, F.softmax(scores, axis=-1), heads=heads
        )
        return F.swapaxes(mixed, 0, 1)

    def exact(F, x, project):
        joined = F.reshape(project(x), (0, 0, heads, 3 * width))
        parts = F.split(joined, num_outputs=3, axis=3)
        return _attend(F, *(F.reshape(part, (0, 0, -1)) for part in parts), heads, width)

    return Function(run, exact, project=nn.Dense(3 * heads * width, flatten=False))


@kind("sequence", "sequence", lambda rng, shape: choose(rng, units=WIDTHS), weight=3)
def dense_each(units):
    return nn.Dense(units, flatten=False, activation="tanh")


@kind("sequence", "sequence", weight=2)
def layer_norm():
    return nn.LayerNorm(epsilon=1e-3)


@kind("sequence", "sequence", lambda rng, shape: choose(rng, axis=(1, 2)))
def sequence_batch_norm(axis):
    return nn.BatchNorm(axis=axis)


@kind("sequence", "sequence", lambda rng, shape: {"shape": (1, *shape[1:])})
def positions(shape):
    return Weighted(lambda F, x, weight: F.broadcast_add(x, weight), weight=shape)


@kind("sequence", "sequence", weight=0.5)
def backwards():
    return Function(lambda F, x: F.reverse(x, axis=1))


@kind(
    "sequence", "sequence", lambda rng, shape: choose(rng, channels=(2, 3, 4, 6), kernel=(1, 2, 3))
)
def temporal_convolution(channels, kernel):
    body = nn.Conv1D(channels, kernel, padding=kernel - 1)
    return Function(lambda F, x, body: F.swapaxes(body(F.swapaxes(x, 1, 2)), 1, 2), body=body)


@kind("sequence", "sequence", lambda rng, shape: choose(rng, units=(2, 3, 4, 6, 8)))
def gated_linear(units):
    body = nn.Dense(2 * units, flatten=False)

    def gate(F, x, body):
        value, gates = F.split(body(x), num_outputs=2, axis=2)
        return value * F.sigmoid(gates)

    return Function(gate, body=body)


@kind(
    "sequence", "sequence", lambda rng, shape: {"units": shape[2], **choose(rng, wide=(3, 8, 12))}
)
def feed_forward(units, wide):
    body = nn.HybridSequential()
    body.add(nn.Dense(wide, flatten=False), nn.GELU(), nn.Dense(units, flatten=False))
    return Function(lambda F, x, body, norm: norm(x + body(x)), body=body, norm=nn.LayerNorm())


@kind(
    "sequence",
    "sequence",
    lambda rng, shape: {"picks": [rng.randrange(shape[1]) for _ in range(rng.randint(1, 5))]},
)
def take(picks):
    def run(F, x):
        # The numbers are made in the graph: a constant array would be of one device.
        index = F.concat(*(F.full((1,), pick) for pick in picks), dim=0)
        return F.swapaxes(F.take(F.swapaxes(x, 0, 1), index, axis=0), 0, 1)

    return Function(run)


@kind("sequence", "flat", lambda rng, shape: {"at": rng.choice((0, shape[1] - 1))}, weight=2)
def step_of(at):
    return Function(lambda F, x: F.reshape(F.slice_axis(x, axis=1, begin=at, end=at + 1), (0, -1)))


@kind("sequence", "flat", lambda rng, shape: choose(rng, name=("mean", "max", "sum", "norm")))
def over_time(name):
    def run(F, x):
        if name == "norm":
            return F.sqrt(F.sum(F.square(x), axis=1) + 1e-2)
        return getattr(F, name)(x, axis=1)

    return Function(run)


@kind("sequence", "flat", lambda rng, shape: choose(rng, units=WIDTHS) if shape[1] < 13 else None)
def dense_of_sequence(units):
    return nn.Dense(units)


@kind("sequence", "image")
def as_image():
    return Function(lambda F, x: F.swapaxes(x, 1, 2))


def draw_plane(rng, shape):
    return {"groups": rng.choice(divisors(shape[2])), "shape": shape} if shape[1] > 1 else None


@kind("sequence", "image", draw_plane)
def as_plane(groups, shape):
    return Function(lambda F, x: F.reshape(x, (-1, shape[1], groups, shape[2] // groups)))
