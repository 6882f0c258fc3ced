"""Kinds of layers on images of one, two and three dimensions."""

from __future__ import annotations

from mxnet.gluon import nn

from tofu.gluon.session.session import active

from .kinds import ACTIVATIONS, WIDTHS, Function, Weighted, choose, divisors, kind

CONVOLUTIONS = (nn.Conv1D, nn.Conv2D, nn.Conv3D)
TRANSPOSED = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)
MAXIMA = (nn.MaxPool1D, nn.MaxPool2D, nn.MaxPool3D)
MEANS = (nn.AvgPool1D, nn.AvgPool2D, nn.AvgPool3D)
GLOBAL_MAXIMA = (nn.GlobalMaxPool1D, nn.GlobalMaxPool2D, nn.GlobalMaxPool3D)
GLOBAL_MEANS = (nn.GlobalAvgPool1D, nn.GlobalAvgPool2D, nn.GlobalAvgPool3D)
MAX_ELEMENTS = 4096  # of one example


def each(rng, rank, *values):
    """A value for each dimension; equal ones half of the time."""
    if rng.random() < 0.5:
        return (rng.choice(values),) * rank
    return tuple(rng.choice(values) for _ in range(rank))


def _windows(rng, shape, dilate=True):
    rank = len(shape) - 2
    kernel = each(rng, rank, 1, 2, 3, 3, 4, 5)
    dilation = each(rng, rank, 1, 1, 2, 3) if dilate and rng.random() < 0.3 else (1,) * rank
    strides = each(rng, rank, 1, 1, 1, 2, 3)
    padding = tuple(
        rng.choice((0, d * (k - 1) // 2, d * (k - 1) // 2, 1)) for k, d in zip(kernel, dilation)
    )
    return {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}


def draw_convolution(rng, shape):
    channels, groups = rng.choice(WIDTHS), 1
    choice = rng.random()
    if choice < 0.2:  # depthwise, some with a multiplier
        groups, channels = shape[1], shape[1] * rng.choice((1, 1, 2))
    elif choice < 0.4:
        groups = rng.choice(divisors(shape[1]))
        channels = groups * rng.choice((1, 2, 3))
    return {
        "channels": channels,
        "groups": groups,
        **_windows(rng, shape),
        **choose(rng, use_bias=(True, True, False), activation=(None, None, "relu", "tanh")),
    }


@kind("image", "image", draw_convolution, weight=5)
def convolution(channels, groups, kernel, strides, padding, dilation, use_bias, activation):
    return CONVOLUTIONS[len(kernel) - 1](
        channels,
        kernel,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        use_bias=use_bias,
        activation=activation,
    )


class Transposed3D(nn.Conv3DTranspose):
    """Gluon's, and one made of other operators in float64, in which MXNet has none."""

    def cast(self, dtype):
        super().cast(dtype)
        self._exact = dtype == "float64"

    def hybrid_forward(self, F, x, weight, bias=None):
        if not getattr(self, "_exact", False):
            return super().hybrid_forward(F, x, weight, bias)
        options = self._kwargs
        for axis, stride in enumerate(options["stride"], 2):  # zeros between the pixels
            zeros = F.zeros_like(x)
            x = F.stack(x, *[zeros] * (stride - 1), axis=axis + 1)
            x = F.reshape(x, (*(0,) * axis, -3, *(0,) * (4 - axis)))
            if stride > 1:
                x = F.slice_axis(x, axis=axis, begin=0, end=1 - stride)
        for axis in (2, 3, 4):  # the margins
            margin = options["kernel"][axis - 2] - 1 - options["pad"][axis - 2]
            zeros = F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1))
            after = margin + options["adj"][axis - 2]
            x = F.concat(*[zeros] * margin, x, *[zeros] * after, dim=axis)
        # MXNet's reverse ignores grad_req="add", hence the product.
        weight = F.swapaxes(F.reverse(weight * 1, axis=(2, 3, 4)), 0, 1)
        return F.Convolution(
            x,
            weight,
            *(() if bias is None else (bias,)),
            no_bias=bias is None,
            kernel=options["kernel"],
            num_filter=options["num_filter"],
        )


def draw_transposed(rng, shape):
    rank = len(shape) - 2
    groups = rng.choice(divisors(shape[1])) if rng.random() < 0.25 else 1
    strides, kernel = each(rng, rank, 1, 2, 2, 3), each(rng, rank, 1, 2, 3, 4)
    padding = tuple(min(p, k - 1) for p, k in zip(each(rng, rank, 0, 0, 1), kernel))
    if rank == 3:
        groups = 1
    found = {
        "inputs": shape[1] if rank == 3 else 0,
        "channels": groups * rng.choice((1, 2, 3, 4, 5, 8)),
        "groups": groups,
        "kernel": kernel,
        "strides": strides,
        "padding": padding,
        "output_padding": tuple(rng.randrange(s) if rng.random() < 0.3 else 0 for s in strides),
        "use_bias": rng.random() < 0.6,
    }
    return found if shape[1] * found["channels"] < 400 else None


@kind("image", "image", draw_transposed, weight=2)
def transposed(inputs, channels, groups, kernel, strides, padding, output_padding, use_bias):
    made = Transposed3D if len(kernel) == 3 else TRANSPOSED[len(kernel) - 1]
    return made(
        channels,
        kernel,
        strides=strides,
        padding=padding,
        output_padding=output_padding,
        groups=groups,
        use_bias=use_bias,
        in_channels=inputs,
    )


def draw_pooling(rng, shape):
    found = _windows(rng, shape, dilate=False)
    del found["dilation"]
    found["padding"] = tuple(min(p, k // 2) for p, k in zip(found["padding"], found["kernel"]))
    windows = zip(shape[2:], found["kernel"], found["strides"], found["padding"])
    # A last window behind the image has no maximum, and no mean.
    fits = all(
        -(-(size + 2 * pad - kernel) // stride) * stride - pad < size
        for size, kernel, stride, pad in windows
    )
    return {**found, "ceil_mode": fits and rng.random() < 0.4}


@kind("image", "image", draw_pooling, weight=2)
def max_pooling(kernel, strides, padding, ceil_mode):
    return MAXIMA[len(kernel) - 1](kernel, strides, padding, ceil_mode=ceil_mode)


@kind(
    "image",
    "image",
    lambda rng, shape: {**draw_pooling(rng, shape), **choose(rng, count_pad=(True, False))},
    weight=2,
)
def mean_pooling(kernel, strides, padding, ceil_mode, count_pad):
    return MEANS[len(kernel) - 1](
        kernel, strides, padding, ceil_mode=ceil_mode, count_include_pad=count_pad
    )


@kind("image", "flat", lambda rng, shape: {"rank": len(shape) - 2}, weight=2)
def global_mean(rank):
    return Function(lambda F, x, pool: F.flatten(pool(x)), pool=GLOBAL_MEANS[rank - 1]())


@kind("image", "flat", lambda rng, shape: {"rank": len(shape) - 2})
def global_max(rank):
    return Function(lambda F, x, pool: F.flatten(pool(x)), pool=GLOBAL_MAXIMA[rank - 1]())


def _small(rng, shape):
    size = 1
    for extent in shape[1:]:
        size *= extent
    return {} if size <= 600 else None


@kind("image", "flat", _small)
def flatten():
    return nn.Flatten()


@kind(
    "image",
    "flat",
    lambda rng, shape: choose(rng, units=WIDTHS) if _small(rng, shape) is not None else None,
)
def dense_of_all(units):
    return nn.Dense(units)


@kind("image", "sequence", _small)
def pixels():
    return Function(lambda F, x: F.transpose(F.reshape(x, (0, 0, -1)), axes=(0, 2, 1)))


def draw_batch_norm(rng, shape):
    return choose(
        rng,
        scale=(True, True, False),
        center=(True, True, False),
        fixed=(False,) * 5 + (True,),
        momentum=(0.9, 0.5),
    )


@kind("image", "image", draw_batch_norm, weight=3)
def batch_norm(scale, center, fixed, momentum):
    return nn.BatchNorm(scale=scale, center=center, use_global_stats=fixed, momentum=momentum)


@kind("image", "image", lambda rng, shape: {"groups": rng.choice(divisors(shape[1]))})
def group_norm(groups):
    return nn.GroupNorm(groups)


class InstanceNorm(nn.InstanceNorm):
    """Gluon's, and one made of other operators in float64, in which MXNet has none."""

    def cast(self, dtype):
        super().cast(dtype)
        self._exact = dtype == "float64"

    def hybrid_forward(self, F, x, gamma, beta):
        if not getattr(self, "_exact", False):
            return super().hybrid_forward(F, x, gamma, beta)
        lines = F.reshape(x, (0, 0, -1))
        centred = F.broadcast_sub(lines, F.mean(lines, axis=2, keepdims=True))
        variance = F.mean(F.square(centred), axis=2, keepdims=True)
        normal = F.broadcast_div(centred, F.sqrt(variance + 1e-3))
        gamma, beta = (F.reshape(each, (1, -1, 1)) for each in (gamma, beta))
        return F.reshape_like(F.broadcast_add(F.broadcast_mul(normal, gamma), beta), x)


@kind(
    "image",
    "image",
    lambda rng, shape: {
        "channels": shape[1],
        **choose(rng, center=(True, False), scale=(True, False)),
    },
)
def instance_norm(channels, center, scale):
    return InstanceNorm(center=center, scale=scale, epsilon=1e-3, in_channels=channels)


@kind("image", "image", lambda rng, shape: {"axis": rng.choice((-1, 1))})
def image_layer_norm(axis):
    return nn.LayerNorm(axis=axis, epsilon=1e-3)


@kind("image", "image", lambda rng, shape: choose(rng, act_type=ACTIVATIONS), weight=2)
def image_activation(act_type):
    return nn.Activation(act_type)


@kind(
    "image",
    "image",
    lambda rng, shape: choose(rng, name=("LeakyReLU", "PReLU", "ELU", "SELU", "Swish", "GELU")),
)
def advanced_activation(name):
    if name == "PReLU" and active() is None:
        # The hybridized one of MXNet may write over the gradient that its slope's is made of.
        return Weighted(_learned_slope, alpha=(1,))
    return getattr(nn, name)(*((0.1,) if name == "LeakyReLU" else ()))


def _learned_slope(F, x, alpha):
    """The value of MXNet's operator, which rounds to single precision, but not its gradient."""
    out = F.relu(x) + F.broadcast_mul(F.minimum(x, 0), alpha)
    return out + F.BlockGrad(F.LeakyReLU(x, alpha, act_type="prelu") - out)


def draw_shortcut(rng, shape):
    return {"channels": shape[1], "rank": len(shape) - 2, **choose(rng, norm=(True, False))}


@kind("image", "image", draw_shortcut, weight=2)
def shortcut(channels, rank, norm):
    body = nn.HybridSequential()
    body.add(CONVOLUTIONS[rank - 1](channels, 3, padding=1, use_bias=not norm))
    if norm:
        body.add(nn.BatchNorm())
    return Function(lambda F, x, body: F.relu(x + body(x)), body=body)


@kind(
    "image",
    "image",
    lambda rng, shape: {"rank": len(shape) - 2, "widths": [rng.choice(WIDTHS) for _ in range(2)]},
)
def branches(rank, widths):
    one = CONVOLUTIONS[rank - 1](widths[0], 1)
    three = CONVOLUTIONS[rank - 1](widths[1], 3, padding=1, activation="tanh")
    return Function(
        lambda F, x, one, three: F.concat(one(x), three(x), x, dim=1), one=one, three=three
    )


@kind("image", "image", lambda rng, shape: {"channels": shape[1], "rank": len(shape) - 2})
def squeeze_excite(channels, rank):
    body = nn.HybridSequential()
    body.add(nn.Dense(3, activation="relu"), nn.Dense(channels, activation="sigmoid"))

    def gate(F, x, body):
        weights = body(F.mean(x, axis=tuple(range(2, rank + 2))))
        return F.broadcast_mul(x, F.reshape(weights, (0, 0, *(1,) * rank)))

    return Function(gate, body=body)


def draw_shuffle(rng, shape):
    groups = rng.choice(divisors(shape[1]))
    return {"groups": groups, "shape": shape} if 1 < groups < shape[1] else None


@kind("image", "image", draw_shuffle)
def channel_shuffle(groups, shape):
    channels, space = shape[1], shape[2:]

    def shuffle(F, x):
        split = F.reshape(x, (-1, groups, channels // groups, *space))
        return F.reshape(F.swapaxes(split, 1, 2), (-1, channels, *space))

    return Function(shuffle)


@kind("image", "image", lambda rng, shape: {} if len(shape) == 4 else None)
def upsampling():
    return Function(lambda F, x: F.UpSampling(x, scale=2, sample_type="nearest"))


def draw_pad(rng, shape):
    rank = len(shape) - 2
    if rank < 2:
        return None
    found = choose(rng, mode=("constant", "edge", "reflect"))
    widths = [rng.randrange(min(3, extent)) for extent in shape[2:] for _ in range(2)]
    return {**found, "pad_width": (0, 0, 0, 0, *widths)}


@kind("image", "image", draw_pad)
def pad(mode, pad_width):
    return Function(lambda F, x: F.pad(x, mode=mode, pad_width=pad_width))


@kind("image", "image", lambda rng, shape: {"axis": rng.randrange(2, len(shape))}, weight=0.5)
def flip(axis):
    return Function(lambda F, x: F.reverse(x, axis=axis))


def draw_crop(rng, shape):
    axis = rng.randrange(1, len(shape))
    begin = rng.randrange(shape[axis])
    return {"axis": axis, "begin": begin, "end": rng.randrange(begin, shape[axis]) + 1}


@kind("image", "image", draw_crop)
def crop(axis, begin, end):
    return Function(lambda F, x: F.slice_axis(x, axis=axis, begin=begin, end=end))


@kind("image", "image", lambda rng, shape: {"shape": (1, shape[1], *(1,) * (len(shape) - 2))})
def channel_scale(shape):
    return Weighted(
        lambda F, x, weight, bias: F.broadcast_add(F.broadcast_mul(x, weight), bias),
        weight=shape,
        bias=shape,
    )


@kind("image", "image", lambda rng, shape: choose(rng, mode=("channel", "instance", "spatial")))
def l2_normalization(mode):
    return Function(lambda F, x: F.L2Normalization(x, mode=mode, eps=1e-3))


@kind("image", "image", lambda rng, shape: {} if len(shape) == 4 else None, weight=0.5)
def local_response():
    def exact(F, x):
        padded = F.expand_dims(F.square(x), 1)
        padded = F.pad(padded, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 0, 0, 0, 0))
        squares = [
            F.slice_axis(padded, axis=2, begin=i, end=None if i == 2 else i - 2) for i in range(3)
        ]
        total = F.reshape(F.add_n(*squares), (0, -3, 0, 0))
        return x * (2 + 1e-2 / 3 * total) ** -0.75

    return Function(lambda F, x: F.LRN(x, nsize=3, alpha=1e-2), exact)


@kind(
    "image",
    "image",
    lambda rng, shape: {"size": rng.choice((1, 2, 3))} if len(shape) == 4 else None,
    weight=0.5,
)
def adaptive_pooling(size):
    return Function(lambda F, x: F.contrib.AdaptiveAvgPooling2D(x, output_size=size))


@kind(
    "image",
    "image",
    lambda rng, shape: {"size": rng.choice((3, 4, 5, 6))} if len(shape) == 4 else None,
    weight=0.5,
)
def bilinear(size):
    return Function(lambda F, x: F.contrib.BilinearResize2D(x, height=size, width=size))


@kind("image", "image", weight=0.5)
def no_dropout():
    return nn.Dropout(0.0)
