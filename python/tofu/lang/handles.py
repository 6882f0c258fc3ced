"""Handles, the objects that a description's lambdas compute with.

Executing a description on handles executes it symbolically: operators build terms
(``tofu.lang.ir``), and anything that the language lacks raises a TdlError that
shows the description and says what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional, Union

from tofu.lang import ir
from tofu.lang.shapes import KnownShape
from tofu.lang.source import fail

__all__ = ["IndexHandle", "OpaqueHandle", "TensorHandle", "ValueHandle", "to_expr", "to_index"]

_AFFINE = (
    "index arithmetic is affine: + and - of index variables and integers, * by a constant "
    "integer, // by a positive one; put other functions into an opaque function (tofu.Opaque)"
)
_NO_COMPARISON = (
    "index variables cannot be compared; put a case distinction into an opaque function "
    "(tofu.Opaque), or compare values with tofu.lang.where"
)


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, IndexHandle))


class ValueHandle:
    """A value expression."""

    __slots__ = ("node",)

    def __init__(self, node: ir.Expr) -> None:
        self.node = node

    def _call(self, function: str, *args: object) -> ValueHandle:
        return ValueHandle(ir.Call(function, tuple(to_expr(a) for a in args)))

    def __add__(self, other: object) -> ValueHandle:
        return self._call("add", self, other)

    def __radd__(self, other: object) -> ValueHandle:
        return self._call("add", other, self)

    def __sub__(self, other: object) -> ValueHandle:
        return self._call("sub", self, other)

    def __rsub__(self, other: object) -> ValueHandle:
        return self._call("sub", other, self)

    def __mul__(self, other: object) -> ValueHandle:
        return self._call("mul", self, other)

    def __rmul__(self, other: object) -> ValueHandle:
        return self._call("mul", other, self)

    def __truediv__(self, other: object) -> ValueHandle:
        return self._call("div", self, other)

    def __rtruediv__(self, other: object) -> ValueHandle:
        return self._call("div", other, self)

    def __pow__(self, other: object) -> ValueHandle:
        return self._call("power", self, other)

    def __neg__(self) -> ValueHandle:
        return self._call("neg", self)

    def __lt__(self, other: object) -> ValueHandle:
        return self._call("less", self, other)

    def __le__(self, other: object) -> ValueHandle:
        return self._call("less_equal", self, other)

    def __gt__(self, other: object) -> ValueHandle:
        return self._call("less", other, self)

    def __ge__(self, other: object) -> ValueHandle:
        return self._call("less_equal", other, self)

    def __eq__(self, other: object) -> ValueHandle:  # type: ignore[override]
        return self._call("equal", self, other)

    def __ne__(self, other: object) -> ValueHandle:  # type: ignore[override]
        return self._call("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise fail(
            "control flow depends on a value",
            ir.show(self.node),
            "instead of branching, write tofu.lang.where(condition, a, b)",
        )


class IndexHandle:
    """An index expression."""

    __slots__ = ("index",)

    def __init__(self, index: ir.Index) -> None:
        self.index = index

    def __repr__(self) -> str:
        return ir.show_index(self.index)

    def _as_value(self) -> ValueHandle:
        return ValueHandle(ir.IndexValue(self.index))

    def _reject(self, what: str, sign: str, other: object, allowed: str = _AFFINE) -> NoReturn:
        raise fail(what, f"{self} {sign} {_text(other)}", allowed)

    def __add__(self, other: object) -> Any:
        if isinstance(other, IndexHandle):
            return IndexHandle(ir.add(self.index, other.index))
        if _is_int(other):
            return IndexHandle(ir.add(self.index, ir.constant(int(other))))  # type: ignore[call-overload]
        return self._as_value() + other

    def __radd__(self, other: object) -> Any:
        return self + other

    def __neg__(self) -> IndexHandle:
        return IndexHandle(ir.scale(self.index, -1))

    def __sub__(self, other: object) -> Any:
        if isinstance(other, IndexHandle) or _is_int(other):
            return self + -other  # type: ignore[operator]
        return self._as_value() - other

    def __rsub__(self, other: object) -> Any:
        if _is_int(other):
            return -self + other
        return other - self._as_value()

    def __mul__(self, other: object) -> Any:
        if isinstance(other, IndexHandle):
            self._reject("product of index variables", "*", other)
        if _is_int(other):
            return IndexHandle(ir.scale(self.index, int(other)))  # type: ignore[call-overload]
        return self._as_value() * other

    def __rmul__(self, other: object) -> Any:
        return self * other

    def __floordiv__(self, other: object) -> IndexHandle:
        if isinstance(other, IndexHandle) or not _is_int(other) or int(other) <= 0:  # type: ignore[call-overload]
            self._reject("division of an index by other than a positive constant", "//", other)
        return IndexHandle(ir.floordiv(self.index, int(other)))  # type: ignore[call-overload]

    def __rfloordiv__(self, other: object) -> NoReturn:
        raise fail("division by an index variable", f"{_text(other)} // {self}", _AFFINE)

    def __mod__(self, other: object) -> NoReturn:
        self._reject("remainder of an index", "%", other)

    def __truediv__(self, other: object) -> Any:
        if isinstance(other, IndexHandle):
            self._reject("quotient of index variables", "/", other)
        return self._as_value() / other

    def __rtruediv__(self, other: object) -> Any:
        return other / self._as_value()

    def __pow__(self, other: object) -> NoReturn:
        self._reject("power of an index variable", "**", other)

    def __lt__(self, other: object) -> Any:
        return self._compare("<", other)

    def __le__(self, other: object) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Any:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise fail("control flow depends on an index variable", repr(self), _NO_COMPARISON)

    def __index__(self) -> int:
        raise fail("an index variable used as a number", repr(self), _AFFINE)

    def _compare(self, sign: str, other: object) -> NoReturn:
        self._reject("comparison of index variables", sign, other, _NO_COMPARISON)


class TensorHandle:
    """An input tensor. ``shape`` is known if the analysis has shapes."""

    __slots__ = ("_shape", "beyond", "fill", "name", "rank", "slot")

    def __init__(
        self,
        slot: int,
        name: str,
        shape: Optional[KnownShape],
        fill: Optional[str] = None,
        beyond: tuple[int, ...] = (),
    ) -> None:
        self.slot = slot
        self.name = name
        self._shape = shape
        self.rank: Optional[int] = None if shape is None else len(shape)
        self.fill = fill
        self.beyond = beyond

    @property
    def shape(self) -> KnownShape:
        """The tensor's extents. Raises TdlError in an analysis without shapes."""
        if self._shape is None:
            raise fail(
                "the description reads a shape, but the analysis has none",
                f"{self.name}.shape",
                "give shapes: tofu.analyze(description, [shape, ...])",
            )
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions. Raises TdlError in an analysis without shapes."""
        return len(self.shape)

    @property
    def ones(self) -> tuple[bool, ...]:
        """Per dimension, whether its size is 1. Raises TdlError in an analysis without shapes."""
        return self.shape.ones

    def padded(self, fill: Union[int, str] = 0, beyond: Sequence[int] = ()) -> TensorHandle:
        """Returns the tensor padded: reads outside it give `fill` ("-inf" is allowed).

        beyond: dimensions that have too few elements for a variable that is their whole index.
        """
        return TensorHandle(self.slot, self.name, self._shape, str(fill), tuple(beyond))

    def __getitem__(self, key: object) -> ValueHandle:
        dims: list[ir.Dim] = []
        for item in _flatten(key):
            if isinstance(item, slice):
                dims.append(self._whole(item))
            else:
                dims.append(to_index(item, lambda: f"{self.name}[{_text(key)}]"))
        if self.rank is None:
            self.rank = len(dims)
        if self.rank != len(dims):
            raise fail(
                f"wrong rank: {self.name} has rank {self.rank}, but its index has rank {len(dims)}",
                f"{self.name}[{_text(key)}]",
                "one index (or ':', for an opaque function) per dimension",
            )
        element = ir.Element(self.slot, self.name, tuple(dims), self.fill, self.beyond)
        return ValueHandle(element)

    def __iter__(self) -> NoReturn:
        raise fail("loop over a tensor", self.name, "index it by lambda variables")

    def _whole(self, item: slice) -> ir.Whole:
        if (item.start, item.stop, item.step) != (None, None, None):
            raise fail(
                "a slice with bounds",
                f"{self.name}[{_text(item)}]",
                "':' alone; write the bounds as index arithmetic, x[i+2]",
            )
        return ir.WHOLE


class OpaqueHandle(ValueHandle):
    """The result of an opaque function: a tensor to index, or a value."""

    __slots__ = ()

    def __getitem__(self, key: object) -> ValueHandle:
        node = self.node
        assert isinstance(node, ir.OpaqueElement)
        result = tuple(
            to_index(item, lambda: f"{node.function}(...)[{_text(key)}]") for item in _flatten(key)
        )
        return ValueHandle(ir.OpaqueElement(node.function, node.args, result))


def to_index(item: object, where: Callable[[], str]) -> ir.Index:
    """Converts a handle or an integer to an index expression; `where` locates errors."""
    if isinstance(item, IndexHandle):
        return item.index
    if _is_int(item):
        return ir.constant(int(item))  # type: ignore[call-overload]
    what = "a tensor's element" if isinstance(item, ValueHandle) else f"{_text(item)!r}"
    raise fail(
        f"{what} used as an index",
        where(),
        "indices are affine in the index variables; put data-dependent indexing into an opaque "
        "function of the element and a whole dimension: Lookup(indices[i], table[:, d])",
    )


def to_expr(item: object, *, slices: bool = False) -> ir.Expr:
    """Converts a handle or a number to a value expression; slices only with `slices`."""
    if isinstance(item, ValueHandle):
        if not slices and not ir.is_scalar(item.node):
            raise fail(
                "arithmetic on a slice",
                ir.show(item.node),
                "only arguments of an opaque function may be slices (':'); index every dimension",
            )
        return item.node
    if isinstance(item, IndexHandle):
        return ir.IndexValue(item.index)
    if isinstance(item, (int, float)) or _is_int(item) or hasattr(item, "__float__"):
        return ir.Const(float(item))  # type: ignore[arg-type]
    if isinstance(item, TensorHandle):
        raise fail(
            "a whole tensor used as a value",
            item.name,
            f"index it: {item.name}[i, ...], or {item.name}[:] for an opaque function",
        )
    raise fail(
        "not a value of the language",
        _text(item),
        "numbers, tensor elements, arithmetic, functions of tofu.lang, reducers and "
        "opaque functions",
    )


def _flatten(key: object) -> list[object]:
    if isinstance(key, (tuple, list)):
        return [item for part in key for item in _flatten(part)]
    return [key]


def _text(item: object) -> str:
    if isinstance(item, (tuple, list)):
        return ", ".join(_text(part) for part in item)
    if isinstance(item, ValueHandle):
        return ir.show(item.node)
    if isinstance(item, slice):
        ends = ["" if e is None else str(e) for e in (item.start, item.stop)]
        return ":".join(ends)
    return item.name if isinstance(item, TensorHandle) else repr(item)
