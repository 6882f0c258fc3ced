"""Counts an operator's arithmetic from its description.

    >>> from tofu.analysis.work import operator_work
    >>> operator_work("dot", {}, [(64, 32), (32, 64)], [(64, 64)])
    Work(kind='product', flops=262144.0)

The description says how each element of an output is computed, so the operator's operations are
the element's, added up over all values of the index variables. An expression is computed once for
the values of the variables in it, however many elements read it: an attention's scores, not once
for each column of its values.

* A scalar function is one operation; a function of n values is n - 1.
* A reduction over n elements computes its body n times, plus n operations.
* An opaque function takes one operation per element of its largest slice, shared by the elements
  of its result: a softmax reads its row a few times. A derived gradient (lang.adjoint) multiplies
  its slices with each other and adds up the products; the largest slice's index follows from the
  others'.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

from tofu import _core
from tofu.analysis.described import description_of
from tofu.analysis.strategies import concrete_extents, variable_extents
from tofu.analysis.table import described_name
from tofu.dtypes import dtype_bytes
from tofu.lang import ir
from tofu.lang.tracing import Shape, Trace

__all__ = ["KINDS", "Work", "WorkRecord", "is_light", "node_work", "operator_work"]

WorkRecord = tuple[str, float, float]  # kind, FLOPs, bytes

KINDS = ("product", "convolution", "reduction", "elementwise", "movement", "other")
_GRADIENT = "gradient"  # the opaque function of lang.adjoint
_SUMS_OF_PRODUCTS = ("product", "convolution")
# Operations per element read or written from which arithmetic, not memory, is the bottleneck.
_DENSE = 8
# Functions of descriptions that do no work: ``like`` names a shape.
_FREE = ("like",)


@dataclasses.dataclass(frozen=True)
class Work:
    """The arithmetic of an operator, without its reads and writes.

    Attributes:
        kind: one of KINDS; "other" if the operator is an opaque function, or has no
            description.
        flops: operations on elements.
    """

    kind: str
    flops: float


UNKNOWN = Work("other", 0.0)


def operator_work(
    op: str, attrs: Mapping[str, str], ins: Sequence[Shape], outs: Sequence[Shape]
) -> Work:
    """Count the work of an operator's call; UNKNOWN if its description fails.

    Args:
        op: the operator's name.
        attrs: the operator's attributes, as MXNet's strings.
        ins: one shape per input.
        outs: one shape per output, hidden ones included.
    """
    try:
        name, attributes = described_name(op, attrs)
        return _count(name, tuple(sorted(attributes.items())), tuple(ins), tuple(outs))
    except Exception:  # a description is a program, so it may raise anything
        return UNKNOWN


def is_light(
    op: str, attrs: Mapping[str, str], ins: Sequence[Shape], outs: Sequence[Shape]
) -> bool:
    """Whether memory bounds an operator's call, not arithmetic: that of a known description.

    Takes what ``operator_work`` takes.
    """
    work = operator_work(op, attrs, ins, outs)
    return work is not UNKNOWN and work.flops < _DENSE * _elements(ins, outs)


def node_work(node: _core.Node) -> WorkRecord:
    """The work of a node: its kind, its FLOPs, and the bytes that it reads and writes.

    An operator that only moves elements reads as many as it writes, however large its inputs.
    """
    work = operator_work(
        node.op, node.attrs, [shape for shape, _ in node.inputs], [s for s, _ in node.outputs]
    )
    read, written = (
        sum(math.prod(shape) * dtype_bytes(dtype) for shape, dtype in tensors)
        for tensors in (node.inputs, node.outputs)
    )
    if work.kind == "movement":
        read = min(read, written)
    return work.kind, work.flops, float(read + written)


@functools.lru_cache(maxsize=1 << 16)
def _count(
    op: str, attrs: tuple[tuple[str, str], ...], ins: tuple[Shape, ...], outs: tuple[Shape, ...]
) -> Work:
    description = description_of(op)
    if description is None:
        return UNKNOWN
    trace = description.trace(ins, outs, dict(attrs))
    counter = _Counter(trace, ins, outs)
    flops = sum(counter.flops())
    return Work(counter.kind(is_dense=flops >= _DENSE * _elements(ins, outs)), flops)


def _elements(ins: Iterable[Shape], outs: Iterable[Shape]) -> int:
    return sum(math.prod(shape) for shape in (*ins, *outs))


class _Counter:
    """Counts the operations of a trace for concrete shapes."""

    def __init__(self, trace: Trace, ins: Sequence[Shape], outs: Sequence[Shape]) -> None:
        self._trace = trace
        self._ins = ins
        self._extents = concrete_extents(trace, variable_extents(trace), ins, outs)

    def flops(self) -> list[float]:
        """The operations of every expression in the outputs."""
        bodies = [output.body for output in self._trace.outputs if output.like is None]
        found = dict.fromkeys(each for body in bodies for each in ir.walk(body))
        return [self._volume(_variables(expr)) * self._own(expr) for expr in found]

    def kind(self, *, is_dense: bool) -> str:
        """The first of KINDS that fits one of the outputs.

        is_dense: whether sums of products have enough operations to be limited by
            arithmetic; if not, they count as other reductions.
        """
        kinds = {_kind(out.body) for out in self._trace.outputs if out.like is None}
        if not is_dense and kinds & set(_SUMS_OF_PRODUCTS):
            return "reduction"
        return min(kinds, key=KINDS.index, default="movement")

    def _volume(self, variables: Iterable[str]) -> float:
        return math.prod(float(self._extents[name]) for name in variables)

    def _own(self, expr: ir.Expr) -> float:
        """The operations for one value of its variables, without those of the expressions in it."""
        if isinstance(expr, ir.Call):
            return 0.0 if expr.function in _FREE else max(1.0, len(expr.args) - 1)
        if isinstance(expr, ir.Reduce):  # a gradient includes its additions
            return 0.0 if _is_gradient(expr.body) else self._volume(expr.variables)
        return self._opaque(expr) if isinstance(expr, ir.OpaqueElement) else 0.0

    def _opaque(self, expr: ir.OpaqueElement) -> float:
        sizes = sorted({e: self._slice(e) for e in expr.args if isinstance(e, ir.Element)}.values())
        largest = sizes[-1] if sizes else 1.0
        work = largest
        if _is_gradient(expr):
            work = 2 * math.prod(sizes[:-1])
        names = sorted({name for index in expr.result for name in index.variables})
        return work / max(self._volume(names), 1.0)

    def _slice(self, element: ir.Element) -> float:
        """The number of elements of an opaque function's argument."""
        shape = self._ins[element.slot]
        return math.prod(
            float(size) for size, dim in zip(shape, element.dims) if isinstance(dim, ir.Whole)
        )


@functools.lru_cache(maxsize=4096)
def _variables(expr: ir.Expr) -> frozenset[str]:
    """The variables that an expression's value depends on."""
    names = frozenset().union(*map(_variables, ir.children(expr)))
    if isinstance(expr, ir.Reduce):
        return names - {*expr.variables}
    dims = {ir.Element: "dims", ir.OpaqueElement: "result"}.get(type(expr))
    indices = getattr(expr, dims) if dims else ()
    if isinstance(expr, ir.IndexValue):
        indices = (expr.index,)
    return names.union(*(i.variables for i in indices if isinstance(i, ir.Index)))


def _is_gradient(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.OpaqueElement) and expr.function == _GRADIENT


def _kind(body: ir.Expr) -> str:
    """The kind of an output with this element."""
    parts = list(ir.walk(body))
    if any(_is_gradient(e) and _has_slices(list(ir.walk(e))) for e in parts):
        return "convolution"
    reductions = [e for e in parts if isinstance(e, ir.Reduce)]
    if any(isinstance(e, ir.OpaqueElement) for e in parts):
        return "reduction" if reductions else "other"
    for expr in reductions:
        if expr.kind == "sum" and len({e.slot for e in ir.elements(expr.body)}) > 1:
            windows = (_is_window(e) for e in ir.elements(expr.body))
            return "convolution" if any(windows) else "product"
    if reductions:
        return "reduction"
    calls = (e for e in parts if isinstance(e, ir.Call) and e.function not in _FREE)
    return "elementwise" if any(calls) else "movement"


def _is_window(element: ir.Element) -> bool:
    dims = (dim for dim in element.dims if isinstance(dim, ir.Index))
    return any(len(dim.variables) > 1 for dim in dims)


def _has_slices(parts: Sequence[ir.Expr]) -> bool:
    slices = [e for e in parts if isinstance(e, ir.Element) and not ir.is_scalar(e)]
    return len({e.slot for e in slices}) > 1
