"""Composite operators in stages, if workers could not share them otherwise.

A fused softmax or LayerNorm is faster than its parts, and correct as long as the dimension
that it reduces over stays whole. If no other dimension can be divided among the workers, the
stages can be: their reductions are outputs that the search sees and prices.
docs/design/0004 explains the decision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

from tofu.analysis.apply_row import extent_of
from tofu.analysis.table import Row, row_for
from tofu.boxes import cuts_evenly, idle_steps
from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape

from .registry import AFTER, STAGES, Builder, single

__all__ = ["indivisible", "positions", "softmax_parts"]

_FLOAT16 = 2
_FAR = 1e30
_REASON = "reduces over a dimension that stays whole"


def indivisible(node: Node, workers: int) -> bool:
    """Whether this many workers can share a node's parts, but not the node itself.

    So it is if evenly cutting the dimensions whose parts are concatenated leaves workers idle,
    and the other dimensions of the first input can be cut for some of these.
    """
    ins = [entry.shape for entry in node.inputs]
    row = row_for(node.op, node.attrs, ins, node.shapes)
    extents = _free(row, ins, node.shapes) if row is not None else []
    elements = math.prod(ins[0])
    rest = elements // math.gcd(math.prod(extents), elements)
    return any(cuts_evenly(rest, parts) for parts in idle_steps(workers, *extents))


def _free(row: Row, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[int]:
    """The extents of variables whose parts are concatenated, not reduced."""
    reduced = {int(var) for out in row["outputs"] for var in out["reduce"]}
    free = [var for var in row["splittable"] if var not in reduced]
    return [extent_of(row["vars"][var]["extent"], ins, outs) for var in free]


def _axes_mean(build: Builder, entry: Entry, axes: tuple[int, ...], count: int) -> Entry:
    total = build.op("sum", entry, axis=axes, keepdims=True)
    return build.op("_div_scalar", total, scalar=count)


def _normal(
    build: Builder, data: Entry, axes: tuple[int, ...], count: int, eps: float
) -> tuple[Entry, Entry, Entry]:
    """The normalized data, its mean and its standard deviation."""
    with build.stage("mean"):
        mean = _axes_mean(build, data, axes, count)
    with build.stage("centered"):
        centered = build.op("broadcast_sub", data, mean)
    with build.stage("variance"):
        variance = _axes_mean(build, build.op("square", centered), axes, count)
    with build.stage("deviation"):
        deviation = build.op("sqrt", build.op("_plus_scalar", variance, scalar=eps))
    with build.stage("normal"):
        return build.op("broadcast_div", centered, deviation), mean, deviation


def _eps(node: Node) -> float:
    """Returns the term added to the variance, in MXNet's precision."""
    return single(node, "eps", 1e-5)


def _scaled(
    build: Builder, normal: Entry, gamma: Entry, beta: Entry, shape: Sequence[int]
) -> Entry:
    with build.stage("scaled"):
        scaled = build.op("broadcast_mul", normal, build.reshape(gamma, shape))
        return build.op("broadcast_add", scaled, build.reshape(beta, shape))


@STAGES.lowering("LayerNorm", reason=_REASON, where=indivisible)
def layer_norm(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """LayerNorm; its mean and standard deviation have no gradient."""
    data, gamma, beta = node.inputs
    shape = data.shape
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    if data.dtype == _FLOAT16:
        return None
    normal, mean, deviation = _normal(build, data, (axis,), shape[axis], _eps(node))
    along = tuple(dim if d == axis else 1 for d, dim in enumerate(shape))
    out = _scaled(build, normal, gamma, beta, along)
    return [out, build.op("BlockGrad", mean), build.op("BlockGrad", deviation)]


@STAGES.lowering("GroupNorm", reason=_REASON, where=indivisible)
def group_norm(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """GroupNorm; its means and standard deviations have no gradient."""
    data, gamma, beta = node.inputs
    batch, channels, *space = data.shape
    if data.dtype == _FLOAT16:
        return None
    groups = int(node.attrs.get("num_groups", 1))
    grouped = (batch, groups, channels // groups, *space)
    axes = tuple(range(2, len(grouped)))
    count = math.prod(grouped[2:])
    parts = build.reshape(data, grouped)
    normal, mean, deviation = _normal(build, parts, axes, count, _eps(node))
    ones = (1,) * len(axes)
    out = build.reshape(_scaled(build, normal, gamma, beta, (1, groups, *ones)), data.shape)
    moments = [build.reshape(entry, (batch, groups)) for entry in (mean, deviation)]
    return [out, *(build.op("BlockGrad", entry) for entry in moments)]


# --- Softmax ----------------------------------------------------------------------------


def softmax_parts(build: Builder, data: Entry, axis: int) -> tuple[Entry, Entry]:
    """The data minus its maximum along an axis, and the sum of the exponentials of that."""
    # Subtracting a constant does not change softmax, so the maximum needs no gradient.
    with build.stage("maximum"):
        largest = build.op("BlockGrad", build.op("max", data, axis=(axis,), keepdims=True))
    with build.stage("shifted"):
        shifted = build.op("broadcast_sub", data, largest)
    with build.stage("total"):
        return shifted, build.op("sum", build.op("exp", shifted), axis=(axis,), keepdims=True)


def positions(build: Builder, count: int, axis: int, ndim: int, dtype: str) -> Entry:
    """0, 1, 2, ... along one of `ndim` dimensions."""
    with build.stage("positions"):
        numbers = build.op("_arange", start=0, stop=count, dtype=dtype)
        return build.reshape(numbers, tuple(count if d == axis else 1 for d in range(ndim)))


def _scaled_data(node: Node, build: Builder, sign: float) -> Entry:
    """The data in the output's type, divided by the temperature, times `sign`."""
    data = node.inputs[0]
    kind = node.attrs.get("dtype", "None")
    if kind != "None" and kind != dtype_name(data.dtype):
        data = build.op("Cast", data, dtype=kind)
    temperature = node.attrs.get("temperature", "None")
    scale = sign / (1.0 if temperature == "None" else float(temperature))
    return data if scale == 1.0 else build.op("_mul_scalar", data, scalar=scale)


def _axis(node: Node) -> int:
    return int(node.attrs.get("axis", -1)) % len(node.inputs[0].shape)


def _softmax(node: Node, build: Builder, sign: float) -> Optional[Sequence[Entry]]:
    if len(node.inputs) > 1:
        return _masked_softmax(node, build, sign)
    shifted, total = softmax_parts(build, _scaled_data(node, build, sign), _axis(node))
    with build.stage("shares"):
        return [build.op("broadcast_div", build.op("exp", shifted), total)]


def _masked_softmax(node: Node, build: Builder, sign: float) -> Optional[Sequence[Entry]]:
    """The softmax of the first `length` elements of each line, followed by zeros."""
    data, length = node.inputs
    axis, shape = _axis(node), data.shape
    kind = node.attrs.get("dtype", "None")
    kind = dtype_name(data.dtype) if kind == "None" else kind
    if data.dtype == _FLOAT16 or kind == "float16":
        return None
    lines = tuple(1 if d == axis else size for d, size in enumerate(shape))
    with build.stage("mask"):
        counts = build.op("Cast", build.op("BlockGrad", length), dtype="int32")
        counts = build.reshape(counts, lines)
        at = positions(build, shape[axis], axis, len(shape), "int32")
        mask = build.op("Cast", build.op("broadcast_lesser", at, counts), dtype=kind)
        # Move masked elements far below all others, so the maximum is never one of them.
        below = build.op("_mul_scalar", build.op("_minus_scalar", mask, scalar=1.0), scalar=_FAR)
    with build.stage("masked"):
        scores = build.op("elemwise_mul", _scaled_data(node, build, sign), mask)
        scores = build.op("elemwise_add", scores, below)
    shifted, _ = softmax_parts(build, scores, axis)
    with build.stage("total"):
        powers = build.op("elemwise_mul", build.op("exp", shifted), mask)
        total = build.op("sum", powers, axis=(axis,), keepdims=True)
    with build.stage("shares"):
        # In a line of length 0 the total is 0; divide by 1 instead.
        empty = build.op("BlockGrad", build.op("_equal_scalar", total, scalar=0.0))
        return [build.op("broadcast_div", powers, build.op("elemwise_add", total, empty))]


@STAGES.lowering("softmax", reason=_REASON, where=indivisible)
def softmax(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The softmax of whole lines."""
    return _softmax(node, build, 1.0)


@STAGES.lowering("softmin", reason=_REASON, where=indivisible)
def softmin(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The softmax of the negative."""
    return _softmax(node, build, -1.0)


@STAGES.lowering("log_softmax", reason=_REASON, where=indivisible)
def log_softmax(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The logarithm of the softmax."""
    if len(node.inputs) > 1:
        return None
    shifted, total = softmax_parts(build, _scaled_data(node, build, 1.0), _axis(node))
    with build.stage("logarithm"):
        return [build.op("broadcast_sub", shifted, build.op("log", total))]


@STAGES.lowering("softmax_cross_entropy", reason=_REASON, where=indivisible)
def softmax_cross_entropy(node: Node, build: Builder) -> Sequence[Entry]:
    """The negative sum of the log softmax at the labels."""
    data, label = node.inputs
    rows, classes = data.shape
    shifted, total = softmax_parts(build, data, 1)
    with build.stage("logarithm"):
        logarithm = build.op("broadcast_sub", shifted, build.op("log", total))
    with build.stage("labels"):
        at = positions(build, classes, 1, 2, dtype_name(label.dtype))
        chosen = build.op("broadcast_equal", build.reshape(label, (rows, 1)), at)
    with build.stage("loss"):
        picked = build.op("sum", build.op("elemwise_mul", logarithm, chosen), axis=(0, 1))
        return [build.op("negative", picked)]


# --- Attention with interleaved heads -----------------------------------------------------


def _projection(
    build: Builder, entry: Entry, shape: Shape, heads: int, which: int, of: int
) -> Entry:
    """One of `of` interleaved projections, in shape (batch * heads, length, size)."""
    length, batch, channels = shape
    size = channels // heads // of
    with build.stage("heads"):
        parts = build.reshape(entry, (length, batch, heads, of, size))
        if of > 1:
            parts = build.op("slice_axis", parts, axis=3, begin=which, end=which + 1)
        parts = build.reshape(parts, (length, batch, heads, size))
        parts = build.op("transpose", parts, axes=(1, 2, 0, 3))
        return build.reshape(parts, (batch * heads, length, size))


def _scores(build: Builder, queries: Entry, keys: Entry, size: int) -> Sequence[Entry]:
    with build.stage("scores"):
        scaled = build.op("_mul_scalar", queries, scalar=1.0 / math.sqrt(size))
        return [build.op("batch_dot", scaled, keys, transpose_b=True)]


def _weighted(
    build: Builder, attention: Entry, values: Entry, batch: int, heads: int, size: int
) -> Sequence[Entry]:
    length = attention.shape[1]
    with build.stage("weighted"):
        out = build.op("batch_dot", attention, values)
        out = build.reshape(out, (batch, heads, length, size))
        out = build.op("transpose", out, axes=(2, 0, 1, 3))
        return [build.reshape(out, (length, batch, heads * size))]


_HEADS = "interleaves the projections of its heads, so heads cannot be separated"


@STAGES.lowering("_contrib_interleaved_matmul_selfatt_qk", reason=_HEADS, where=indivisible)
def self_scores(node: Node, build: Builder) -> Sequence[Entry]:
    """Products of queries and keys, head by head."""
    (qkv,) = node.inputs
    heads = int(node.attrs["heads"])
    queries, keys = (_projection(build, qkv, qkv.shape, heads, k, 3) for k in (0, 1))
    return _scores(build, queries, keys, qkv.shape[2] // heads // 3)


@STAGES.lowering("_contrib_interleaved_matmul_selfatt_valatt", reason=_HEADS, where=indivisible)
def self_values(node: Node, build: Builder) -> Sequence[Entry]:
    """Values weighted by attention, head by head."""
    qkv, attention = node.inputs
    heads = int(node.attrs["heads"])
    values = _projection(build, qkv, qkv.shape, heads, 2, 3)
    return _weighted(build, attention, values, qkv.shape[1], heads, qkv.shape[2] // heads // 3)


@STAGES.lowering("_contrib_interleaved_matmul_encdec_qk", reason=_HEADS, where=indivisible)
def cross_scores(node: Node, build: Builder) -> Sequence[Entry]:
    """Products of one sequence's queries and another's keys, head by head."""
    queries, pairs = node.inputs
    heads = int(node.attrs["heads"])
    query = _projection(build, queries, queries.shape, heads, 0, 1)
    key = _projection(build, pairs, pairs.shape, heads, 0, 2)
    return _scores(build, query, key, queries.shape[2] // heads)


@STAGES.lowering("_contrib_interleaved_matmul_encdec_valatt", reason=_HEADS, where=indivisible)
def cross_values(node: Node, build: Builder) -> Sequence[Entry]:
    """Another sequence's values weighted by attention, head by head."""
    pairs, attention = node.inputs
    heads = int(node.attrs["heads"])
    values = _projection(build, pairs, pairs.shape, heads, 1, 2)
    size = pairs.shape[2] // heads // 2
    return _weighted(build, attention, values, pairs.shape[1], heads, size)


_UNWRITTEN = "leaves its second gradient unwritten if the first one is not read"


@AFTER.lowering("_backward_interleaved_matmul_selfatt_valatt", reason=_UNWRITTEN, essential=True)
def backward_self_values(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """Computes the attention's gradient only: products of the head gradient and the values."""
    if build.read != {1}:
        return None
    gradient, qkv = node.inputs[:2]
    heads = int(node.attrs["heads"])
    rows = _projection(build, gradient, gradient.shape, heads, 0, 1)
    values = _projection(build, qkv, qkv.shape, heads, 2, 3)
    return [Entry(node), build.op("batch_dot", rows, values, transpose_b=True)]


@AFTER.lowering("_backward_interleaved_matmul_encdec_qk", reason=_UNWRITTEN, essential=True)
def backward_cross_scores(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """Computes the keys' gradient only, interleaved with zeros for the values."""
    if build.read != {1}:
        return None
    gradient, queries, pairs = node.inputs[:3]
    heads = int(node.attrs["heads"])
    length, batch, channels = pairs.shape
    size = channels // heads // 2
    query = _projection(build, queries, queries.shape, heads, 0, 1)
    scaled = build.op("_mul_scalar", query, scalar=1.0 / math.sqrt(size))
    by_keys = build.op("batch_dot", gradient, scaled, transpose_a=True)
    parts = build.reshape(by_keys, (batch, heads, length, 1, size))
    none = build.zeros((batch, heads, length, 1, size), dtype_name(pairs.dtype))
    both = build.op("Concat", parts, none, dim=3, num_args=2)
    both = build.op("transpose", both, axes=(2, 0, 1, 3, 4))
    return [Entry(node), build.reshape(both, pairs.shape)]


# --- Embedding ------------------------------------------------------------------------------


def _rows_are_shared(node: Node, workers: int) -> bool:
    """Whether workers should divide an embedding's rows.

    They divide its columns if possible. Otherwise they could divide the batch, but then every
    worker reads all rows, which costs more if there are more rows than lookups.
    """
    data, (rows, size) = (entry.shape for entry in node.inputs)
    idle = idle_steps(workers, size)
    return rows > math.prod(data) and any(cuts_evenly(rows, parts) for parts in idle)


@STAGES.lowering("Embedding", reason="reads all rows of its weight", where=_rows_are_shared)
def embedding(node: Node, build: Builder) -> Sequence[Entry]:
    """The sum over blocks of rows of a lookup in each; a block gives zeros for others' rows.

    Numbers out of range are clipped to the first or last row, as MXNet documents. Where rows do
    not divide, the last block ends with rows of zeros, which nobody looks up.
    """
    data, weight = node.inputs
    rows, size = weight.shape
    blocks = build.workers // math.prod(idle_steps(build.workers, rows))
    height, count = -(-rows // blocks), math.prod(data.shape)
    with build.stage("tokens"):
        token = build.op("Cast", build.op("BlockGrad", data), dtype="int32")
        token = build.op("clip", build.reshape(token, (count,)), a_min=0, a_max=rows - 1)
    with build.stage("blocks"):
        within = build.op("_mod_scalar", token, scalar=height)
        first = build.reshape(build.op("elemwise_sub", token, within), (1, count, 1))
        starts = build.op("_mul_scalar", positions(build, blocks, 0, 3, "int32"), scalar=height)
        here = build.op("broadcast_equal", first, starts)
        here = build.op("Cast", here, dtype=dtype_name(weight.dtype))
    with build.stage("rows"):
        if height * blocks > rows:
            border = f"((0, {height * blocks - rows}), (0, 0))"
            weight = build.op("_npi_pad", weight, pad_width=border, mode="constant")
        parts = build.reshape(weight, (blocks, height, size))
        vectors = build.op("take", parts, within, axis=1, mode="clip")
        vectors = build.op("broadcast_mul", vectors, here)
    with build.stage("sum"):
        out = build.op("sum", vectors, axis=(0,), keepdims=False)
        return [build.reshape(out, (*data.shape, size))]
