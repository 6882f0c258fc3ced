"""Kinds of layers on vectors, and kinds that join two values."""

from __future__ import annotations

from mxnet.gluon import nn

from .kinds import ACTIVATIONS, WIDTHS, Function, Weighted, choose, divisors, kind


@kind(
    "flat",
    "flat",
    lambda rng, shape: choose(
        rng, units=WIDTHS, use_bias=(True, True, False), activation=(None, *ACTIVATIONS)
    ),
    weight=6,
)
def dense(units, use_bias, activation):
    return nn.Dense(units, use_bias=use_bias, activation=activation)


@kind("flat", "flat", lambda rng, shape: choose(rng, scale=(True, False)))
def flat_batch_norm(scale):
    return nn.BatchNorm(scale=scale)


@kind("flat", "flat", lambda rng, shape: {} if shape[1] > 1 else None)
def flat_layer_norm():
    return nn.LayerNorm(epsilon=1e-3)


@kind("flat", "flat", lambda rng, shape: choose(rng, act_type=ACTIVATIONS))
def activation(act_type):
    return nn.Activation(act_type)


@kind("flat", "flat", lambda rng, shape: choose(rng, name=("softmax", "log_softmax", "softmin")))
def soft(name):
    return Function(lambda F, x: getattr(F, name)(x, axis=-1))


@kind("flat", "flat", lambda rng, shape: {"units": shape[1]})
def highway(units):
    gate = nn.Dense(units, activation="sigmoid")
    body = nn.Dense(units, activation="tanh")
    return Function(lambda F, x, gate, body: x + gate(x) * (body(x) - x), gate=gate, body=body)


@kind("flat", "flat", lambda rng, shape: choose(rng, units=(2, 3, 4, 6), pieces=(2, 3)))
def maxout(units, pieces):
    body = nn.Dense(units * pieces)
    return Function(
        lambda F, x, body: F.max(F.reshape(body(x), (0, units, pieces)), axis=2), body=body
    )


@kind("flat", "flat", lambda rng, shape: {"shape": (shape[1], rng.choice(WIDTHS))})
def product(shape):
    return Weighted(lambda F, x, weight: F.dot(x, weight), weight=shape)


@kind("flat", "flat", lambda rng, shape: {"shape": (shape[1], rng.choice((2, 3, 4, 8)))})
def factorization(shape):
    def run(F, x, weight):
        return F.square(F.dot(x, weight)) - F.dot(F.square(x), F.square(weight))

    return Weighted(run, weight=shape)


@kind("flat", "flat", weight=0.5)
def unit_norm():
    return Function(lambda F, x: F.L2Normalization(x, eps=1e-3))


@kind("flat", "flat", lambda rng, shape: choose(rng, low=(-1.0, -0.5), high=(0.5, 1.0)), weight=0.5)
def clip(low, high):
    return Function(lambda F, x: F.clip(x, low, high))


@kind("flat", "flat", lambda rng, shape: choose(rng, axis=(0, 1)), weight=0.5)
def centred(axis):
    return Function(lambda F, x: F.broadcast_sub(x, F.mean(x, axis=axis, keepdims=True)))


def draw_tile(rng, shape):
    return choose(rng, reps=(2, 3)) if shape[1] < 16 else None


@kind("flat", "flat", draw_tile, weight=0.5)
def tile(reps):
    return Function(lambda F, x: F.tile(x, reps=(1, reps)))


@kind("flat", "sequence", lambda rng, shape: {"length": rng.choice(divisors(shape[1]))})
def cut_up(length):
    return Function(lambda F, x: F.reshape(x, (0, length, -1)))


@kind("flat", "sequence", lambda rng, shape: choose(rng, length=(1, 2, 3, 4, 5)))
def repeat(length):
    return Function(lambda F, x: F.repeat(F.expand_dims(x, 1), repeats=length, axis=1))


@kind("flat", "image", lambda rng, shape: choose(rng, channels=(2, 3, 4, 6), size=(1, 2, 3, 4)))
def project(channels, size):
    body = nn.Dense(channels * size * size)
    return Function(lambda F, x, body: F.reshape(body(x), (0, channels, size, size)), body=body)


def _same(rng, one, other):
    return {} if one == other else None


@kind("flat flat", "flat", weight=3)
def join():
    return Function(lambda F, x, y: F.concat(x, y, dim=1))


@kind("flat flat", "flat", _same, weight=4)
def add():
    return Function(lambda F, x, y: x + y)


@kind("flat flat", "flat", lambda rng, one, other: choose(rng, units=WIDTHS), weight=2)
def add_projected(units):
    return Function(lambda F, x, y, a, b: F.tanh(a(x) * b(y)), a=nn.Dense(units), b=nn.Dense(units))


@kind("flat flat", "flat", lambda rng, one, other: {} if one[1] * other[1] < 200 else None)
def outer():
    def run(F, x, y):
        return F.flatten(F.batch_dot(F.expand_dims(x, 2), F.expand_dims(y, 1)))

    return Function(run)


@kind("image image", "image", _same, weight=3)
def image_add():
    return Function(lambda F, x, y: F.relu(x + y))


def _same_space(rng, one, other):
    return {} if one[2:] == other[2:] else None


@kind("image image", "image", _same_space, weight=3)
def image_join():
    return Function(lambda F, x, y: F.concat(x, y, dim=1))


@kind("image flat", "image", lambda rng, image, flat: {"units": image[1], "rank": len(image) - 2})
def modulate(units, rank):
    body = nn.Dense(units)

    def run(F, x, y, body):
        return F.broadcast_mul(x, F.reshape(body(y), (0, 0, *(1,) * rank)))

    return Function(run, body=body)


@kind("sequence sequence", "sequence", _same, weight=2)
def sequence_product():
    return Function(lambda F, x, y: x * F.sigmoid(y))


@kind("sequence flat", "sequence", lambda rng, one, flat: {"units": one[2]})
def condition(units):
    body = nn.Dense(units)
    return Function(lambda F, x, y, body: F.broadcast_add(x, F.expand_dims(body(y), 1)), body=body)
