"""A traced module: the joint graph of its forward and backward pass, as data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Optional

import torch

from tofu.torch.graphs.module_state import Path, Place

__all__ = ["Blank", "Entry", "Operator", "Scalar", "Traced", "Variable"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor of the joint graph: an output of a node.

    Attributes:
        node: the name of a variable or an operator.
        index: the number of the operator's output, not counting outputs that are None.
    """

    node: str
    index: int = 0


@dataclasses.dataclass(frozen=True)
class Blank:
    """A tensor without elements, which no rank needs to hold or receive.

    Attributes:
        shape: its shape.
        dtype: its type.
    """

    shape: tuple[int, ...]
    dtype: Any

    def made(self, device: str) -> Any:
        """Make the tensor."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A number that is computed from the floats among a call's arguments.

    Attributes:
        number: for one of them, its position among all arguments; else -1.
        function: otherwise, the function that computes it.
        arguments: of the function: scalars and numbers.
        hint: its value in the trace.
    """

    number: int
    function: Any
    arguments: tuple[Any, ...]
    hint: float

    def __str__(self) -> str:
        return str(self.hint)

    def value(self, floats: Mapping[int, float]) -> Any:
        """Compute it from the floats by position."""
        if self.function is None:
            return floats[self.number]
        given = [x.value(floats) if isinstance(x, Scalar) else x for x in self.arguments]
        return self.function(*given)


@dataclasses.dataclass(frozen=True)
class Variable:
    """An input of the joint graph.

    Attributes:
        name: its name; for a parameter or buffer, the one in the module.
        kind: "parameter", "buffer", "input", "tangent" or "constant".
        number: for an input, its position among all arguments; for a tangent, its output's.
        meta: a tensor of its shape and type, without data.
        value: for a constant, its value.
    """

    name: str
    kind: str
    number: int
    meta: Any
    value: Any = None


@dataclasses.dataclass(frozen=True)
class Operator:
    """A call of an ATen operator.

    Attributes:
        name: the node's name.
        target: the operator.
        arguments: its arguments by their names in the schema; entries stand for tensors, also
            inside lists.
        inputs: the tensors in the schema's order, with their names ("indices.1" in a list,
            "masks.1" if it is a mask).
        outputs: tensors of the outputs' shapes and types, without outputs that are None.
        positions: the position of each output in the operator's results; those without elements
            are no outputs.
        blanks: the positions of those without elements that others read.
        sequence: a number that a forward operator shares with its backward operators, or -1.
        checkpoint: the number of the checkpoint that it is part of, or None.
        repeats: the operator of the forward pass that it runs again; "": none.
    """

    name: str
    target: Any
    arguments: Mapping[str, Any]
    inputs: tuple[tuple[str, Entry], ...]
    outputs: tuple[Any, ...]
    positions: tuple[int, ...]
    sequence: int = -1
    checkpoint: Optional[int] = None
    repeats: str = ""
    blanks: tuple[int, ...] = ()

    def order(self, output: int) -> tuple[int, ...]:
        """An output's dimensions in the order of memory, outermost first; () if as they come."""
        strides = self.outputs[output].stride()
        if not all(type(each) is int and each for each in strides):
            return ()  # a view of sizes without values, or of an expanded tensor
        order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
        return () if order == tuple(range(len(strides))) else order


@dataclasses.dataclass(frozen=True)
class Traced:
    """A joint graph.

    Attributes:
        variables: its inputs.
        operators: in an order in which they can run.
        outputs: the module's outputs, flat; None where an output is not a tensor.
        gradients: name of a parameter or input -> its gradient.
        mutations: name of a buffer -> its new value.
        out_spec: how the module nests its outputs, and the tensors that it leaves in itself.
        constants: position -> output that is not a tensor, or has no elements.
        hints: values that stand for the floats among the arguments; empty if floats are constants.
        differentiable: the positions of outputs that have gradients.
        through: position of an output -> those of others whose gradients flow through it.
        tiles: the positions of outputs that stay divided, as weights that torch's hooks compute.
        changes: dict or list among the arguments, by its place -> what it holds in the end.
        left: place in the module -> the value that forward leaves there.
        counts: those of these places that are counters -> the number that forward adds.
        in_timesteps: whether recurrent layers are taken apart.
        timesteps: traces the same call with recurrent layers taken apart; None if it has none.
        graphs: optimizer -> the training graph with its updates, once made.
    """

    variables: tuple[Variable, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Optional[Entry], ...]
    gradients: Mapping[str, Entry]
    mutations: Mapping[str, Entry]
    out_spec: Any
    constants: Mapping[int, Any]
    differentiable: tuple[int, ...]
    hints: tuple[float, ...] = ()
    through: Mapping[int, frozenset[int]] = dataclasses.field(default_factory=dict)
    tiles: frozenset[int] = frozenset()
    changes: Mapping[Path, Any] = dataclasses.field(default_factory=dict)
    left: Mapping[Place, Any] = dataclasses.field(default_factory=dict)
    counts: Mapping[Place, Any] = dataclasses.field(default_factory=dict)
    in_timesteps: bool = False
    timesteps: Optional[Callable[[], Traced]] = dataclasses.field(
        default=None, repr=False, compare=False
    )
    graphs: dict[Optional[str], Any] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @functools.cached_property
    def layers(self) -> tuple[Operator, ...]:
        """The recurrent layers that are one operator."""
        layer = torch.ops.tofu.recurrent.default
        return tuple(operator for operator in self.operators if operator.target is layer)

    @functools.cached_property
    def forward(self) -> frozenset[str]:
        """Names of the operators that outputs and new values of buffers need."""
        heads = [*self.outputs, *self.mutations.values()]
        names = {entry.node for entry in heads if entry is not None}
        for operator in reversed(self.operators):
            if operator.name in names:
                names |= {entry.node for _, entry in operator.inputs}
        return frozenset(operator.name for operator in self.operators if operator.name in names)

    @functools.cached_property
    def read_backward(self) -> frozenset[str]:
        """Names of parameters, buffers and inputs whose values the backward pass reads.

        Operators that the backward pass repeats read newer values, as checkpoints do.
        """
        source = {v.name: v.name for v in self.variables if v.kind != "tangent"}
        for operator in self.operators:
            if operator.name in self.forward and _is_view(operator):
                base = source.get(operator.inputs[0][1].node)
                source.update({operator.name: base} if base is not None else {})
        read = {
            entry.node
            for operator in self.operators
            if operator.name not in self.forward and not operator.repeats
            for _, entry in operator.inputs
        }
        return frozenset(source[node] for node in read if node in source)

    @functools.cached_property
    def tangents_of(self) -> Mapping[str, frozenset[str]]:
        """Name of a parameter or input -> the tangents that its gradient depends on."""
        found = {v.name: frozenset([v.name]) for v in self.variables if v.kind == "tangent"}
        for operator in self.operators:
            below = [found[entry.node] for _, entry in operator.inputs if entry.node in found]
            if below:
                found[operator.name] = frozenset().union(*below)
        nothing: frozenset[str] = frozenset()
        return {name: found.get(entry.node, nothing) for name, entry in self.gradients.items()}


def _is_view(operator: Operator) -> bool:
    """Whether an operator's result shares the memory of its first input."""
    returns = operator.target._schema.returns
    return bool(operator.inputs) and bool(returns) and returns[0].alias_info is not None
