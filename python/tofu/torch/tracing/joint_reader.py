"""Reads the joint graph that torch has traced."""

from __future__ import annotations

import dataclasses
import operator as operator_module
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union

import torch

from tofu.errors import GraphError
from tofu.torch.graphs.traced import Blank, Entry, Operator, Scalar, Traced, Variable
from tofu.torch.tiles.private_names import descriptors, pytree
from tofu.torch.tracing.named_numbers import hint_of
from tofu.torch.tracing.traced_checkpoints import CHECKPOINT
from tofu.torch.tracing.traced_modules import MODULE

__all__ = ["read_joint"]


def read_joint(joint: Any, module: torch.nn.Module) -> Traced:
    """Read a joint graph.

    Args:
        joint: torch's graph, with its descriptors.
        module: the module, without data.

    Raises:
        GraphError: the graph has something that cannot be planned.
    """
    return _Reader(joint, module).read()


# Operators that return their input; in a functional graph, input and output are the same.
_IDENTITIES = {
    torch.ops.aten.detach.default,
    torch.ops.aten.alias.default,
    torch.ops.aten.lift_fresh_copy.default,
}


_BACKWARD = "_backward"


class _Reader:
    """Reads a joint graph of torch."""

    def __init__(self, joint: Any, module: torch.nn.Module) -> None:
        self._graph = joint.graph_module
        self._module = module
        self._out_spec = joint.out_spec
        # Also of identities and getitems.
        self._same: dict[Any, Union[Entry, Blank, Scalar, torch.SymInt]] = {}
        self._first: dict[str, str] = {}
        self._variables: list[Variable] = []
        self._operators: list[Operator] = []
        self._places: dict[str, int] = {}  # of operators
        self._modules: dict[int, str] = {}  # of forward operators, by sequence number
        self._numbers: dict[str, int] = {}  # of operators of one name
        self._names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        self._names |= {name for name, _ in module.named_buffers(remove_duplicate=False)}

    def read(self) -> Traced:
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function":
                self._call(node)
        output = next(n for n in reversed(self._graph.graph.nodes) if n.op == "output")
        return self._result(output)

    def _first_name(self, name: str) -> str:
        """The first name of a parameter or buffer that the module knows by several."""
        if name not in self._first:
            known: dict[int, str] = {}
            for own, tensor in [
                *self._module.named_parameters(remove_duplicate=False),
                *self._module.named_buffers(remove_duplicate=False),
            ]:
                self._first[own] = known.setdefault(id(tensor), own)
        return self._first[name]

    def _free_name(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _placeholder(self, node: Any) -> None:
        desc, value = node.meta["desc"], node.meta.get("val")
        if isinstance(value, torch.SymFloat):
            self._same[node] = Scalar(desc.idx, None, (), hint_of(value))
        if not isinstance(value, torch.Tensor):
            return
        number = -1
        if isinstance(desc, (descriptors.ParamAOTInput, descriptors.BufferAOTInput)):
            name = self._first_name(desc.target)
            if name != desc.target:
                self._same[node] = Entry(name)
                return
            kind = "parameter" if isinstance(desc, descriptors.ParamAOTInput) else "buffer"
        elif isinstance(desc, descriptors.PlainAOTInput):
            name, kind, number = self._free_name(f"input{desc.idx}"), "input", desc.idx
        elif isinstance(desc, descriptors.TangentAOTInput) and isinstance(
            desc.output, descriptors.PlainAOTOutput
        ):
            number = desc.output.idx
            name, kind = self._free_name(f"tangent{number}"), "tangent"
        elif isinstance(desc, descriptors.TangentAOTInput) and isinstance(
            desc.output, descriptors.InputMutationAOTOutput
        ):
            self._changed(desc.output.mutated_input)  # raises: no buffer has a gradient
            return
        else:
            raise GraphError(
                f"{type(self._module).__name__}: {desc} is not supported; expected outputs that "
                "do not share memory with inputs, and inputs that forward does not change"
            )
        self._same[node] = Entry(name)
        if value.numel() == 0:
            self._same[node] = Blank(tuple(value.shape), value.dtype)
            return
        self._variables.append(Variable(name, kind, number, value))

    def _constant(self, node: Any) -> None:
        value = self._graph
        for part in node.target.split("."):
            value = getattr(value, part)
        if value.numel() == 0:
            self._same[node] = Blank(tuple(value.shape), value.dtype)
            return
        name = self._free_name(node.name)
        self._same[node] = Entry(name)
        self._variables.append(Variable(name, "constant", -1, value, value))

    def _call(self, node: Any) -> None:
        if node.target in _IDENTITIES or _takes_all(node):
            self._same[node] = self._same[node.args[0]]
            return
        if _returns_nothing(node):
            return  # an assertion about values, which calls do not repeat
        value, is_item = node.meta.get("val"), node.target is operator_module.getitem
        if isinstance(value, torch.Tensor) and value.numel() == 0:
            self._same[node] = Blank(tuple(value.shape), value.dtype)
            if is_item and node.users:
                self._add_blank(*node.args)
            return
        if is_item:
            source, number = node.args
            operator = self._operators[self._places[self._entry(source).node]]
            self._same[node] = Entry(operator.name, operator.positions.index(number))
            return
        if isinstance(value, torch.SymFloat):
            arguments = tuple(self._replaced("", each, []) for each in node.args)
            self._same[node] = Scalar(-1, node.target, arguments, hint_of(value))
            return
        if isinstance(value, torch.SymInt):
            self._same[node] = value
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            raise GraphError(
                f"{type(self._module).__name__}: {node.target} is not an ATen operator; expected "
                "a module without control flow operators"
            )
        self._operator(node)

    def _operator(self, node: Any) -> None:
        self._check_layout(node)
        arguments: dict[str, Any] = {}
        inputs: list[tuple[str, Entry]] = []
        for argument, value in _bound(node):
            arguments[argument] = self._replaced(argument, value, inputs)
        value = node.meta["val"]
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        positions = [
            k for k, each in enumerate(values) if isinstance(each, torch.Tensor) and each.numel()
        ]
        name = self._operator_name(node)
        self._same[node] = Entry(name)
        operator = Operator(
            name,
            node.target,
            arguments,
            tuple(inputs),
            tuple(values[k] for k in positions),
            tuple(positions),
            node.meta.get("seq_nr", -1),
            node.meta.get(CHECKPOINT),
        )
        self._places[name] = len(self._operators)
        self._operators.append(operator)

    def _operator_name(self, node: Any) -> str:
        """The submodule that calls an operator, and the operator: "layers.0.mm", "GPT.add"."""
        sequence, path = node.meta.get("seq_nr", -1), node.meta.get(MODULE)
        called = str(node.target).split(".")[1].strip("_")
        if path is not None:
            self._modules.setdefault(sequence, path)
        else:
            path = self._modules.get(sequence, "")
            called += "" if called.endswith(_BACKWARD) else _BACKWARD
        name = f"{path or type(self._module).__name__}.{called}"
        number = self._numbers[name] = self._numbers.get(name, -1) + 1
        return self._free_name(f"{name}_{number}" if number else name)

    def _replaced(self, name: str, value: Any, inputs: list[tuple[str, Entry]]) -> Any:
        """Replaces nodes in an argument by entries, and appends those to `inputs` in order."""
        if isinstance(value, torch.fx.Node):
            tensor = self._same[value]
            if isinstance(tensor, Entry):
                inputs.append((name, tensor))
            return tensor
        if isinstance(value, (tuple, list)):
            return [
                self._replaced(f"{_listed(name, each)}.{k}", each, inputs)
                for k, each in enumerate(value)
            ]
        return value

    def _result(self, output: Any) -> Traced:
        by_index: dict[int, Optional[Entry]] = {}
        constants: dict[int, Any] = {}
        gradients: dict[str, Entry] = {}
        mutations: dict[str, Entry] = {}
        tangents = {v.number for v in self._variables if v.kind == "tangent"}
        plain = {v.number: v.name for v in self._variables if v.kind == "input"}
        for value, desc in zip(output.args[0], output.meta["desc"]):
            same = self._same[value] if isinstance(value, torch.fx.Node) else value
            entry = same if isinstance(same, Entry) else None
            if isinstance(desc, descriptors.PlainAOTOutput):
                by_index[desc.idx] = entry
                if entry is None:
                    constants[desc.idx] = same
            elif isinstance(desc, descriptors.InputMutationAOTOutput) and entry is not None:
                mutations[self._changed(desc.mutated_input)] = entry
            elif isinstance(desc, descriptors.GradAOTOutput) and entry is not None:
                of = desc.grad_of
                known = isinstance(of, descriptors.PlainAOTInput)
                name = plain[of.idx] if known else self._first_name(of.target)
                gradients[name] = self._sum(name, gradients.get(name), entry)
        outputs = tuple(by_index[k] for k in range(len(by_index)))
        operators = self._needed([*by_index.values(), *gradients.values(), *mutations.values()])
        return Traced(
            tuple(self._variables),
            operators,
            outputs,
            gradients,
            mutations,
            self._out_spec,
            constants,
            tuple(sorted(tangents)),
        )

    def _add_blank(self, node: Any, position: int) -> None:
        """Note that others read an operator's output, so it must have no elements in runs, too."""
        place = self._places[self._entry(node).node]
        known = self._operators[place]
        noted = dataclasses.replace(known, blanks=(*known.blanks, position))
        self._operators[place] = noted

    def _check_layout(self, node: Any) -> None:
        """Raise GraphError for an operator on sparse tensors."""
        for tensor in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(tensor, torch.Tensor) and tensor.layout != torch.strided:
                raise GraphError(
                    f"{type(self._module).__name__}: {node.target} makes a sparse tensor; expected "
                    "dense ones: leave out sparse=True, whose gradients have the same values"
                )

    def _entry(self, node: Any) -> Entry:
        """The tensor of a node that has elements."""
        entry = self._same[node]
        assert isinstance(entry, Entry)
        return entry

    def _sum(self, name: str, one: Optional[Entry], other: Entry) -> Entry:
        """A gradient, or the sum of two if the module knows a parameter by two names."""
        if one is None:
            return other
        meta = next(v.meta for v in self._variables if v.name == name)
        sum_name = self._free_name(f"{name}/gradient")
        arguments = {"self": one, "other": other, "alpha": 1}
        inputs = (("self", one), ("other", other))
        add = torch.ops.aten.add.Tensor
        self._operators.append(Operator(sum_name, add, arguments, inputs, (meta,), (0,)))
        return Entry(sum_name)

    def _changed(self, desc: Any) -> str:
        if isinstance(desc, descriptors.BufferAOTInput):
            return str(desc.target)
        plain = isinstance(desc, descriptors.PlainAOTInput)
        what = f"input {desc.idx}" if plain else getattr(desc, "target", desc)
        raise GraphError(
            f"{type(self._module).__name__}: forward changes {what} in place; expected changes of "
            "buffers only: add to a copy, as in x = x + 1, and change parameters (as max_norm of "
            "an embedding does) outside of forward, under torch.no_grad()"
        )

    def _needed(self, heads: Sequence[Optional[Entry]]) -> tuple[Operator, ...]:
        """The operators that results depend on, in order."""
        names = {entry.node for entry in heads if entry is not None}
        kept = []
        for operator in reversed(self._operators):
            if operator.name in names:
                kept.append(operator)
                names |= {entry.node for _, entry in operator.inputs}
        return tuple(reversed(kept))


def _returns_nothing(node: Any) -> bool:
    """Whether a node is an operator without results."""
    return isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns


def _takes_all(node: Any) -> bool:
    """Whether a node is a slice of all elements, which open traces have in the place of nothing."""
    if node.target is not torch.ops.aten.slice.Tensor:
        return False
    _, _, start, end, step = (value for _, value in _bound(node))
    return start in (None, 0) and end in (None, sys.maxsize) and step == 1


def _listed(name: str, value: Any) -> str:
    """The name of a list that has this value; masks index otherwise than numbers do."""
    meta = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    is_mask = name == "indices" and isinstance(meta, torch.Tensor) and meta.dtype == torch.bool
    return "masks" if is_mask else name


def _bound(node: Any) -> Iterator[tuple[str, Any]]:
    """A call's arguments by their names, in the schema's order, defaults included."""
    for k, argument in enumerate(node.target._schema.arguments):
        if k < len(node.args) and not argument.kwarg_only:
            yield argument.name, node.args[k]
        elif argument.name in node.kwargs:
            yield argument.name, node.kwargs[argument.name]
        elif argument.has_default_value():
            yield argument.name, argument.default_value
