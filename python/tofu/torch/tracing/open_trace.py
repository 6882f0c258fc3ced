"""Traces that know sizes of a call's tensors by name, and the traces of calls with other sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import torch

from tofu.errors import GraphError
from tofu.torch.graphs.traced import Blank, Operator, Scalar, Traced, Variable
from tofu.torch.tiles.private_names import pytree
from tofu.torch.tracing.left_by_forward import Kept
from tofu.torch.tracing.named_numbers import LEAST_SIZE, NamedNumbers

__all__ = ["OpenTrace", "OpenTraces"]

_MOST_FORMS = 8  # of a module's calls, the last used ones
_MOST_TRACES = 4  # of calls of one form, which differ in their open sizes and floats
Shapes = tuple[tuple[int, tuple[int, ...]], ...]  # positions of tensors, and their shapes


class OpenTrace:
    """A trace for any sizes of some dimensions of its inputs.

    Args:
        traced: the trace, in which sizes are torch's symbols.
        numbers: the sizes' names.
    """

    def __init__(self, traced: Traced, numbers: NamedNumbers) -> None:
        self._traced = traced
        self._numbers = numbers

    def at(self, shapes: Mapping[int, Sequence[int]]) -> Optional[Traced]:
        """The trace of a call; None if forward would decide otherwise for its sizes.

        Args:
            shapes: the shapes of the call's tensors by their positions.
        """
        values = self._numbers.values(shapes)
        return None if values is None else _Filled(values).traced(self._traced)


class OpenTraces:
    """The open traces of a module's calls, by what these depend on besides floats and sizes."""

    def __init__(self) -> None:
        self._known: dict[Any, list[OpenTrace]] = {}
        self._closed: set[Any] = set()

    def find(self, form: Any, shapes: Shapes, make: Callable[[], OpenTrace]) -> Optional[Traced]:
        """The trace of a call whose floats or sizes are new; None if it must be traced by itself.

        Args:
            form: what the call depends on, besides floats and sizes.
            shapes: the shapes of the call's tensors.
            make: makes an open trace of this call. Raises GraphError if it depends on the values.
        """
        known = self._known.pop(form, [])
        self._known[form] = known  # as the last used
        for each in known:
            traced = each.at(dict(shapes))
            if traced is not None:
                return traced
        small = any(size < LEAST_SIZE for _, shape in shapes for size in shape)
        if small or form in self._closed or len(known) == _MOST_TRACES:
            return None
        try:
            known.append(make())
        except GraphError:  # the call's own trace raises the error, if there is one
            self.close(form)
            return None
        if len(self._known) > _MOST_FORMS:
            del self._known[next(iter(self._known))]
        return known[-1].at(dict(shapes))

    def close(self, form: Any) -> None:
        """Have calls of a form traced one by one, because forward depends on the values."""
        self._known.pop(form, None)
        self._closed.add(form)


class _Filled:
    """Fills sizes into a trace."""

    def __init__(self, values: Mapping[Any, int]) -> None:
        self._values = values
        self._known: dict[Any, int] = {}

    def traced(self, traced: Traced) -> Traced:
        """The trace with these sizes."""
        return dataclasses.replace(
            traced,
            variables=tuple(map(self._variable, traced.variables)),
            operators=tuple(map(self._operator, traced.operators)),
            constants={k: self._value(value) for k, value in traced.constants.items()},
            changes=pytree.tree_map(self._value, dict(traced.changes)),
            left=pytree.tree_map(self._value, dict(traced.left)),
        )

    def _size(self, size: torch.SymInt) -> int:
        expression = size.node.expr
        if expression not in self._known:
            self._known[expression] = int(expression.xreplace(self._values))
        return self._known[expression]

    def _value(self, value: Any) -> Any:
        """An argument or a shape; the same one if nothing changes."""
        if isinstance(value, torch.SymInt):
            return self._size(value)
        if isinstance(value, Scalar):
            return self._scalar(value)
        if isinstance(value, Kept):
            return dataclasses.replace(value, shape=self._value(value.shape))
        if isinstance(value, Blank):
            return Blank(tuple(map(self._value, value.shape)), value.dtype)
        if type(value) in (list, tuple):
            return type(value)(map(self._value, value))
        return value

    def _tensor(self, tensor: Any) -> Any:
        shape = tuple(tensor.shape)
        if all(type(size) is int for size in shape):
            return tensor
        sizes = [self._value(size) for size in shape]
        return torch.empty(sizes, dtype=tensor.dtype, device="meta")

    def _scalar(self, scalar: Scalar) -> Any:
        """The number, unless it depends on a float among the arguments."""
        if scalar.function is None:
            return scalar
        arguments = tuple(map(self._value, scalar.arguments))
        if any(isinstance(each, Scalar) for each in arguments):
            return dataclasses.replace(scalar, arguments=arguments)
        return scalar.function(*arguments)

    def _variable(self, variable: Variable) -> Variable:
        meta = self._tensor(variable.meta)
        return variable if meta is variable.meta else dataclasses.replace(variable, meta=meta)

    def _operator(self, operator: Operator) -> Operator:
        return dataclasses.replace(
            operator,
            arguments={name: self._value(value) for name, value in operator.arguments.items()},
            outputs=tuple(map(self._tensor, operator.outputs)),
        )
