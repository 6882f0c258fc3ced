"""Scaled products of queries and keys, softmax, and values, per batch and head.

Heads come in groups that share keys and values: head r of group g is head g * R + r of the queries.
"""

from __future__ import annotations

from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, op

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


def _reader(heads, key, value, mask, begin, lines):
    """Reads what query q of head r of group g of sample n needs of queries, keys and mask.

    A causal mask depends on the query's number; a part of the queries is told where it begins.
    """
    function = Opaque("Attention")

    def read(n, g, r, q):
        place = n, heads.number(g, r), q
        reads = [x[(*place, *[_ALL] * (x.ndim - 3))] for x in lines]
        reads += [x[n, g, :, :] for x in (key, value)]
        if mask is not None:
            own = zip(place[4 - mask.ndim :], mask.ones)
            reads.append(mask[(*(0 if one else i for i, one in own), _ALL)])
        return function(*reads, *([] if begin is None else [q + begin]))

    return read


def _told(shapes, is_causal=False, **rest):
    """Tells a part where its queries begin, if a causal mask depends on it."""
    return [Rewrite("begin", {"begin": "q"})] if is_causal else []


@op(name="tofu.attention.default", rewrites=_told)
def attention(query, key, value, mask=None, *, is_causal=False, grouped=False, begin=None):
    """The weighted values, and the logarithms of the weights' sums."""
    heads = _Heads(query, key, grouped)
    read = _reader(heads, key, value, mask, (begin or 0) if is_causal else None, [query])
    return (
        heads.output(
            ["q", "d"],
            lambda: (query.shape[2], value.shape[3]),
            lambda n, g, r, q, d: read(n, g, r, q)[d],
        ),
        heads.output(["q"], lambda: (query.shape[2],), read),
    )


@op(name="tofu.attention_backward.default", rewrites=_told)
def attention_backward(
    grad, query, key, value, out, logsumexp, mask=None, *,
    is_causal=False, grouped=False, begin=None,
):  # fmt: skip
    """The gradients of queries, keys and values: those of keys and values are sums over queries."""
    heads = _Heads(query, key, grouped)
    first = (begin or 0) if is_causal else None
    read = _reader(heads, key, value, mask, first, [grad, query, out, logsumexp])

    def of_key(n, g, k, e):
        return heads.sum(["q"], lambda: (query.shape[2],), lambda r, q: read(n, g, r, q)[k, e])

    return (
        heads.output(
            ["q", "e"], lambda: query.shape[2:], lambda n, g, r, q, e: read(n, g, r, q)[e]
        ),
        Over(["n", "g", "k", "e"], of_key),
        Over(["n", "g", "k", "d"], of_key),
    )
