"""Decides whether a reduction variable may be split, and how the parts combine (case 2).

Let ``e`` be an output's element, in which ``v`` is a reduction variable. Splitting ``v``
is correct if ``e`` over the whole range is the reduction, by one reducer, of ``e`` over
the parts. That holds if the reducer is outermost, or inside operations that it distributes
over:

* a sum inside negation, scaling by something independent of ``v``, and addition of
  further sums; a max inside further maxima, a min inside further minima;
* a sum of numbers that cannot be negative inside a logarithm, alone or with something
  independent of ``v`` added: the parts are logarithms, too, and combine as the logarithm of the
  sum of their exponentials does (``logsumexp``);
* a sum divided by the sum of numbers that cannot be negative, whose logarithm is another
  output: the parts combine as means do, weighted by the exponentials of that output's parts
  (``weighted``), as FlashAttention and ring attention combine theirs;
* ``Sum(...) + g`` where ``g`` does not depend on ``v``: every part would add ``g``. This
  is correct if every part except the first gets zeros for the tensors that occur only in
  ``g``, and ``g`` of zeros is zero (``only_first``).

Everything else is rejected: a wrong strategy is worse than a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from tofu.lang import ir

__all__ = ["Combination", "combination"]

_SCALED_BY_REST = ("mul", "div")
_IDEMPOTENT = {"max": "maximum", "min": "minimum"}
_LOG_SUM, _WEIGHTED = "logsumexp", "weighted"
_POSITIVE_OF_POSITIVE = ("add", "mul", "div", "sqrt", "maximum", "minimum")
_ZERO_AT_ZERO = ("neg", "add", "sub", "like")


@dataclass(frozen=True)
class Combination:
    """Reduction that combines the parts of an output when a variable is split.

    Attributes:
        reducer: sum, max, min, prod, logsumexp or weighted; None: the output does not depend on
            the variable.
        only_first: inputs that are zeros in every part except the first.
        divisor: of weighted parts, the sum whose logarithm another output must be.
    """

    reducer: Optional[str]
    only_first: frozenset[int] = frozenset()
    divisor: Optional[ir.Expr] = None


_FREE = Combination(None)


def combination(body: ir.Expr, variable: str) -> Optional[Combination]:
    """Finds how parts of `body` combine when `variable`, bound inside it, is split.

    Returns None if they do not combine.
    """
    combined = _combine(body, variable)
    if combined is None or not combined.only_first:
        return combined
    # The sum itself must not read tensors that are zeroed.
    inside = {e.slot for r in _reductions(body, variable) for e in ir.elements(r)}
    return None if inside & combined.only_first else combined


def _reductions(body: ir.Expr, variable: str) -> Iterable[ir.Reduce]:
    return (e for e in ir.walk(body) if isinstance(e, ir.Reduce) and variable in e.variables)


def _depends(expr: ir.Expr, variable: str) -> bool:
    return any(True for _ in _reductions(expr, variable))


def _reads(expr: ir.Expr) -> frozenset[int]:
    return frozenset(e.slot for e in ir.elements(expr))


def _combine(expr: ir.Expr, v: str) -> Optional[Combination]:
    if not _depends(expr, v):
        return _FREE
    if isinstance(expr, ir.Reduce):
        return _reduce(expr, v)
    if isinstance(expr, ir.Call):
        return _call(expr, v)
    return None  # inside an opaque function


def _reduce(expr: ir.Reduce, v: str) -> Optional[Combination]:
    if v in expr.variables:
        return None if _depends(expr.body, v) else Combination(expr.kind)
    inner = _combine(expr.body, v)
    if inner is None or inner.reducer != expr.kind:
        return None  # a sum of maxima is not a maximum of sums
    return inner


def _call(expr: ir.Call, v: str) -> Optional[Combination]:
    if expr.function == "like":
        rest = any(_depends(arg, v) for arg in expr.args[1:])
        return None if rest else _combine(expr.args[0], v)
    if expr.function == "neg":
        inner = _combine(expr.args[0], v)
        return inner if inner is not None and inner.reducer == "sum" else None
    if expr.function == "log":
        return _logarithm(expr.args[0], v)
    if len(expr.args) != 2:
        return None
    a, b = expr.args
    if expr.function in _SCALED_BY_REST:
        return _scaled(expr.function, a, b, v)
    if expr.function in ("add", "sub"):
        return _added(expr.function, a, b, v)
    if expr.function in _IDEMPOTENT.values():
        return _idempotent(expr.function, a, b, v)
    return None


def _scaled(function: str, a: ir.Expr, b: ir.Expr, v: str) -> Optional[Combination]:
    """``Sum * g`` and ``Sum / g``: the sum distributes over both. ``Sum / Sum`` is a mean."""
    if function == "mul" and not _depends(a, v):
        a, b = b, a
    if _depends(b, v):
        return _mean(a, b, v) if function == "div" else None
    inner = _combine(a, v)
    if inner is None or inner.reducer != "sum":
        return None
    return None if _reads(b) & inner.only_first else inner


def _mean(total: ir.Expr, divisor: ir.Expr, v: str) -> Optional[Combination]:
    """``Sum / Sum``: a part's mean times its divisor is its sum."""
    parts = [_combine(total, v), _combine(divisor, v)]
    if not all(part == Combination("sum") for part in parts) or not _is_positive(divisor):
        return None
    return Combination(_WEIGHTED, divisor=divisor)


def _logarithm(expr: ir.Expr, v: str) -> Optional[Combination]:
    """``log(Sum)``: no part may have the logarithm of a negative number."""
    inner = _combine(expr, v)
    if inner is None or inner.reducer != "sum" or not _is_positive(expr):
        return None
    return Combination(_LOG_SUM, inner.only_first)


def _is_positive(expr: ir.Expr) -> bool:
    """Whether ``expr`` is provably not negative."""
    if isinstance(expr, ir.Const):
        return expr.value >= 0
    if isinstance(expr, ir.Reduce):
        return _is_positive(expr.body)
    if not isinstance(expr, ir.Call):
        return False
    return expr.function == "exp" or (
        expr.function in _POSITIVE_OF_POSITIVE and all(map(_is_positive, expr.args))
    )


def _added(function: str, a: ir.Expr, b: ir.Expr, v: str) -> Optional[Combination]:
    parts = [_combine(a, v), _combine(b, v)]
    if parts[0] is not None and parts[0].reducer == _LOG_SUM:
        return None if _depends(b, v) or _reads(b) & parts[0].only_first else parts[0]
    if function == "add" and parts[1] is not None and parts[1].reducer == _LOG_SUM:
        return _added(function, b, a, v)
    only_first: frozenset[int] = frozenset()
    for expr, part in zip((a, b), parts):
        if part is None or part.reducer not in (None, "sum"):
            return None
        only_first |= part.only_first
        if part.reducer is None:
            zeroed = _reads(expr)
            if not _vanishes(expr, zeroed):
                return None
            only_first |= zeroed
    return Combination("sum", only_first)


def _vanishes(expr: ir.Expr, zeroed: frozenset[int]) -> bool:
    """Whether ``expr`` is provably zero when the tensors `zeroed` are."""
    if isinstance(expr, ir.Const):
        return expr.value == 0
    if isinstance(expr, ir.Element):
        return expr.slot in zeroed and expr.fill in (None, "0")
    if isinstance(expr, ir.Reduce):
        return expr.kind == "sum" and _vanishes(expr.body, zeroed)
    if not isinstance(expr, ir.Call):
        return False
    if expr.function == "like":
        return _vanishes(expr.args[0], zeroed)
    if expr.function == "mul":
        return any(_vanishes(arg, zeroed) for arg in expr.args)
    return expr.function in _ZERO_AT_ZERO and all(_vanishes(a, zeroed) for a in expr.args)


def _idempotent(function: str, a: ir.Expr, b: ir.Expr, v: str) -> Optional[Combination]:
    """``maximum(Max, g)``: reducing g with itself changes nothing."""
    reducer = next(r for r, f in _IDEMPOTENT.items() if f == function)
    for part in (_combine(a, v), _combine(b, v)):
        if part is None or part.reducer not in (None, reducer):
            return None
    return Combination(reducer)
