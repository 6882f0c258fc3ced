"""Operators on integers that stand for reals; every tensor comes with its range.

Ranges are tensors of one element. An output's range depends on the inputs' ranges or on attributes.
Operators that search all of the data for the range are not described.
"""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Over, Rewrite, apply, op
from tofu.tdl._shapes import axis_of, instances, letters, line


def _ranges(ranges):
    """The least and the greatest value that an output can have."""
    one = Over(["one1"], lambda _: apply("range", *(r[(0,) * r.ndim] for r in ranges)))
    return one, one


def _check_range(min_calib_range, max_calib_range):
    if min_calib_range is None or max_calib_range is None:
        raise InconclusiveError("without a calibrated range it is searched in all the data")


def _elementwise(tensors, ranges):
    word = letters(tensors[0].ndim)
    return instances(word, *((x, word) for x in tensors), *((r, "") for r in ranges))


@op(name=("_contrib_quantize", "_contrib_quantized_act"))
def quantize(data, low, high):
    """Each element as an integer, or a function of the element."""
    return *_elementwise([data], [low, high]), *_ranges([low, high])


@op(name="_contrib_dequantize")
def dequantize(data, low, high):
    """Each element as a real."""
    return _elementwise([data], [low, high])


@op(name=("_contrib_quantize_v2", "_contrib_quantize_asym", "_contrib_requantize"))
def calibrated(data, *ranges, min_calib_range=None, max_calib_range=None):
    """Each element as an integer, for a range that attributes give."""
    _check_range(min_calib_range, max_calib_range)
    return *_elementwise([data], ranges), *_ranges(ranges)


@op(name=("_contrib_quantized_elemwise_add", "_contrib_quantized_elemwise_mul"))
def quantized_binary(lhs, rhs, *ranges):
    """A function of two elements."""
    return *_elementwise([lhs, rhs], ranges), *_ranges(ranges)


@op(name="_contrib_quantized_flatten")
def quantized_flatten(data, *ranges):
    """Instances as rows."""
    return *instances("n.", (data, "n")), *_ranges(ranges)


@op(name="_contrib_quantized_pooling")
def quantized_pooling(data, *ranges):
    """Planes resampled."""
    return *instances("nc..", (data, "nc")), *_ranges(ranges)


@op(name="_contrib_quantized_concat")
def quantized_concat(*args, dim=1):
    """Tensors joined, in the widest of their ranges."""
    count = len(args) // 3
    word = line(args[0].ndim, axis_of(dim, args[0].ndim))
    reads = [(x, word if k < count else "") for k, x in enumerate(args)]
    return *instances(word, *reads), *_ranges(args[count:])


@op(name="_contrib_quantized_conv")
def quantized_convolution(data, *args, no_bias=False):
    """A convolution, instance by instance."""
    word = "n" + "." * (data.ndim - 1)
    return *instances(word, (data, "n"), *((x, "") for x in args)), *_ranges(args[2 - no_bias :])


@op(name="_contrib_quantized_fully_connected", rewrites=[Rewrite("num_hidden", {"size": "o"})])
def quantized_fully_connected(data, weight, *args, no_bias=False):
    """A product with a matrix; the sum is over all of a row."""
    bias = [] if no_bias else [(args[0], "o")]
    ranges = args[1 - no_bias :]
    reads = (data, "n"), (weight, "o"), *bias, *((r, "") for r in ranges)
    return *instances("no", *reads), *_ranges(ranges)


@op(name="_contrib_quantized_embedding", rewrites=[Rewrite("output_dim", {"size": "w"})])
def quantized_embedding(data, weight, *ranges):
    """The row of weight that each element of data names."""
    word = letters(data.ndim)
    return *instances(word + "w", (data, word), (weight, ".w")), *_ranges(ranges)


@op(name="_contrib_quantized_batch_norm", stateful=True)
def quantized_batch_norm(data, *args, axis=1):
    """Each channel scaled and shifted, to a range that attributes give."""
    word = letters(data.ndim)
    channel = word[axis_of(axis, data.ndim)]
    states, ranges = args[:4], args[4:]
    reads = (data, word), *((x, channel) for x in states), *((r, "") for r in ranges)
    return *instances(word, *reads), *_ranges(ranges)


@op(name="_contrib_quantized_rnn")
def quantized_rnn(data, parameters, state, *args, state_outputs=False):
    """The fused recurrent operator, over the batch."""
    states = 2 if state_outputs else 0
    reads = (data, ".n"), (parameters, ""), (state, ".n"), *((x, _state(x)) for x in args)
    return instances(".n. " * (1 + states), *reads)


def _state(tensor):
    return ".n" if tensor.ndim == 3 else ""
