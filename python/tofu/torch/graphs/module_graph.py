"""Converts a traced module to a training graph of tofu's own format (docs/formats.md).

A node's operator is the overload's name, such as ``aten.mm.default``. Its attributes are the
arguments that are not tensors, as text, and ``given``, the names of the arguments that are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import torch

from tofu import _core
from tofu.dtypes import NAMES
from tofu.errors import GraphError
from tofu.torch.graphs.traced import Entry, Operator, Traced

__all__ = ["OPTIMIZERS", "attributes_of", "operator_name", "training_graph"]

# Number of states that an optimizer keeps per parameter.
OPTIMIZERS: Mapping[str, int] = {"sgd": 0, "sgd_mom": 1, "adam": 2}
_GIVEN = "given"
_ROLES = {"parameter": "parameter", "buffer": "aux", "input": "data", "constant": "aux"}


def operator_name(operator: Operator) -> str:
    """The overload's name, under which descriptions know the operator."""
    return str(operator.target)


def attributes_of(operator: Operator) -> dict[str, str]:
    """The attributes of an operator's node, as text."""
    attributes = {_GIVEN: " ".join(name for name, _ in operator.inputs)}
    for name, value in operator.arguments.items():
        if not _has_tensor(value):
            attributes[name] = _text(value)
    return attributes


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_tensor(each) for each in value)
    return isinstance(value, Entry)


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_text(each) for each in value)}]"
    return str(value)


def training_graph(traced: Traced, optimizer: Optional[str] = "adam") -> _core.Graph:
    """The training graph of a traced module.

    Args:
        traced: the module.
        optimizer: the optimizer whose state to plan, a key of OPTIMIZERS; None: no update.

    Raises:
        GraphError: graphs do not support the type or size of a tensor.
    """
    if optimizer not in traced.graphs:
        traced.graphs[optimizer] = _core.Graph(_Writer(traced, optimizer).text())
    graph: _core.Graph = traced.graphs[optimizer]
    return graph


class _Writer:
    """Writes a document node by node."""

    def __init__(self, traced: Traced, optimizer: Optional[str]) -> None:
        self._traced = traced
        self._optimizer = optimizer
        self._nodes: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._rows = [0]
        self._shapes: list[list[int]] = []
        self._dtypes: list[int] = []
        self._heads: list[tuple[Entry, str]] = []

    def text(self) -> str:
        """The document."""
        for variable in self._traced.variables:
            role = _ROLES.get(variable.kind) or f"head_grad:{self._head_of(variable.number)}"
            self._add("null", variable.name, [], [variable.meta], {"__tofu_role__": role})
        forward: dict[int, int] = {}
        for operator in self._traced.operators:
            self._operator(operator, forward)
        self._add_heads()
        attrs = {
            "shape": ["list_shape", self._shapes],
            "dtype": ["list_int", self._dtypes],
            "tofu_heads": ["list_str", [role for _, role in self._heads]],
        }
        return json.dumps(
            {
                "nodes": self._nodes,
                "arg_nodes": [k for k, node in enumerate(self._nodes) if node["op"] == "null"],
                "node_row_ptr": self._rows,
                "heads": [self._place(entry) for entry, _ in self._heads],
                "attrs": attrs,
            }
        )

    def _head_of(self, output: int) -> int:
        """The number of an output's head; only outputs that are tensors have one."""
        return sum(entry is not None for entry in self._traced.outputs[:output])

    def _operator(self, operator: Operator, forward: dict[int, int]) -> None:
        inputs = [entry for _, entry in operator.inputs]
        node = self._add(
            operator_name(operator), operator.name, inputs, operator.outputs,
            attributes_of(operator),
        )  # fmt: skip
        number = self._numbers[operator.name]
        if operator.repeats:
            node["attrs"][_core.repeats_attribute] = operator.repeats
            node["control_deps"] = [self._numbers[operator.repeats]]
        elif operator.name in self._traced.forward:
            forward[operator.sequence] = number
        elif operator.sequence in forward:
            node["control_deps"] = [forward[operator.sequence]]

    def _add(
        self, op: str, name: str, inputs: list[Entry], outputs: Any, attrs: dict[str, str]
    ) -> dict[str, Any]:
        self._numbers[name] = len(self._nodes)
        node = {"op": op, "name": name, "attrs": attrs, "inputs": [self._place(e) for e in inputs]}
        self._nodes.append(node)
        for tensor in outputs:
            self._shapes.append(_shape(name, tensor))
            self._dtypes.append(_dtype(name, tensor))
        self._rows.append(len(self._shapes))
        return node

    def _place(self, entry: Entry) -> list[int]:
        return [self._numbers[entry.node], entry.index, 0]

    def _add_heads(self) -> None:
        traced = self._traced
        self._heads += [(entry, "output") for entry in traced.outputs if entry is not None]
        self._heads += [(entry, f"gradient:{name}") for name, entry in traced.gradients.items()]
        self._heads += [(entry, f"aux:{name}") for name, entry in traced.mutations.items()]
        self._heads += list(self._updates())

    def _updates(self) -> Iterator[tuple[Entry, str]]:
        if self._optimizer is None:
            return
        for variable in self._traced.variables:
            gradient = self._traced.gradients.get(variable.name)
            if variable.kind != "parameter" or gradient is None:
                continue
            inputs = [Entry(variable.name), gradient]
            for k in range(OPTIMIZERS[self._optimizer]):
                state = f"{variable.name}/state{k}"
                role = {"__tofu_role__": f"state:{variable.name}"}
                self._add("null", state, [], [variable.meta], role)
                inputs.append(Entry(state))
            name = f"{variable.name}/update"
            self._add("tofu.update", name, inputs, [variable.meta], {})
            yield Entry(name), f"update:{variable.name}"


def _shape(name: str, tensor: Any) -> list[int]:
    shape = [int(size) for size in tensor.shape]
    if 0 in shape:
        raise GraphError(f"{name}: has no elements (shape {shape}); expected sizes of at least 1")
    return shape


def _dtype(name: str, tensor: torch.Tensor) -> int:
    kind = str(tensor.dtype).partition(".")[2]
    if kind not in NAMES:
        raise GraphError(f"{name}: has the type {kind}; expected one of {', '.join(NAMES)}")
    return NAMES.index(kind)
