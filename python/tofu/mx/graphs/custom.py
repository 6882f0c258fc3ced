"""Operators written in Python (``mx.operator.CustomOp``), and their gradients.

MXNet's ``_backward_Custom`` reads state that the forward operator left in the same
executor, and cannot be serialized. Another custom operator replaces it: it creates a new
instance of the script's operator and calls its ``backward`` on the tensors that it declares
as dependencies. So operators that keep values between the two calls are refused. The
forward operator gets a stand-in too, because the script's own operator would not accept the
extra attributes of a partitioned graph.
"""

from __future__ import annotations

import dis
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx
from mxnet.operator import _registry

from tofu.analysis.strategy_table import WHOLE
from tofu.errors import GraphError
from tofu.mx.nnvm import Entry, Graph, Node

__all__ = ["gradient_call", "register", "stand_in"]

_CUSTOM, _BACKWARD = "Custom", "_backward_Custom"
_OPERATOR, _GRADIENT = "tofu_operator", "tofu_gradient"  # tofu.analysis.table knows them
_ZEROS = ("_zeros", "_zeros_without_dtype")
_registered: list[type] = []


def stand_in(graph: Graph) -> None:
    """Replace all custom operators of a training graph, and their gradients.

    Raises:
        GraphError: an operator has auxiliary states, keeps values between forward and
            backward, or its gradient does not read its inputs.
    """
    order = graph.topological()
    for node in order:
        if node.op == _BACKWARD:
            _replace_gradient(node)
    for node in order:
        if node.op == _CUSTOM and node.attrs["op_type"] not in (_OPERATOR, _GRADIENT):
            node.attrs = _attributes(_OPERATOR, node.attrs)
            register()


def _replace_gradient(node: Node) -> None:
    forward = next(d for d in node.control_deps if d.op == _CUSTOM)
    prop = _property_of(forward.attrs)
    problem = _problem(prop)
    if problem:
        raise GraphError(f"custom operator {forward.attrs['op_type']} ({forward.name}): {problem}")
    register()
    outputs = len(prop.list_outputs())
    for at, number in enumerate(_dependencies(prop)):
        # The gradient of an unread output has no shape; zeros that the script feeds have one.
        if number < outputs and node.inputs[at].node.op in _ZEROS:
            name = f"{forward.name}_unread{number}"
            zeros = Node("zeros_like", name, {}, [Entry(forward, number)])
            node.inputs[at] = Entry(zeros)
    node.op = _CUSTOM
    node.attrs = _attributes(_GRADIENT, forward.attrs)
    node.num_outputs = len(prop.list_arguments())


def _attributes(stand_in: str, attrs: Mapping[str, str]) -> dict[str, str]:
    options = {k: v for k, v in attrs.items() if k not in ("op_type", WHOLE)}
    arguments = json.dumps(options, sort_keys=True)
    why = {WHOLE: attrs[WHOLE]} if WHOLE in attrs else {}
    return {"op_type": stand_in, "of": attrs["op_type"], "arguments": arguments, **why}


def gradient_call(attrs: Mapping[str, str]) -> tuple[dict[str, str], list[int], int]:
    """Describe the node that computes the gradient of a custom operator.

    Args:
        attrs: the operator's attributes.

    Returns:
        The attributes of a Custom node that computes the gradient; which tensors it reads, as
        positions in the list of output gradients, inputs and outputs; and the number of the
        operator's outputs.

    Raises:
        GraphError: the gradient cannot be computed separately from the operator.
    """
    prop = _property_of(attrs)
    problem = _problem(prop)
    if problem:
        raise GraphError(f"custom operator {attrs['op_type']}: {problem}")
    register()
    return _attributes(_GRADIENT, attrs), _dependencies(prop), len(prop.list_outputs())


def register() -> None:
    """Register the stand-ins with MXNet, once."""
    if not _registered:
        _registered.append(mx.operator.register(_OPERATOR)(_OperatorProp))
        _registered.append(mx.operator.register(_GRADIENT)(_GradientProp))


def _problem(prop: Any) -> str:
    """Explain why an operator's gradient cannot be computed separately; "" if it can."""
    if prop.list_auxiliary_states():
        return "it has auxiliary states; expected none"
    reads = _dependencies(prop)
    outputs, inputs = len(prop.list_outputs()), len(prop.list_arguments())
    if not set(range(outputs, outputs + inputs)) <= set(reads):
        return (
            "its gradient does not read all of its inputs, so their shapes are not known; "
            "let declare_backward_dependency return them too"
        )
    stored = _kept_values(prop, inputs)
    if stored:
        return (
            f"forward stores {', '.join(stored)} in the operator; make it an output, or compute it "
            "again in backward"
        )
    return ""


def _kept_values(prop: Any, inputs: int) -> list[str]:
    """The attributes that an operator's forward assigns."""
    try:
        operator = prop.create_operator(mx.cpu(), [[1]] * inputs, ["float32"] * inputs)
    except Exception:  # it may need other shapes and raise anything; then we cannot tell
        return []
    code = inspect.unwrap(type(operator).forward).__code__
    return sorted({i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"})


def _property_of(attrs: Mapping[str, str]) -> Any:
    """The script's CustomOpProp; MXNet makes it and keeps it in a registry."""
    before = set(_registry.ref_holder)
    symbol = mx.sym.Custom(name="tofu_property", **attrs)
    added = [v for k, v in list(_registry.ref_holder.items()) if k not in before]
    del symbol
    return next(v for v in added if isinstance(v, mx.operator.CustomOpProp))


def _dependencies(prop: Any) -> list[int]:
    """Positions, in the list of output gradients, inputs and outputs, that the gradient reads."""
    outputs, inputs = len(prop.list_outputs()), len(prop.list_arguments())
    numbers = list(range(2 * outputs + inputs))
    return list(
        prop.declare_backward_dependency(
            numbers[:outputs], numbers[outputs : outputs + inputs], numbers[outputs + inputs :]
        )
    )


class _OperatorProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    """A stand-in for another operator, with its arguments as JSON; ignores other attributes."""

    def __init__(self, of: str, arguments: str, **others: str) -> None:
        super().__init__()
        prop = _property_of({"op_type": of, **json.loads(arguments)})
        for name in (
            *("list_arguments", "list_outputs", "list_auxiliary_states"),
            *("infer_shape", "infer_type", "declare_backward_dependency", "create_operator"),
        ):
            setattr(self, name, getattr(prop, name))


class _Gradient(mx.operator.CustomOp):  # type: ignore[misc]
    """Calls the backward of another operator."""

    def __init__(self, operator: Any, reads: Sequence[int], outputs: int, inputs: int) -> None:
        super().__init__()
        self._operator = operator
        self._reads = tuple(reads)
        self._outputs, self._inputs = outputs, inputs

    def forward(
        self,
        is_train: bool,
        req: list[str],
        in_data: list[Any],
        out_data: list[Any],
        aux: list[Any],
    ) -> None:
        """Compute the gradients with respect to the operator's inputs."""
        tensors: list[Any] = [None] * (2 * self._outputs + self._inputs)
        for number, tensor in zip(self._reads, in_data):
            tensors[number] = tensor
        first, second = self._outputs, self._outputs + self._inputs
        self._operator.backward(
            req=req,
            out_grad=tensors[:first],
            in_data=tensors[first:second],
            out_data=tensors[second:],
            in_grad=out_data,
            aux=[],
        )


class _GradientProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    """The gradient of another operator, from the tensors that it reads."""

    def __init__(self, of: str, arguments: str, **others: str) -> None:
        super().__init__(need_top_grad=False)
        self._prop = _property_of({"op_type": of, **json.loads(arguments)})
        self._reads = _dependencies(self._prop)
        self._outputs = len(self._prop.list_outputs())
        self._inputs = len(self._prop.list_arguments())

    def list_arguments(self) -> list[str]:
        """The tensors that the gradient reads."""
        return [f"read{number}" for number in self._reads]

    def list_outputs(self) -> list[str]:
        """Returns the names of the gradients, one per input."""
        return [f"gradient{k}" for k in range(self._inputs)]

    def _of_inputs(self, values: Sequence[Any]) -> list[Any]:
        by_number = dict(zip(self._reads, values))
        return [by_number[self._outputs + k] for k in range(self._inputs)]

    def infer_shape(self, in_shape: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Gradients have the shapes of the inputs."""
        return in_shape, self._of_inputs(in_shape), []

    def infer_type(self, in_type: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Gradients have the types of the inputs."""
        return in_type, self._of_inputs(in_type), []

    def create_operator(self, ctx: Any, in_shapes: list[Any], in_dtypes: list[Any]) -> _Gradient:
        """Create the script's operator for the inputs' shapes, and wrap it."""
        operator = self._prop.create_operator(
            ctx, self._of_inputs(in_shapes), self._of_inputs(in_dtypes)
        )
        return _Gradient(operator, self._reads, self._outputs, self._inputs)
