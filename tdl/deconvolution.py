"""Transposed convolution over one to three spatial dimensions, and its gradients."""

from __future__ import annotations

import dataclasses

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, op
from tofu.tdl._shapes import CHANNELS, Strides, names

_LAYOUTS = (None, "None", "NCW", "NCHW", "NCDHW")


@dataclasses.dataclass(frozen=True)
class _Spread:
    """The positions x of the output that the positions y of the data reach, along a dimension.

    x = stride * y + dilate * k - pad. With x = stride * q + r, the y that reach x are
    between q - before and q + after.
    """

    kernel: int
    stride: int
    dilate: int
    pad: int
    size: int  # of the output

    @property
    def reach(self) -> int:
        """The reach of the window's last element."""
        return self.dilate * (self.kernel - 1)

    @property
    def whole(self) -> bool:
        """Whether a part of the output would begin inside a stride."""
        return self.size % self.stride != 0

    @property
    def before(self) -> int:
        return -((self.pad - self.reach) // self.stride)

    @property
    def after(self) -> int:
        """The y above q that reach x; one more if the operator could not end its output else."""
        least = -(-self.pad // self.stride)
        left = self.stride * self.before - (self.reach - self.pad)
        right = self.stride * least - self.pad
        return least + (left > right)

    @property
    def part_pad(self) -> int:
        """The number of outputs before the first x that a part drops."""
        return self.pad + self.stride * self.before

    @property
    def part_adj(self) -> int:
        """The number of outputs that a part adds at the end to reach the end of its tile."""
        return 2 * self.part_pad - self.stride * (self.before + self.after - 1) - self.reach - 1


def _spreads(space, kernel, stride, dilate, pad, adj, target_shape):
    """The spread of each spatial dimension; a target shape replaces padding, as in MXNet."""
    n = len(kernel)
    strides, dilates = stride or (1,) * n, dilate or (1,) * n
    pads, ends = pad or (0,) * n, adj or (0,) * n
    spreads = []
    for d, (size, k) in enumerate(zip(space, kernel)):
        full = strides[d] * (size - 1) + dilates[d] * (k - 1) + 1
        if any(target_shape or ()):
            target = target_shape[d]
            first = (full - target + 1) // 2
        else:
            first, target = pads[d], full - 2 * pads[d] + ends[d]
        spreads.append(_Spread(k, strides[d], dilates[d], first, target))
    return spreads


def _check(layout):
    if layout not in _LAYOUTS:
        raise InconclusiveError(
            f"layout {layout} is not described; expected batch, channel, then space"
        )


def _is_grouped(weight_shape, num_group):
    """Whether groups have several filters or channels; if not, channels are independent."""
    return num_group > 1 and (weight_shape[0] != num_group or weight_shape[1] != 1)


def _sizes(
    shapes, kernel=(), stride=(), dilate=(), pad=(), adj=(), target_shape=(), num_group=1, **_
):
    """The attributes of a part of the space: halos, whose outputs it drops, replace padding."""
    spreads = _spreads(shapes[0][2:], kernel, stride, dilate, pad, adj, target_shape)
    split = [f"q{d}" for d, spread in enumerate(spreads) if not spread.whole]
    rewrites = [Rewrite("num_filter", {"size": "co"})]
    weight = next(s for s in reversed(shapes) if len(s) > 1)
    moving = tuple(split)
    if _is_grouped(weight, num_group):
        moving += ("g",)  # data comes padded for a split of groups, too
        filters = {"size": "g", "times": weight[1]}
        rewrites = [Rewrite("num_group", {"size": "g"}), Rewrite("num_filter", filters)]
    elif num_group > 1:
        rewrites.append(Rewrite("num_group", {"size": "co"}))
    if not split:
        return rewrites
    pads = tuple(s.pad if s.whole else s.part_pad for s in spreads)
    full = [s.stride * (n - 1) + s.reach + 1 for s, n in zip(spreads, shapes[0][2:])]
    adjs = tuple(
        s.size - length + 2 * s.pad if s.whole else s.part_adj for s, length in zip(spreads, full)
    )
    texts = {"pad": pads, "adj": adjs, "target_shape": (0,) * len(spreads)}
    return [*rewrites, *(Rewrite(k, {"const": str(v)}, moving) for k, v in texts.items())]


@op(name="Deconvolution", rewrites=_sizes, variables=CHANNELS)
def deconvolution(
    data,
    weight,
    bias=None,
    *,
    kernel=(),
    stride=(),
    dilate=(),
    pad=(),
    adj=(),
    target_shape=(),
    num_group=1,
    layout=None,
):
    """The sum over input channels and the positions that reach an output; halo along space."""
    _check(layout)
    spreads = _spreads(data.shape[2:], kernel, stride, dilate, pad, adj, target_shape)
    halo = [d for d, spread in enumerate(spreads) if not spread.whole]
    strides = Strides(
        [spread.size for spread in spreads],
        [None if spread.whole else spread.stride for spread in spreads],
    )
    source, place = data.padded(0) if halo else data, Opaque("Place")
    planes = (slice(None),) * len(spreads)
    grouped = _is_grouped(weight.shape, num_group)
    channel = ["ci"] if num_group == 1 or grouped else []  # depthwise: channel co reads channel co
    channels, filters = data.shape[1] // num_group, weight.shape[1]
    shifts = [spread.part_pad for spread in spreads]

    def element(b, g, co, v):
        pairs = strides.apart(v)
        inside = [r for _, r in pairs]

        def term(*v):
            ci, near = (v[0], v[1:]) if channel else (co, v)
            if grouped:
                ci = g * channels + ci
            matrix = weight[ci, co if channel else 0, planes]
            rows = list(planes)
            for d, step in zip(halo, near):
                rows[d] = pairs[d][0] + step - spreads[d].before
            if len(halo) < len(spreads):
                return place(source[b, ci, rows], matrix, *shifts)[inside, near]
            return source[b, ci, rows] * place(matrix, *shifts)[inside, near]

        window = [spreads[d].before + spreads[d].after + 1 for d in halo]
        steps = [*channel, *names(len(halo), "j")]
        extents = [*(channels for _ in channel), *window]
        total = Sum(Over(steps, term), extent=extents) if steps else term()
        return total if bias is None else total + bias[g * filters + co if grouped else co]

    if not grouped:
        return Reindex(
            ["b", "co", *strides.names],
            [data.shape[0], filters * num_group, *strides.extents],
            at=lambda b, co, *v: (b, co, *strides.positions(v)),
            value=lambda b, co, *v: element(b, None, co, v),
        )
    return Reindex(
        ["b", "g", "co", *strides.names],
        [data.shape[0], num_group, filters, *strides.extents],
        at=lambda b, g, co, *v: (b, g * filters + co, *strides.positions(v)),
        value=lambda b, g, co, *v: element(b, g, co, v),
    )


def _gradient_sizes(shapes, kernel=(), **_):
    """The attributes of parts of data or window, which read only the padded head gradient."""
    n = len(kernel)
    taps = names(n, "k")
    moving, none = (*names(n, "y"), *taps), {"const": str((0,) * n)}
    return [
        Rewrite("num_filter", {"size": "co"}),
        Rewrite("kernel", {"sizes": taps}),
        *(Rewrite(name, none, moving) for name in ("pad", "adj", "target_shape")),
    ]


@op(name="_backward_Deconvolution", rewrites=_gradient_sizes, variables=CHANNELS)
def backward_deconvolution(
    ograd,
    data,
    weight,
    bias=None,
    *,
    kernel=(),
    stride=(),
    dilate=(),
    pad=(),
    adj=(),
    target_shape=(),
    num_group=1,
    layout=None,
):
    """Data's gradient, a convolution of the head gradient; weight's and bias's, batch sums."""
    _check(layout)
    if num_group != 1:
        raise InconclusiveError("the gradient by groups is not described; tofu.mx lowers it")
    spreads = _spreads(data.shape[2:], kernel, stride, dilate, pad, adj, target_shape)
    n, padded = len(spreads), ograd.padded(0)
    space, taps = names(n, "y"), names(n, "k")

    def head(b, co, y, k):
        at = [s.stride * a + s.dilate * t - s.pad for s, a, t in zip(spreads, y, k)]
        return padded[b, co, at]

    def by_data(b, ci, *y):
        return Sum(Over(["co", *taps], lambda co, *k: head(b, co, y, k) * weight[ci, co, k]))

    def by_weight(ci, co, *k):
        return Sum(Over(["b", *space], lambda b, *y: head(b, co, y, k) * data[b, ci, y]))

    gradients = Over(["b", "ci", *space], by_data), Over(["ci", "co", *taps], by_weight)
    if bias is None:
        return gradients
    places = ["b", *names(n, "x")]
    return (*gradients, lambda co: Sum(Over(places, lambda b, *x: ograd[b, co, x])))
