"""Scaled products of queries and keys, softmax, and values, per batch and head.

Heads come in groups that share keys and values: head r of group g is head g * R + r of the queries.
"""

from __future__ import annotations

from tofu.lang import Opaque, Over, Reindex, Sum, op

_ALL = slice(None)


class _Heads:
    """The heads of a call, alone or in groups.

    Args:
        query, key: the tensors; their sizes matter only for groups.
        grouped: whether heads share keys.
    """

    def __init__(self, query, key, grouped):
        self._query, self._grouped = query, grouped
        self._groups = key.shape[1] if grouped else None
        self.each = query.shape[1] // self._groups if grouped else 1

    def number(self, g, r):
        """The number of head r of group g."""
        return g * self.each + r if self._grouped else g

    def output(self, rest, sizes, value):
        """An output with heads, whose element is ``value(n, g, r, *rest)``."""
        if not self._grouped:
            return Over(["n", "g", *rest], lambda n, g, *i: value(n, g, 0, *i))
        return Reindex(
            ["n", "g", "r", *rest],
            [self._query.shape[0], self._groups, self.each, *sizes()],
            at=lambda n, g, r, *i: (n, self.number(g, r), *i),
            value=value,
        )

    def sum(self, names, sizes, value):
        """The sum of ``value(r, *names)`` over the heads of a group, and over named variables."""
        if self._grouped:
            return Sum(Over(["r", *names], value), extent=(self.each, *sizes()))
        return Sum(Over(names, lambda *i: value(0, *i))) if names else value(0)


def _reader(heads, key, value, mask, is_causal, lines):
    """Reads what query q of head r of group g of sample n needs of queries, keys and mask.

    A causal mask counts queries from the first one, so the queries are then whole.
    """
    function = Opaque("Attention")

    def read(n, g, r, q):
        place = n, heads.number(g, r), _ALL if is_causal else q
        reads = [x[(*place, *[_ALL] * (x.ndim - 3))] for x in lines]
        reads += [x[n, g, :, :] for x in (key, value)]
        if mask is not None:
            own = zip(place[4 - mask.ndim :], mask.ones)
            reads.append(mask[(*(0 if one else i for i, one in own), _ALL)])
        return function(*reads)

    return read


@op(name="tofu.attention.default")
def attention(query, key, value, mask=None, *, is_causal=False, grouped=False):
    """The weighted values, and the logarithms of the weights' sums."""
    heads = _Heads(query, key, grouped)
    read = _reader(heads, key, value, mask, is_causal, [query])

    def out(n, g, r, q, d):
        return read(n, g, r, q)[(q, d) if is_causal else (d,)]

    def logs(n, g, r, q):
        found = read(n, g, r, q)
        return found[q] if is_causal else found

    return (
        heads.output(["q", "d"], lambda: (query.shape[2], value.shape[3]), out),
        heads.output(["q"], lambda: (query.shape[2],), logs),
    )


@op(name="tofu.attention_backward.default")
def attention_backward(
    grad, query, key, value, out, logsumexp, mask=None, *, is_causal=False, grouped=False
):
    """The gradients of queries, keys and values: those of keys and values are sums over queries."""
    heads = _Heads(query, key, grouped)
    read = _reader(heads, key, value, mask, is_causal, [grad, query, out, logsumexp])
    summed = [] if is_causal else ["q"]

    def of_query(n, g, r, q, e):
        return read(n, g, r, q)[(q, e) if is_causal else (e,)]

    def of_key(n, g, k, e):
        return heads.sum(
            summed,
            lambda: () if is_causal else (query.shape[2],),
            lambda r, *q: read(n, g, r, q[0] if q else None)[k, e],
        )

    return (
        heads.output(["q", "e"], lambda: query.shape[2:], of_query),
        Over(["n", "g", "k", "e"], of_key),
        Over(["n", "g", "k", "d"], of_key),
    )
