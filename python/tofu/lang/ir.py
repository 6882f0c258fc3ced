"""Terms of the language: index expressions and value expressions.

Semantics:

* An index expression is an affine combination of index variables with integer
  coefficients; ``a // d`` by a positive constant is the floor of the division. Nothing
  else is an index: no products of variables, no comparisons, no data-dependent index.
* An index variable ranges over ``0 .. extent-1``; bounds are inclusive on both ends.
* A value expression has no side effects and no evaluation order.
* A reducer is commutative and associative. It is undefined over an empty range; parts of a
  split range are never empty.
* A whole dimension (``:``) may only be an argument of an opaque function.

Terms are kept in canonical form, so equal index expressions compare equal.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional, Union

__all__ = [
    "WHOLE",
    "Atom",
    "Call",
    "Const",
    "Dim",
    "Element",
    "Expr",
    "FloorDiv",
    "Index",
    "IndexValue",
    "OpaqueElement",
    "Reduce",
    "Whole",
    "add",
    "children",
    "constant",
    "elements",
    "floordiv",
    "is_scalar",
    "scale",
    "show",
    "show_index",
    "substitute",
    "variable",
    "walk",
]


@dataclass(frozen=True)
class FloorDiv:
    """``floor(index / divisor)`` for a positive divisor."""

    __slots__ = ("divisor", "index")
    index: Index
    divisor: int


Atom = Union[str, FloorDiv]


@dataclass(frozen=True)
class Index:
    """The sum of coefficient * atom over ``terms``, plus ``const``."""

    __slots__ = ("const", "terms")
    terms: tuple[tuple[Atom, int], ...]
    const: int

    @property
    def plain(self) -> Optional[str]:
        """The variable, if this index is a plain variable, else None."""
        if self.const == 0 and len(self.terms) == 1:
            atom, coef = self.terms[0]
            if coef == 1 and isinstance(atom, str):
                return atom
        return None

    @property
    def variables(self) -> frozenset[str]:
        """All variables in the index, including inside floors."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= {atom} if isinstance(atom, str) else atom.index.variables
        return frozenset(names)


class Whole:
    """A dimension taken whole: the ``:`` of ``batch_mat[b, :, :]``."""

    def __repr__(self) -> str:
        return ":"


WHOLE = Whole()
Dim = Union[Index, Whole]


@dataclass(frozen=True)
class Const:
    """A number."""

    __slots__ = ("value",)
    value: float


@dataclass(frozen=True)
class IndexValue:
    """An index used as a value, as in ``start + i``."""

    __slots__ = ("index",)
    index: Index


@dataclass(frozen=True)
class Element:
    """An element of input ``slot``, or a slice of it if some dims are whole.

    Reads outside the tensor give ``fill``; None if there are no such reads. Indices other than
    plain variables may leave the tensor then, and those of the dimensions ``beyond``.
    """

    __slots__ = ("beyond", "dims", "fill", "slot", "tensor")
    slot: int
    tensor: str
    dims: tuple[Dim, ...]
    fill: Optional[str]
    beyond: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A scalar function or an arithmetic operation of values."""

    __slots__ = ("args", "function")
    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Reduce:
    """``body`` reduced over variables; kind is sum, max, min or prod."""

    __slots__ = ("body", "kind", "variables")
    kind: str
    variables: tuple[str, ...]
    body: Expr


@dataclass(frozen=True)
class OpaqueElement:
    """Element ``result`` of an opaque function's result for its arguments."""

    __slots__ = ("args", "function", "result")
    function: str
    args: tuple[Expr, ...]
    result: tuple[Index, ...]


Expr = Union[Const, IndexValue, Element, Call, Reduce, OpaqueElement]


# --- Index arithmetic, in canonical form -----------------------------------------


@functools.lru_cache(maxsize=4096)
def constant(value: int) -> Index:
    """A number as an index."""
    return Index((), value)


@functools.lru_cache(maxsize=4096)
def variable(name: str) -> Index:
    """A variable as an index."""
    return Index(((name, 1),), 0)


def _place(term: tuple[Atom, int]) -> str:
    return term[0] if isinstance(term[0], str) else repr(term[0])


def _canonical(coefs: Mapping[Atom, int], const: int) -> Index:
    terms = [(a, c) for a, c in coefs.items() if c != 0]
    if len(terms) > 1:
        terms.sort(key=_place)
    return Index(tuple(terms), const)


def add(a: Index, b: Index) -> Index:
    """The sum of two indices."""
    if not b.terms:
        return a if b.const == 0 else Index(a.terms, a.const + b.const)
    if not a.terms:
        return b if a.const == 0 else Index(b.terms, a.const + b.const)
    coefs = dict(a.terms)
    for atom, coef in b.terms:
        coefs[atom] = coefs.get(atom, 0) + coef
    return _canonical(coefs, a.const + b.const)


def scale(a: Index, factor: int) -> Index:
    """An index times a number."""
    if factor == 1:
        return a
    return _canonical({atom: coef * factor for atom, coef in a.terms}, a.const * factor)


def floordiv(a: Index, divisor: int) -> Index:
    """``a // divisor`` for a positive divisor; whole multiples leave the floor."""
    if divisor == 1:
        return a
    quotient = _canonical({t: c // divisor for t, c in a.terms}, a.const // divisor)
    rest = _canonical({t: c % divisor for t, c in a.terms}, a.const % divisor)
    if not rest.terms:
        return quotient
    if len(rest.terms) == 1 and isinstance(rest.terms[0][0], FloorDiv):
        inner, coef = rest.terms[0]
        if coef == 1:  # floor(floor(x / d) + c) / e) = floor((x + c d) / (d e))
            assert isinstance(inner, FloorDiv)
            merged = add(inner.index, constant(rest.const * inner.divisor))
            return add(quotient, floordiv(merged, inner.divisor * divisor))
    return add(quotient, Index(((FloorDiv(rest, divisor), 1),), 0))


def substitute(a: Index, values: Mapping[str, Index]) -> Index:
    """``a`` with variables replaced."""
    if a.plain is not None:
        return values.get(a.plain, a)
    result = constant(a.const)
    for atom, coef in a.terms:
        if isinstance(atom, str):
            part = values.get(atom, variable(atom))
        else:
            part = floordiv(substitute(atom.index, values), atom.divisor)
        result = add(result, scale(part, coef))
    return result


# --- Walking and printing ---------------------------------------------------------


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions."""
    if isinstance(expr, (Call, OpaqueElement)):
        return expr.args
    if isinstance(expr, Reduce):
        return (expr.body,)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all its sub-expressions, outermost first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def elements(expr: Expr) -> Iterator[Element]:
    """All tensor elements and slices in ``expr``."""
    return (e for e in walk(expr) if isinstance(e, Element))


def is_scalar(expr: Expr) -> bool:
    """Whether ``expr`` is not a slice; only opaque functions take slices."""
    return not (isinstance(expr, Element) and any(isinstance(d, Whole) for d in expr.dims))


def show_index(index: Index) -> str:
    """An index as its author would write it."""
    text = ""
    for atom, coef in index.terms:
        name = atom if isinstance(atom, str) else _show_floor(atom)
        factor = "" if abs(coef) == 1 else f"*{abs(coef)}"
        sign = "-" if coef < 0 else "+" if text else ""
        text += f"{sign}{name}{factor}"
    if index.const or not text:
        text += f"{index.const:+d}" if text else str(index.const)
    return text


def _show_floor(atom: FloorDiv) -> str:
    inner = show_index(atom.index)
    return f"{inner}//{atom.divisor}" if atom.index.plain else f"({inner})//{atom.divisor}"


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def show(expr: Expr) -> str:
    """A value expression as its author would write it."""
    if isinstance(expr, Const):
        return f"{expr.value:g}"
    if isinstance(expr, IndexValue):
        return show_index(expr.index)
    if isinstance(expr, Element):
        dims = (":" if isinstance(d, Whole) else show_index(d) for d in expr.dims)
        return f"{expr.tensor}[{', '.join(dims)}]"
    if isinstance(expr, Reduce):
        names = ", ".join(expr.variables)
        return f"{expr.kind.capitalize()}(lambda {names}: {show(expr.body)})"
    args = [show(a) for a in expr.args]
    if isinstance(expr, OpaqueElement):
        result = ", ".join(show_index(i) for i in expr.result)
        return f"{expr.function}({', '.join(args)})" + (f"[{result}]" if result else "")
    if expr.function in _INFIX and len(args) == 2:
        return f"({args[0]} {_INFIX[expr.function]} {args[1]})"
    return f"{expr.function}({', '.join(args)})"
