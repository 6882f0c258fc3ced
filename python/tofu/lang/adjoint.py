"""Derives descriptions of backward operators from their forward operators' descriptions.

For an output ``O[v] = Sum_r X[A(v, r)] * others`` the gradient is
``gX[a] = Sum over every (v, r) with A(v, r) = a of gO[v] * others``. If all indices
are plain variables, this is again a description that reduces over the variables outside
``A``. A variable that occurs in another index (``x + dx``), or twice in one tensor
(``x[i, i]``), is *entangled*. So is a variable of a reduction whose result the derivative
reads: a maximum, or a sum inside another function. The dimensions that an entangled variable
indexes are taken whole, as arguments of an opaque function. So this does not find the halo of
a convolution's gradient, but what it finds is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from tofu.errors import InconclusiveError
from tofu.lang import ir
from tofu.lang.handles import TensorHandle, ValueHandle, to_expr
from tofu.lang.tracing import Over, scope

__all__ = ["adjoint"]

_LINEAR = ("add", "sub", "neg")


@dataclass(frozen=True)
class _Occurrence:
    """An element of the tensor, and the elements its derivative reads besides the gradient."""

    element: ir.Element
    factors: tuple[ir.Element, ...]
    bound: tuple[str, ...]
    product: bool  # the derivative is the factors' product


def adjoint(
    forward: Union[Over, Callable[..., Any]],
    ograd: TensorHandle,
    wrt: Sequence[Optional[TensorHandle]],
) -> list[Over]:
    """Derive the lambdas of the gradients of an operator with one output.

    Args:
        forward: the output's lambda, over the backward operator's own tensors.
        ograd: the output's gradient.
        wrt: the tensors to differentiate with respect to, in the order of the gradients;
            None is left out.

    Raises:
        InconclusiveError: a tensor occurs at two different indices.
    """
    with scope(forward, len(ograd.shape), "adjoint") as (names, value):
        body = to_expr(value)
    entangled = _entangled(body)
    upstream = _untangled(
        ir.Element(ograd.slot, ograd.name, tuple(ir.variable(n) for n in names), None, ()),
        entangled,
    )
    return [_gradient(tensor, body, upstream, entangled) for tensor in wrt if tensor is not None]


def _gradient(
    tensor: TensorHandle, body: ir.Expr, upstream: ir.Element, entangled: frozenset[str]
) -> Over:
    occurrences = list(_occurrences(body, tensor.slot))
    if len({o.element.dims for o in occurrences}) != 1:
        raise InconclusiveError(
            f"gradient of {tensor.name}: it occurs at {len(occurrences)} indices, expected "
            "one; describe this backward operator by hand"
        )
    element = _untangled(occurrences[0].element, entangled)
    names, result = _gradient_index(tensor.name, element)
    reads = [upstream]
    for occurrence in occurrences:
        reads += [_untangled(f, entangled) for f in occurrence.factors]
    product = len(occurrences) == 1 and occurrences[0].product
    value: ir.Expr
    if product and not result and all(ir.is_scalar(e) for e in reads):
        value = reads[0]
        for factor in reads[1:]:
            value = ir.Call("mul", (value, factor))
        value = ir.Call("like", (value, element))
    else:
        value = ir.OpaqueElement("gradient", (*dict.fromkeys(reads), element), result)
    summed = sorted({v for e in reads for d in e.dims for v in _variables(d)} - set(names))
    if summed:
        value = ir.Reduce("sum", tuple(summed), value)
    return Over(names, lambda *_: ValueHandle(value))


def _gradient_index(name: str, element: ir.Element) -> tuple[tuple[str, ...], tuple[ir.Index, ...]]:
    """The gradient's variables, and the indices into the opaque function's result."""
    names: list[str] = []
    result: list[ir.Index] = []
    for d, dim in enumerate(element.dims):
        plain = dim.plain if isinstance(dim, ir.Index) else None
        if plain is not None and plain not in names:
            names.append(plain)
            continue
        names.append(f"{name}_{d}")
        if isinstance(dim, ir.Whole) or dim.terms:
            result.append(ir.variable(names[-1]))
    return tuple(names), tuple(result)


def _variables(dim: ir.Dim) -> frozenset[str]:
    return dim.variables if isinstance(dim, ir.Index) else frozenset()


def _entangled(body: ir.Expr) -> frozenset[str]:
    names = set(_reduced_not_linearly(body))
    for element in ir.elements(body):
        once: set[str] = set()
        for dim in element.dims:
            if not isinstance(dim, ir.Index):
                continue
            if dim.plain is None or dim.plain in once:
                names |= dim.variables
            once |= dim.variables
    return frozenset(names)


def _reduced_not_linearly(expr: ir.Expr, linear: bool = True) -> Iterator[str]:
    """The variables of reductions whose result, not just its elements, the derivative reads."""
    if isinstance(expr, ir.Reduce):
        linear = linear and expr.kind == "sum"
        if not linear:
            yield from expr.variables
    elif isinstance(expr, ir.Call):
        linear = linear and expr.function in (*_LINEAR, "mul")
    else:
        linear = False
    for child in ir.children(expr):
        yield from _reduced_not_linearly(child, linear)


def _untangled(element: ir.Element, entangled: frozenset[str]) -> ir.Element:
    """The element with whole dimensions in place of entangled indices."""
    dims = tuple(
        ir.WHOLE if isinstance(d, ir.Whole) or d.variables & entangled else d for d in element.dims
    )
    return ir.Element(element.slot, element.tensor, dims, None, ())


def _occurrences(expr: ir.Expr, slot: int) -> Iterator[_Occurrence]:
    """Every occurrence of the tensor, with the factors on the way to it."""
    if isinstance(expr, ir.Element):
        if expr.slot == slot:
            yield _Occurrence(expr, (), (), True)
        return
    if isinstance(expr, ir.Reduce):
        linear = expr.kind == "sum"
        others = () if linear else tuple(ir.elements(expr.body))
        for occurrence in _occurrences(expr.body, slot):
            yield _extended(occurrence, others, expr.variables, linear)
        return
    linear = isinstance(expr, ir.Call) and expr.function in (*_LINEAR, "mul")
    for child in ir.children(expr):
        for occurrence in _occurrences(child, slot):
            others = ()
            if not linear:
                others = tuple(ir.elements(expr))
            elif isinstance(expr, ir.Call) and expr.function == "mul":
                others = tuple(e for arg in expr.args if arg is not child for e in ir.elements(arg))
            yield _extended(occurrence, others, (), linear)


def _extended(
    occurrence: _Occurrence,
    others: tuple[ir.Element, ...],
    bound: tuple[str, ...],
    linear: bool,
) -> _Occurrence:
    return _Occurrence(
        occurrence.element,
        occurrence.factors + others,
        occurrence.bound + bound,
        occurrence.product and linear,
    )
