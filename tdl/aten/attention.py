"""Scaled products of queries and keys, softmax, and values, per batch and head."""

from __future__ import annotations

from tofu.lang import Opaque, Over, op
from tofu.tdl._shapes import instances

_ALL = slice(None)


def _mask_word(mask):
    """The variables that index a mask of two to four dimensions: batch and head if it has them."""
    marks = ["n", "h", ".", "."][4 - mask.ndim :]
    return "".join("0" if one and m != "." else m for m, one in zip(marks, mask.ones))


@op(name="aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(query, key, value, mask=None, *, is_causal=False):
    """The weighted values, and the logarithms of the weights' sums."""
    attend = Opaque("Attend")
    word = "" if mask is None else _mask_word(mask)

    def read(n, h, q):
        # A causal mask counts queries from the first one, so the queries are then whole.
        tensors = [query[n, h, _ALL if is_causal else q, :], key[n, h, :, :], value[n, h, :, :]]
        if mask is not None:
            by = {"n": n, "h": h, "0": 0, ".": _ALL}
            place = [by[mark] for mark in word]
            place[-2] = 0 if mask.ones[-2] else _ALL if is_causal else q
            tensors.append(mask[place])
        return attend(*tensors)

    if is_causal:
        return (
            Over(["n", "h", "q", "d"], lambda n, h, q, d: read(n, h, q)[q, d]),
            Over(["n", "h", "q"], lambda n, h, q: read(n, h, q)[q]),
        )
    return (
        Over(["n", "h", "q", "d"], lambda n, h, q, d: read(n, h, q)[d]),
        Over(["n", "h", "q"], lambda n, h, q: read(n, h, q)),
    )


@op(name="aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(grad, query, key, value, out, logsumexp, mask=None):
    """The gradients of queries, keys and values."""
    reads = [(x, "nh..") for x in (grad, query, key, value, out)] + [(logsumexp, "nh.")]
    if mask is not None:
        reads.append((mask, _mask_word(mask)))
    return instances("nh.. nh.. nh..", *reads)
