"""Scalar functions, reducers and opaque functions of the language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

from tofu.lang import ir
from tofu.lang.handles import OpaqueHandle, ValueHandle, to_expr
from tofu.lang.source import fail
from tofu.lang.tracing import Over, declare_extent, scope

__all__ = [
    "Max",
    "Min",
    "Opaque",
    "Prod",
    "Sum",
    "apply",
    "exp",
    "like",
    "log",
    "maximum",
    "minimum",
    "sqrt",
    "where",
]

Extent = Union[int, Sequence[int]]


def apply(function: str, *args: object) -> ValueHandle:
    """Applies a scalar function that the analysis knows only by name.

    Args:
        function: the function's name, for printing.
        *args: its arguments.
    """
    return ValueHandle(ir.Call(function, tuple(to_expr(a) for a in args)))


def exp(x: object) -> ValueHandle:
    """The exponential."""
    return apply("exp", x)


def log(x: object) -> ValueHandle:
    """The natural logarithm."""
    return apply("log", x)


def sqrt(x: object) -> ValueHandle:
    """The square root."""
    return apply("sqrt", x)


def maximum(a: object, b: object) -> ValueHandle:
    """The larger of two values."""
    return apply("maximum", a, b)


def minimum(a: object, b: object) -> ValueHandle:
    """The smaller of two values."""
    return apply("minimum", a, b)


def where(condition: object, a: object, b: object) -> ValueHandle:
    """``a`` where the condition, a value, is not 0, else ``b``."""
    return apply("where", condition, a, b)


def like(value: object, *read: object) -> ValueHandle:
    """``value``, noting that the operator also needs the elements `read`, if only their shape."""
    return apply("like", value, *read)


class Opaque:
    """A function of which only the arguments are known.

    Called with elements and slices, it returns a tensor to index, or a value.

    Example:
        >>> import tofu
        >>> @tofu.op
        ... def batch_cholesky(batch_mat):
        ...     Cholesky = tofu.Opaque()
        ...     return lambda b, i, j: Cholesky(batch_mat[b, :, :])[i, j]
        >>> [s.variable for s in tofu.analyze(batch_cholesky).strategies]
        ['b']
    """

    def __init__(self, name: str = "Opaque") -> None:
        self._name = name

    def __call__(self, *args: object) -> OpaqueHandle:
        """The function's result for these arguments: values, indices, slices."""
        exprs = tuple(to_expr(a, slices=True) for a in args)
        return OpaqueHandle(ir.OpaqueElement(self._name, exprs, ()))


def _reducer(kind: str, doc: str) -> Callable[..., ValueHandle]:
    def reduce(body: Union[Over, Callable[..., Any]], *, extent: Optional[Extent] = None) -> Any:
        return _reduce(kind, body, extent)

    reduce.__name__ = reduce.__qualname__ = kind.capitalize()
    reduce.__doc__ = doc
    return reduce


def _reduce(
    kind: str, body: Union[Over, Callable[..., Any]], extent: Optional[Extent]
) -> ValueHandle:
    name = kind.capitalize()
    if not callable(body) and not isinstance(body, Over):
        raise fail(
            f"{name} of something that is not a lambda",
            f"{name}({body!r})" if not isinstance(body, ValueHandle) else ir.show(body.node),
            f"{name}(lambda k: x[..., k]), which names the variables to reduce over",
        )
    extents = [] if extent is None else [extent] if isinstance(extent, int) else list(extent)
    with scope(body, None, f"{name}(lambda ...)") as (names, value):
        if not names:
            raise fail(
                f"{name} has nothing to reduce",
                f"{name}(lambda: {ir.show(to_expr(value))})",
                f"a lambda of at least one variable, {name}(lambda k: ...)",
            )
        if extents and len(extents) != len(names):
            raise fail(
                f"{name} over {len(names)} variables with {len(extents)} extents",
                f"{name}(lambda {', '.join(names)}: ..., extent={tuple(extents)})",
                "one extent per variable",
            )
        for variable, size in zip(names, extents):
            declare_extent(variable, int(size))
        return ValueHandle(ir.Reduce(kind, names, to_expr(value)))


_DOC = """The {0} of the body over the lambda's variables.

    Args:
        body: a lambda of the variables to reduce over, or an Over.
        extent: the variables' extents, if no tensor dimension determines them.
    """

Sum = _reducer("sum", _DOC.format("sum"))
Max = _reducer("max", _DOC.format("maximum"))
Min = _reducer("min", _DOC.format("minimum"))
Prod = _reducer("prod", _DOC.format("product"))
