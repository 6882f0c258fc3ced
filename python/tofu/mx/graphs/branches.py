"""Control flow that depends on values (``while_loop``, ``cond``): a custom operator runs it.

Which operators run is known only at run time, so no plan can split them. Every worker computes all
of the control flow, and the operators around it are partitioned. The gradient runs it
once more, since the custom operator keeps nothing between forward and backward.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import mxnet as mx
from mxnet import autograd

from tofu.analysis.described import is_random
from tofu.analysis.strategy_table import WHOLE
from tofu.errors import GraphError
from tofu.mx.nnvm import Entry, Graph, Node

from ..extension import untaught
from .infer import infer_shapes, infer_types
from .statistics import refuse_statistics

__all__ = ["hide_branches"]

_NAME = "tofu_control_flow"  # tofu.analysis.table knows it
_WHILE, _COND = "_while_loop", "_cond"
_REASON = "which operators run, and how often, depends on values"
_RANDOM = frozenset(("Dropout", "RNN", "LeakyReLU", "Custom"))  # with some attributes
_registered: list[type] = []


def hide_branches(graph: Graph) -> None:
    """Replace the control flow of a graph by custom operators.

    Raises:
        GraphError: it draws random numbers, which its gradient would draw again; it has
            running statistics; or a part of it reads no tensor.
    """
    replacements: dict[Entry, Entry] = {}
    for node in graph.topological():
        if node.op in (_WHILE, _COND):
            hidden = _hidden(node)
            pairs = ((Entry(node, i), Entry(hidden, i)) for i in range(node.num_outputs))
            replacements.update(pairs)
    graph.replace(replacements)


def _hidden(node: Node) -> Node:
    """The custom operator that runs a node."""
    where = f"node {node.name!r} ({node.op})"
    refuse_statistics(node)
    drawing = sorted({op for op in _operators(node.subgraphs) if op in _RANDOM or is_random(op)})
    if drawing:
        raise GraphError(
            f"{where}: {', '.join(drawing)} inside of it may draw random numbers, which its "
            "gradient would draw again; expected none; move the operator out of it"
        )
    if not all(each["arg_nodes"] for each in node.subgraphs):
        raise GraphError(f"{where}: one of its functions reads no tensor; expected one that does")
    if not _registered:
        _registered.append(mx.operator.register(_NAME)(_FlowProp))
    flow = json.dumps({"op": node.op, "attrs": node.attrs, "subgraphs": node.subgraphs})
    attrs = {"op_type": _NAME, "operator": node.op, "flow": flow, WHOLE: _REASON}
    inputs, outputs = list(node.inputs), node.num_outputs
    return Node("Custom", node.name, attrs, inputs, node.control_deps, num_outputs=outputs)


def _operators(graphs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for graph in graphs:
        for node in graph["nodes"]:
            yield node["op"]
            yield from _operators(node.get("subgraphs", ()))


class _Function:
    """A function (condition, body or branch) of a control-flow operator.

    Args:
        record: its graph, as JSON.
        reads: the numbers of the operator's inputs that it reads.
    """

    def __init__(self, record: Mapping[str, Any], reads: Sequence[int]) -> None:
        self.symbol = Graph.from_json(json.dumps(record)).to_symbol()
        self.reads = reads
        self._operator: Optional[mx.nd.CachedOp] = None

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the function on the control-flow operator's inputs; return its outputs."""
        if self._operator is None:  # not earlier: MXNet creates operators during another bind
            self._operator = mx.nd.CachedOp(self.symbol)
        outputs = self._operator(*(inputs[at] for at in self.reads))
        return [outputs] if isinstance(outputs, mx.nd.NDArray) else list(outputs)

    def shapes(self, input_shapes: Sequence[Any]) -> list[list[int]]:
        """The shapes of the function's outputs."""
        names = self.symbol.list_inputs()
        shapes = {name: tuple(input_shapes[at]) for name, at in zip(names, self.reads)}
        return [list(shape) for shape in infer_shapes(self.symbol, shapes)[1]]

    def types(self, input_types: Sequence[Any]) -> list[Any]:
        """The types of the function's outputs."""
        names = self.symbol.list_inputs()
        types = {name: input_types[at] for name, at in zip(names, self.reads)}
        return list(infer_types(self.symbol, types)[1])


class _Cond:
    """``cond``: one of two functions."""

    def __init__(self, attrs: Mapping[str, str], subgraphs: Sequence[Any]) -> None:
        self._functions = [
            _Function(record, _numbers(attrs, f"{name}_input_locs"))
            for name, record in zip(("cond", "then", "else"), subgraphs)
        ]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs."""
        condition, then, otherwise = self._functions
        (chosen,) = condition(inputs)
        return then(inputs) if chosen.asscalar() else otherwise(inputs)

    def shapes(self, input_shapes: Sequence[Any]) -> list[list[int]]:
        """The shapes of the outputs."""
        return self._functions[1].shapes(input_shapes)

    def types(self, input_types: Sequence[Any]) -> list[Any]:
        """The types of the outputs."""
        return self._functions[1].types(input_types)


class _While:
    """``while_loop``: a function, again and again."""

    def __init__(self, attrs: Mapping[str, str], subgraphs: Sequence[Any]) -> None:
        reads = _numbers(attrs, "func_input_locs")
        self._condition = _Function(subgraphs[0], _numbers(attrs, "cond_input_locs"))
        self._body = _Function(subgraphs[1], reads)
        self._variables = [reads[at] for at in _numbers(attrs, "func_var_locs")]
        self._limit = int(attrs["max_iterations"])
        self._kept = int(attrs["num_out_data"])

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of all steps, with zeros for steps not taken, and the variables."""
        values = list(inputs)
        steps: list[list[Any]] = []
        while len(steps) < self._limit and self._condition(values)[0].asscalar():
            results = self._body(values)
            steps.append(results[: self._kept])
            for at, value in zip(self._variables, results[self._kept :]):
                values[at] = value
        stacked = map(self._stacked, zip(*steps)) if steps else self._nothing(inputs)
        return [*stacked, *(values[at] for at in self._variables)]

    def _stacked(self, outputs: Sequence[Any]) -> Any:
        none = mx.nd.zeros_like(outputs[0])
        return mx.nd.stack(*outputs, *[none] * (self._limit - len(outputs)))

    def _nothing(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of no step."""
        shapes = self.shapes([array.shape for array in inputs])[: self._kept]
        types = self.types([array.dtype for array in inputs])
        context = inputs[0].context
        return [mx.nd.zeros(s, context, dtype=dtype) for s, dtype in zip(shapes, types)]

    def shapes(self, input_shapes: Sequence[Any]) -> list[list[int]]:
        """The shapes of the outputs."""
        step_shapes = self._body.shapes(input_shapes)
        stacked = [[self._limit, *shape] for shape in step_shapes[: self._kept]]
        return [*stacked, *(list(input_shapes[at]) for at in self._variables)]

    def types(self, input_types: Sequence[Any]) -> list[Any]:
        """The types of the outputs."""
        return self._body.types(input_types)


_FLOWS: dict[str, type[Union[_Cond, _While]]] = {_WHILE: _While, _COND: _Cond}


def _numbers(attrs: Mapping[str, str], name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", attrs[name])]


class _Flow(mx.operator.CustomOp):  # type: ignore[misc]
    """Runs control flow, and differentiates the operators that ran."""

    def __init__(self, flow: Any) -> None:
        super().__init__()
        self._flow = flow

    def forward(
        self,
        is_train: bool,
        req: list[str],
        in_data: list[Any],
        out_data: list[Any],
        aux: list[Any],
    ) -> None:
        """Compute the outputs."""
        with autograd.pause(train_mode=is_train):
            results = self._flow.run(in_data)
            for target, kind, result in zip(out_data, req, results):
                self.assign(target, kind, result)

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        """Run the control flow again on the inputs, and differentiate."""
        inputs = [array.detach() for array in in_data]
        for array in inputs:
            array.attach_grad()
        with untaught():
            with autograd.record():
                # Add 0 times each input, since outputs may be constants.
                terms = [(array * 0).sum() for array in inputs]
                for result, gradient in zip(self._flow.run(inputs), out_grad):
                    terms.append((result * gradient).sum())
                total = sum(term.astype("float64") for term in terms)
            total.backward()
        for target, kind, array in zip(in_grad, req, inputs):
            self.assign(target, kind, array.grad)


class _FlowProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    """Properties of the control-flow operator for MXNet, which ignores other attributes."""

    def __init__(self, operator: str, flow: str, **others: str) -> None:
        super().__init__()
        record = json.loads(flow)
        attrs, subgraphs = record["attrs"], record["subgraphs"]
        self._flow = _FLOWS[operator](attrs, subgraphs)
        self._inputs = int(attrs["num_args"]) - len(subgraphs)
        self._outputs = int(attrs["num_outputs"])

    def list_arguments(self) -> list[str]:
        """Name all inputs."""
        return [f"input{k}" for k in range(self._inputs)]

    def list_outputs(self) -> list[str]:
        """Name all outputs."""
        return [f"output{k}" for k in range(self._outputs)]

    def infer_shape(self, in_shape: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Infer shapes from the functions."""
        return in_shape, self._flow.shapes(in_shape), []

    def infer_type(self, in_type: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Infer types from the functions."""
        return in_type, self._flow.types(in_type), []

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """The gradient reads no output."""
        return [*out_grad, *in_data]

    def create_operator(self, ctx: Any, in_shapes: list[Any], in_dtypes: list[Any]) -> _Flow:
        """Create the operator."""
        return _Flow(self._flow)
