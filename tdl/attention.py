"""Attention with interleaved heads, whose projections are (length, batch, heads * channels).

Scores have shape (batch * heads, rows, columns). A head's queries, keys and values are
adjacent, so heads are not split; the rows and columns of encoder and decoder are.
"""

from __future__ import annotations

from tofu.lang import Opaque, Over, Reindex, Sum, op


def _merged(shape, heads, value):
    """An output of shape (batch * heads, i, j)."""
    return Reindex(
        ["n", "h", "i", "j"],
        [shape[0] // heads, heads, *shape[1:]],
        at=lambda n, h, i, j: (n * heads + h, i, j),
        value=value,
    )


def _of(tensor, heads, n, *place):
    """One instance of a tensor of shape (batch * heads, ...): a slice per head."""
    return [tensor[(n * heads + h, *place)] for h in range(heads)]


_ALL = slice(None)


@op(name="_contrib_interleaved_matmul_selfatt_qk")
def self_attention_scores(qkv, *, heads, out_shapes):
    """Products of queries and keys."""
    scores = Opaque("Scores")
    return _merged(out_shapes[0], heads, lambda n, h, i, j: scores(qkv[:, n, :])[h, i, j])


@op(name="_backward_interleaved_matmul_selfatt_qk")
def backward_self_attention_scores(ograd, qkv, *, heads):
    """The gradient of queries, keys and values."""
    scores = Opaque("ScoresGradient")
    return lambda t, n, c: scores(*_of(ograd, heads, n, _ALL, _ALL), qkv[:, n, :])[t, c]


@op(name="_contrib_interleaved_matmul_selfatt_valatt")
def self_attention_values(qkv, attention, *, heads):
    """Values weighted by attention."""
    values = Opaque("Values")
    return lambda t, n, c: values(qkv[:, n, :], *_of(attention, heads, n, _ALL, _ALL))[t, c]


@op(name="_backward_interleaved_matmul_selfatt_valatt")
def backward_self_attention_values(ograd, qkv, attention, *, heads):
    """The gradients of queries, keys and values, and of attention."""
    values = Opaque("ValuesGradient")

    def instance(n):
        return values(ograd[:, n, :], qkv[:, n, :], *_of(attention, heads, n, _ALL, _ALL))

    by_attention = _merged(attention.shape, heads, lambda n, h, i, j: instance(n)[h, i, j])
    return Over(["t", "n", "c"], lambda t, n, c: instance(n)[t, c]), by_attention


@op(name="_contrib_interleaved_matmul_encdec_qk")
def cross_attention_scores(queries, keys_values, *, heads, out_shapes):
    """Products of one sequence's queries and another's keys."""
    scores = Opaque("Scores")
    value = lambda n, h, i, j: scores(queries[i, n, :], keys_values[j, n, :])[h]  # noqa: E731
    return _merged(out_shapes[0], heads, value)


@op(name="_backward_interleaved_matmul_encdec_qk")
def backward_cross_attention_scores(ograd, queries, keys_values, *, heads):
    """The gradients of both projections, each summed over the other's sequence."""
    scores = Opaque("ScoresGradient")

    def at(i, j, n):
        return scores(*_of(ograd, heads, n, i, j), queries[i, n, :], keys_values[j, n, :])

    by_queries = Over(["i", "n", "c"], lambda i, n, c: Sum(lambda j: at(i, j, n)[c]))
    return by_queries, Over(["j", "n", "d"], lambda j, n, d: Sum(lambda i: at(i, j, n)[d]))


@op(name="_contrib_interleaved_matmul_encdec_valatt")
def cross_attention_values(keys_values, attention, *, heads):
    """Values weighted by attention: a sum over their sequence."""
    values = Opaque("Values")

    def term(i, n, c, j):
        return values(keys_values[j, n, :], *_of(attention, heads, n, i, j))[c]

    return lambda i, n, c: Sum(lambda j: term(i, n, c, j))


@op(name="_backward_interleaved_matmul_encdec_valatt")
def backward_cross_attention_values(ograd, keys_values, attention, *, heads):
    """The gradient of the values, summed over rows, and of attention."""
    values = Opaque("ValuesGradient")

    def at(i, j, n):
        return values(ograd[i, n, :], keys_values[j, n, :], *_of(attention, heads, n, i, j))

    by_attention = _merged(attention.shape, heads, lambda n, h, i, j: at(i, j, n)[h])
    return Over(["j", "n", "c"], lambda j, n, c: Sum(lambda i: at(i, j, n)[c])), by_attention
