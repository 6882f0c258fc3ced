"""Scaled products of queries and keys, softmax, and values, per batch and head.

Heads come in groups that share keys and values: head r of group g is head g * R + r of the queries.
"""

from __future__ import annotations

from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, exp, log, op

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


def _reader(name, heads, of_queries, of_keys, mask, begins):
    """A function of query q of head r of group g of sample n, and of key k.

    A causal mask depends on the numbers of both; a part of either is told where it begins.
    """
    function = Opaque(name)

    def read(n, g, r, q, k):
        place = n, heads.number(g, r), q
        reads = [x[(*place, *[_ALL] * (x.ndim - 3))] for x in of_queries]
        reads += [x[n, g, k, :] for x in of_keys]
        if mask is not None:
            own = zip((*place, k)[4 - mask.ndim :], mask.ones)
            reads.append(mask[tuple(0 if one else i for i, one in own)])
        return function(*reads, *(i + begin for i, begin in zip((q, k), begins)))

    return read


def _begins(is_causal, begin, key_begin):
    return (begin or 0, key_begin or 0) if is_causal else ()


def _told(shapes, is_causal=False, **rest):
    """Tells a part where its queries and keys begin, if a causal mask depends on it."""
    begins = {"begin": "q", "key_begin": "k"} if is_causal else {}
    return [Rewrite(name, {"begin": variable}) for name, variable in begins.items()]


@op(name="tofu.attention.default", rewrites=_told)
def attention(
    query, key, value, mask=None, *, is_causal=False, grouped=False, begin=None, key_begin=None
):
    """The mean of the values, weighted by exponentials of scores, and the weights' logarithms."""
    heads = _Heads(query, key, grouped)
    begins = _begins(is_causal, begin, key_begin)
    score = _reader("Score", heads, [query], [key], mask, begins)
    line = Opaque("Line")  # whose elements are not divided: each would take all scores again

    def weight(*place):
        return Sum(lambda k: exp(score(*place, k)))

    def mean(n, g, r, q, d):
        total = Sum(lambda k: exp(score(n, g, r, q, k)) * line(value[n, g, k, :])[d])
        return total / weight(n, g, r, q)

    return (
        heads.output(["q", "d"], lambda: (query.shape[2], value.shape[3]), mean),
        heads.output(["q"], lambda: (query.shape[2],), lambda *place: log(weight(*place))),
    )


@op(name="tofu.attention_backward.default", rewrites=_told)
def attention_backward(
    grad, query, key, value, out, logsumexp, mask=None, *,
    is_causal=False, grouped=False, begin=None, key_begin=None,
):  # fmt: skip
    """The gradients: those of queries are sums over keys, those of keys and values over queries."""
    heads = _Heads(query, key, grouped)
    begins = _begins(is_causal, begin, key_begin)
    of_queries = [grad, query, out, logsumexp]
    read = _reader("Gradient", heads, of_queries, [key, value], mask, begins)

    def of_query(n, g, r, q, e):
        return Sum(lambda k: read(n, g, r, q, k)[e])

    def of_key(n, g, k, e):
        return heads.sum(["q"], lambda: (query.shape[2],), lambda r, q: read(n, g, r, q, k)[e])

    return (
        heads.output(["q", "e"], lambda: query.shape[2:], of_query),
        Over(["n", "g", "k", "e"], of_key),
        Over(["n", "g", "k", "d"], of_key),
    )
