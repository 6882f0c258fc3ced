"""Executes a description symbolically: turns its lambdas into terms."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Optional, Union

from tofu.lang import ir
from tofu.lang.handles import IndexHandle, TensorHandle, to_expr, to_index
from tofu.lang.source import Source, current, fail

__all__ = [
    "InputTrace",
    "OutputTrace",
    "Over",
    "Reindex",
    "Shape",
    "Trace",
    "Unread",
    "declare_extent",
    "execute",
    "scope",
]

Shape = tuple[int, ...]


class Over:
    """A lambda with computed variable names: ``Over(["b", "i0"], fn)``.

    Args:
        names: the variables.
        function: called with one index per name.
    """

    def __init__(self, names: Sequence[str], function: Callable[..., Any]) -> None:
        self.names = tuple(names)
        self.function = function


class Reindex:
    """An output in which several variables share one index.

    ``output[at(*v)] = value(*v)`` for all values of the variables, which must reach
    every element exactly once: a reshape of (6, 5) to (30,) is
    ``Reindex(["a", "b"], [6, 5], at=lambda a, b: a*5 + b, value=lambda a, b: x[a, b])``.

    Args:
        names: the variables.
        extents: the extent of each variable.
        at: the output's index, one expression per dimension.
        value: the element at that index.
    """

    def __init__(
        self,
        names: Sequence[str],
        extents: Sequence[int],
        *,
        at: Callable[..., Any],
        value: Callable[..., Any],
    ) -> None:
        self.names = tuple(names)
        self.extents = tuple(extents)
        self.at = at
        self.value = value


class Unread:
    """An output that nothing reads.

    The description leaves out its elements. MXNet may still need its shape, which is that of a
    part of `tensor`: for example, the gradient of an input has the input's shape.

    Args:
        tensor: an input.
    """

    def __init__(self, tensor: TensorHandle) -> None:
        self.tensor = tensor


Lambda = Union[Over, Reindex, Unread, Callable[..., Any]]


@dataclass(frozen=True)
class InputTrace:
    """An input tensor: its name, and its rank if known."""

    name: str
    rank: Optional[int]


@dataclass(frozen=True)
class OutputTrace:
    """An output: its variables, its index over them (one per dimension), its element.

    If nothing reads it, `like` is the input whose part gives its shape.
    """

    variables: tuple[str, ...]
    index: tuple[ir.Index, ...]
    body: ir.Expr
    like: Optional[int] = None


@dataclass(frozen=True)
class Trace:
    """An executed description, as terms.

    Attributes:
        source: the description's place in the source code.
        inputs: its tensors.
        outputs: its outputs, in order.
        extents: the extents that the description itself declares.
        reads_sizes: whether it depends on sizes other than 1.
    """

    source: Source
    inputs: tuple[InputTrace, ...]
    outputs: tuple[OutputTrace, ...]
    extents: Mapping[str, int]
    reads_sizes: bool = False


@dataclass
class _State:
    extents: dict[str, int] = field(default_factory=dict)
    bound: list[str] = field(default_factory=list)


_state: contextvars.ContextVar[Optional[_State]] = contextvars.ContextVar("_state", default=None)


def declare_extent(name: str, extent: int) -> None:
    """Record a variable's extent. Raises TdlError if it already has a different one."""
    state = _state.get()
    if state is None:
        return
    if state.extents.setdefault(name, extent) != extent:
        raise fail(
            f"variable {name} has two extents",
            f"{state.extents[name]} and {extent}",
            "variables with the same name are one variable; rename the second one",
        )


@contextlib.contextmanager
def scope(
    body: Union[Over, Callable[..., Any]], rank: Optional[int], where: str
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Execute a lambda with its variables bound; yield their names and its result."""
    names, call = _signature(body, rank, where)
    state = _state.get()
    bound = state.bound if state is not None else []
    for name in names:
        if name in bound or names.count(name) > 1:
            raise fail(
                f"variable {name} is bound twice",
                where,
                "different names in nested lambdas; rename this one",
            )
    bound.extend(names)
    try:
        yield names, call([IndexHandle(ir.variable(name)) for name in names])
    finally:
        del bound[len(bound) - len(names) :]


Parameters = tuple[tuple[str, ...], tuple[str, ...], Optional[str]]


@functools.lru_cache(maxsize=4096)
def _parameters_of(code: CodeType) -> Parameters:
    """The positional and the keyword-only parameters of a function's code, and ``*args``."""
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    variadic = names[count + only] if code.co_flags & inspect.CO_VARARGS else None
    return names[:count], names[count : count + only], variadic


def _parameters(body: Callable[..., Any]) -> Parameters:
    """The parameters of a callable that is not a function."""
    every = inspect.signature(body).parameters.values()
    variadic = next((p.name for p in every if p.kind is p.VAR_POSITIONAL), None)
    keywords = tuple(p.name for p in every if p.kind is p.KEYWORD_ONLY)
    others = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in every if p.kind in others), keywords, variadic


def _signature(
    body: Union[Over, Callable[..., Any]], rank: Optional[int], where: str
) -> tuple[tuple[str, ...], Callable[[list[IndexHandle]], Any]]:
    """Returns a lambda's variables, ``*i`` expanded to the rank, and a way to call it."""
    if isinstance(body, Over):
        return body.names, lambda handles: body.function(*handles)
    plain = type(body) is FunctionType and not hasattr(body, "__wrapped__")
    parameters = _parameters_of(body.__code__) if plain else _parameters(body)
    positional, keywords, variadic = list(parameters[0]), list(parameters[1]), parameters[2]
    if variadic is not None:
        if rank is None:
            raise fail(
                f"*{variadic} stands for one variable per dimension, but the number of dimensions "
                "is unknown here",
                where,
                "give shapes to the analysis; in a reducer, name the variables (tofu.lang.Over)",
            )
        count = max(rank - len(positional) - len(keywords), 0)
        positional += [f"{variadic}{d}" for d in range(count)]
    names = tuple(positional + keywords)

    def call(handles: list[IndexHandle]) -> Any:
        named = dict(zip(keywords, handles[len(positional) :]))
        return body(*handles[: len(positional)], **named)

    return names, call


def _output(item: Lambda, number: int, shape: Optional[Shape]) -> OutputTrace:
    where = f"output {number}"
    like = None
    names: tuple[str, ...]
    body: ir.Expr
    if isinstance(item, Unread):
        like = item.tensor.slot
        names = tuple(f"unread{number}_{d}" for d in range(item.tensor.ndim))
        index = tuple(ir.variable(name) for name in names)
        body = ir.Call("unread", tuple(ir.IndexValue(i) for i in index))
    elif isinstance(item, Reindex):
        for name, extent in zip(item.names, item.extents):
            declare_extent(name, extent)
        with scope(Over(item.names, item.at), None, where) as (names, at):
            dims = at if isinstance(at, (tuple, list)) else (at,)
            index = tuple(to_index(dim, lambda: f"{where}: at") for dim in dims)
        with scope(Over(item.names, item.value), None, where) as (_, value):
            body = to_expr(value)
    elif callable(item) or isinstance(item, Over):
        with scope(item, None if shape is None else len(shape), where) as (names, value):
            body = to_expr(value)
        index = tuple(ir.variable(name) for name in names)
    else:
        raise fail(
            f"{where} is not described by a lambda",
            f"{item!r}",
            "return lambda i, j: ..., or a tuple of lambdas, one per output",
        )
    if shape is not None and len(shape) != len(index):
        raise fail(
            f"wrong rank: {where} has rank {len(shape)}, but its lambda has rank {len(index)}",
            f"lambda {', '.join(names)}: ...",
            "one variable per dimension of the output, or *i",
        )
    return OutputTrace(names, index, body, like)


def execute(
    source: Source,
    function: Callable[..., Any],
    tensors: Sequence[TensorHandle],
    attributes: Mapping[str, Any],
    out_shapes: Optional[Sequence[Shape]],
) -> Trace:
    """Execute a description symbolically.

    Outputs that the operator lacks (see `out_shapes`) are dropped: another build of MXNet
    may have fewer hidden ones.

    Raises:
        TdlError: the description is not valid TDL; the message shows its source and what is
            allowed.
    """
    state = _State()
    tokens = current.set(source), _state.set(state)
    try:
        result = function(*tensors, **attributes)
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        if out_shapes is not None:
            if len(items) < len(out_shapes):
                raise fail(
                    f"the operator has {len(out_shapes)} outputs, the description {len(items)}",
                    f"{len(items)} lambdas",
                    "one lambda per output, including hidden outputs",
                )
            items = items[: len(out_shapes)]
        shapes = out_shapes if out_shapes is not None else [None] * len(items)
        outputs = [_output(item, k, shape) for k, (item, shape) in enumerate(zip(items, shapes))]
    except (NameError, AttributeError) as error:
        raise fail(
            "unknown name",
            str(error),
            "the description's tensors and attributes, the lambda's variables, and what the "
            "file imports",
            error,
        ) from error
    except TypeError as error:
        raise fail(
            "not an operation of the language",
            str(error),
            "arithmetic of numbers, index variables and elements; a tensor is indexed along every "
            "dimension, x[i, j]",
            error,
        ) from error
    finally:
        current.reset(tokens[0])
        _state.reset(tokens[1])
    inputs = tuple(InputTrace(t.name, t.rank) for t in tensors)
    return Trace(source, inputs, tuple(outputs), dict(state.extents))
