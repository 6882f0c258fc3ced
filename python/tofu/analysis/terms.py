"""Finds the inputs that an operator may read as terms of a sum.

Let each worker hold a term of some inputs. If the operator is applied to the terms, and the
results add up to its output for the sums, it *passes terms through*. It does if every output is
jointly linear in these inputs: each term of its expression has exactly one of them as a factor, to
the first power. An input that is added to such terms belongs to the set, too: it counts for one
worker, and is zeros for the others.

Example:
    >>> import tofu
    >>> from tofu.analysis.terms import linear_inputs
    >>> @tofu.op
    ... def dense(x, w):
    ...     return lambda b, o: tofu.Sum(lambda k: x[b, k] * w[o, k])
    >>> sorted(map(sorted, linear_inputs(dense.trace([(4, 3), (2, 3)], [(4, 2)], {}))))
    [[0], [1]]

See docs/design/0023-sums-that-wait.md.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Optional

from tofu.lang import ir
from tofu.lang.tracing import Trace

__all__ = ["linear_inputs", "passes_terms"]

Slots = frozenset[int]

_ADDED = ("add", "sub")
_MOST_SETS = 64  # of one expression; a product of many factors has one for each


def linear_inputs(trace: Trace) -> frozenset[Slots]:
    """The sets of inputs, by number, through which terms pass; none is part of another.

    Only sets that some term needs are listed: a product of two inputs has two sets of one
    input each, a sum of two inputs has one set of both.
    """
    bodies = [output.body for output in trace.outputs if output.like is None]
    if not bodies:
        return frozenset()
    found = {s for s in _joined(map(_sets, bodies)) if all(_degree(b, s) == 1 for b in bodies)}
    return frozenset(s for s in found if not any(s < other for other in found))


def passes_terms(trace: Trace) -> bool:
    """Whether terms of all inputs together pass through."""
    return frozenset(range(len(trace.inputs))) in linear_inputs(trace)


def _joined(choices: Iterable[frozenset[Slots]]) -> frozenset[Slots]:
    """The unions of one set of each choice."""

    def join(left: frozenset[Slots], right: frozenset[Slots]) -> frozenset[Slots]:
        pairs = itertools.product(sorted(left, key=sorted), sorted(right, key=sorted))
        return frozenset(a | b for a, b in itertools.islice(pairs, _MOST_SETS))

    return functools.reduce(join, choices)


def _sets(expr: ir.Expr) -> frozenset[Slots]:
    """Sets of inputs in which `expr` may be linear."""
    if isinstance(expr, ir.Element):
        return frozenset({frozenset({expr.slot})})
    if isinstance(expr, ir.Reduce):
        return _sets(expr.body)
    if not isinstance(expr, ir.Call):
        return frozenset()
    if expr.function in _ADDED:
        return _joined(map(_sets, expr.args))
    if expr.function == "mul":
        return frozenset().union(*map(_sets, expr.args))
    return _sets(expr.args[0]) if expr.function in ("neg", "div", "like") else frozenset()


def _degree(expr: ir.Expr, slots: Slots) -> Optional[int]:
    """1 if `expr` is linear in `slots`, 0 if it does not depend on them, else None."""
    if isinstance(expr, ir.Element):
        return int(expr.slot in slots) if expr.fill in (None, "0") else _constant(expr, slots)
    if isinstance(expr, ir.Reduce) and expr.kind == "sum":
        return _degree(expr.body, slots)
    if not isinstance(expr, ir.Call):
        return _constant(expr, slots)
    degrees = [_degree(arg, slots) for arg in expr.args]
    if expr.function in ("like", "neg"):
        return degrees[0]
    if expr.function in _ADDED:
        return degrees[0] if degrees[0] == degrees[1] else None
    if expr.function == "mul" and None not in degrees:
        total = sum(degree or 0 for degree in degrees)
        return total if total <= 1 else None
    if expr.function == "div" and degrees[1] == 0:
        return degrees[0]
    return _constant(expr, slots)


def _constant(expr: ir.Expr, slots: Slots) -> Optional[int]:
    """0 if the expression reads none of the inputs, else None."""
    return None if {element.slot for element in ir.elements(expr)} & slots else 0
