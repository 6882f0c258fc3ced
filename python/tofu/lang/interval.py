"""Symbolic interval analysis of index expressions (paper section 4.2, Figure 4).

An interval's ends are affine in the variables' symbolic bounds: every variable ``x`` of
a part ranges over ``[x.lo, x.hi]``, inclusive, and only the order of the two is known.
Coefficients are exact: rationals occur only as one floor division of the whole
form. The paper's ``[l, u]`` vectors are the special case ``x.lo = l X, x.hi = u X``.

There are three kinds of results. *Exact*: both ends are attained. *Over-approximation*
(``exact=False``): every touched element is inside, but the ends need not be touched.
*Inconclusive*: no form of this kind bounds the index; raises InconclusiveError. The docstring
of each transfer function says in which direction it errs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tofu.errors import InconclusiveError
from tofu.lang import ir

__all__ = ["LOWER", "UPPER", "Form", "Interval", "hull", "interval_of"]

LOWER, UPPER = 0, 1
_MAX_DIVISOR = 1 << 31


@dataclass(frozen=True)
class Form:
    """``floor((sum of coef * bound(variable) + const) / divisor)``."""

    __slots__ = ("const", "divisor", "terms")
    terms: tuple[tuple[str, int, int], ...]  # variable, LOWER or UPPER, coefficient
    const: int
    divisor: int

    def evaluate(self, ranges: Mapping[str, tuple[int, int]]) -> int:
        """The value for inclusive ranges of the variables."""
        total = sum(coef * ranges[name][bound] for name, bound, coef in self.terms)
        return (total + self.const) // self.divisor

    def __str__(self) -> str:
        text = ""
        for name, bound, coef in self.terms:
            sign = "-" if coef < 0 else "+" if text else ""
            factor = "" if abs(coef) == 1 else f"{abs(coef)}*"
            text += f"{sign}{factor}{name}.{'lo' if bound == LOWER else 'hi'}"
        if self.const or not text:
            text += f"{self.const:+d}" if text else str(self.const)
        return text if self.divisor == 1 else f"({text})//{self.divisor}"


@dataclass(frozen=True)
class Interval:
    """The integers from ``lo`` to ``hi``, both included."""

    __slots__ = ("exact", "hi", "lo")
    lo: Form
    hi: Form
    exact: bool

    @property
    def variables(self) -> frozenset[str]:
        """The variables whose bounds occur in the ends."""
        return frozenset(t[0] for t in self.lo.terms + self.hi.terms)

    def __str__(self) -> str:
        return f"{self.lo}" if self.lo == self.hi else f"{self.lo}..{self.hi}"


def interval_of(index: ir.Index) -> Interval:
    """The interval that ``index`` sweeps.

    Exact if every variable occurs in one term only. If a variable occurs twice (inside
    and outside a floor), the terms count as independent: an over-approximation.

    Raises:
        InconclusiveError: the product of the divisors is too large for a form.
    """
    result = Interval(*(Form((), index.const, 1),) * 2, True)
    seen: set[str] = set()
    for atom, coef in index.terms:
        names = {atom} if isinstance(atom, str) else atom.index.variables
        part = _scale(_atom(atom), coef)
        result = _add(result, part, independent=seen.isdisjoint(names))
        seen |= names
    return result


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval around both; an over-approximation unless they are equal.

    Raises:
        InconclusiveError: the ends differ by more than a constant, so the variables'
            bounds decide which one is the outer.
    """
    if a == b:
        return a
    lo = _outer(a.lo, b.lo, least=True)
    hi = _outer(a.hi, b.hi, least=False)
    return Interval(lo, hi, False)


# --- Transfer functions ----------------------------------------------------------


def _atom(atom: ir.Atom) -> Interval:
    """Exact for a variable; as exact as its operand for a floor (floor is monotone)."""
    if isinstance(atom, str):
        return Interval(Form(((atom, LOWER, 1),), 0, 1), Form(((atom, UPPER, 1),), 0, 1), True)
    inner = interval_of(atom.index)
    return Interval(_divide(inner.lo, atom.divisor), _divide(inner.hi, atom.divisor), inner.exact)


def _divide(form: Form, divisor: int) -> Form:
    """Exact: floor(floor(a / d) / e) = floor(a / (d e))."""
    _check_divisor(form.divisor * divisor)
    return Form(form.terms, form.const, form.divisor * divisor)


def _scale(a: Interval, factor: int) -> Interval:
    """Exact without a floor; with one, k floor(a/d) is within k(d-1)/d below k a/d."""
    lo, hi = (a.lo, a.hi) if factor >= 0 else (a.hi, a.lo)
    if lo.divisor == hi.divisor == 1 or factor == 1:
        return Interval(_times(lo, factor), _times(hi, factor), a.exact)
    slack_lo = abs(factor) * (lo.divisor - 1) if factor > 0 else 0
    slack_hi = abs(factor) * (hi.divisor - 1) if factor < 0 else 0
    new_lo, new_hi = _times(lo, factor), _times(hi, factor)
    return Interval(
        Form(new_lo.terms, new_lo.const - slack_lo, new_lo.divisor),
        Form(new_hi.terms, new_hi.const + slack_hi, new_hi.divisor),
        False,
    )


def _times(form: Form, factor: int) -> Form:
    terms = tuple((name, bound, coef * factor) for name, bound, coef in form.terms)
    return Form(terms, form.const * factor, form.divisor)


def _add(a: Interval, b: Interval, *, independent: bool) -> Interval:
    """Exact for independent terms if at most one of them is a floor.

    The sum of two floors is at most 1 below the floor of the sum, so the lower end
    drops by 1.
    """
    both = min(a.lo.divisor, b.lo.divisor) > 1 or min(a.hi.divisor, b.hi.divisor) > 1
    lo, hi = _sum(a.lo, b.lo), _sum(a.hi, b.hi)
    if both:
        lo = Form(lo.terms, lo.const - lo.divisor, lo.divisor)
    return Interval(lo, hi, a.exact and b.exact and independent and not both)


def _sum(a: Form, b: Form) -> Form:
    divisor = a.divisor * b.divisor
    _check_divisor(divisor)
    coefs: dict[tuple[str, int], int] = {}
    for form, factor in ((a, b.divisor), (b, a.divisor)):
        for name, bound, coef in form.terms:
            coefs[name, bound] = coefs.get((name, bound), 0) + coef * factor
    terms = tuple((n, b, c) for (n, b), c in sorted(coefs.items()) if c)
    return Form(terms, a.const * b.divisor + b.const * a.divisor, divisor)


def _outer(a: Form, b: Form, *, least: bool) -> Form:
    if (a.terms, a.divisor) != (b.terms, b.divisor):
        raise InconclusiveError(
            f"index ranges end at {a} and at {b}: the outer one depends on the part; "
            "expected ends that differ by a constant"
        )
    const = min(a.const, b.const) if least else max(a.const, b.const)
    return Form(a.terms, const, a.divisor)


def _check_divisor(divisor: int) -> None:
    if divisor > _MAX_DIVISOR:
        raise InconclusiveError(
            f"index range with a divisor of {divisor}: expected at most {_MAX_DIVISOR}; "
            "describe the dimension as a whole (:) of an opaque function"
        )
