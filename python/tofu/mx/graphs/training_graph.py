"""The training graph of a symbol, ready to be partitioned.

    graph = training_graph(symbol, inputs={"data": ((32, 64), "float32")},
                          parameters={"w": ((10, 64), "float32")}, aux={},
                          gradients=["w"], train=True)

Its format is NNVM's JSON with the shape and dtype of every entry (docs/formats.md).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Callable, Optional

import mxnet as mx

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.errors import GraphError
from tofu.mx.nnvm import Entry, Graph, Node, Shape, format_shape, merge_variables, unique_names

from ..devices import GraphUse
from ..extension import is_stateful_backward, load
from .branches import hide_branches
from .custom import stand_in
from .gradient import HEAD_GRADIENT, differentiate
from .infer import infer
from .joins import concatenate_stacks
from .loops import unroll_loops
from .lower import AFTER, BEFORE, STAGES
from .replay import replay_stateful
from .update_nodes import append_updates

__all__ = ["ROLE", "training_graph", "training_graphs"]

Variables = Mapping[str, tuple[Shape, str]]
# Makes the graph in which the BatchNorms of these names stay whole.
OfFused = Callable[[Optional[Collection[str]]], _core.Graph]

ROLE = "__tofu_role__"
_BATCH_NORM = "BatchNorm"


def training_graph(
    symbol: mx.sym.Symbol,
    *,
    train: bool,
    workers: int = 1,
    on_gpus: bool = False,
    fused: Optional[Collection[str]] = (),
    **arguments: Any,
) -> _core.Graph:
    """Build one of the graphs that ``training_graphs`` makes."""
    use = GraphUse(train, workers, on_gpus)
    return training_graphs(symbol, use=use, **arguments)(fused)


def training_graphs(
    symbol: mx.sym.Symbol,
    *,
    inputs: Variables,
    parameters: Variables,
    aux: Variables,
    gradients: Collection[str],
    use: GraphUse,
    optimizer: Optional[str] = None,
) -> OfFused:
    """Build the graph of the forward pass, the backward pass and, for planning, the update.

    Returns a function from the names of BatchNorms to the graph in which these stay whole. In
    predictions all do; None: none does, not even in predictions. The graphs share everything up to
    the gradient, which is made here; without a BatchNorm they are one graph. They have the shape
    and dtype of every entry, and a role for every head.

    Args:
        symbol: the forward graph; its outputs become the heads "output".
        inputs: name -> (shape, dtype) of the data.
        parameters: the same for the weights.
        aux: the same for auxiliary states, such as running statistics.
        gradients: inputs and parameters to differentiate by.
        use: the run that the graph is for.
        optimizer: "sgd", "sgd_mom" or "adam" appends update nodes (heads "update:..."); None
            appends none.

    Raises:
        GraphError: a variable's shape is missing, MXNet refuses the graph, or the backward
            of an operator cannot be made stateless.
        UnsupportedMXNetError: see tofu.mx.extension.load.
    """
    load()
    draft = _Draft(symbol, inputs, parameters, aux)
    _check_variables(draft.graph, draft.variables, gradients)
    unroll_loops(draft.graph, draft.variables)
    _drop_hidden_attributes(draft.graph.topological())
    hide_branches(draft.graph)
    concatenate_stacks(draft.graph, draft.variables)
    draft.infer(may_be_empty=True)
    draft.describe_head_gradients()
    if use.workers > 1:
        STAGES.apply(draft.graph, use)
        draft.infer(may_be_empty=True)
    draft.differentiate(gradients, use)
    unique_names(draft.graph)
    draft.infer()
    updated = [name for name in gradients if name in parameters]

    def complete(target: _Draft, fused: Optional[Collection[str]]) -> _core.Graph:
        states = AFTER.apply(target.graph, use, fused)
        replay_stateful(target.graph)
        target.add_heads("aux", states)
        if optimizer is not None:
            target.update(optimizer, updated)
        unique_names(target.graph)
        target.infer()
        _check_stateless(target.graph)
        _drop_shape_donors(target.graph)
        return _finished(target.graph, target.roles, target.heads)

    if any(node.op == _BATCH_NORM for node in draft.graph.topological()):
        return lambda fused: complete(draft.copy(), fused)
    only = complete(draft, ())
    return lambda _: only


class _Draft:
    """A training graph in the making: at first the forward graph of a symbol.

    Attributes:
        graph: the nodes so far.
        variables: name -> (shape, dtype) of its variables, and of those still to come.
        roles: the roles of variables, by name.
        heads: the role of each head of the graph.
    """

    def __init__(
        self, symbol: mx.sym.Symbol, inputs: Variables, parameters: Variables, aux: Variables
    ) -> None:
        self.graph = Graph.from_symbol(symbol)
        merge_variables(self.graph)
        self.variables = {**inputs, **parameters, **aux}
        self.roles = _roles(inputs, parameters, aux)
        self.heads = ["output"] * len(self.graph.heads)

    def copy(self) -> _Draft:
        """Return a copy that can be continued differently."""
        twin = copy.copy(self)
        twin.graph = self.graph.copy()
        twin.variables, twin.roles = dict(self.variables), dict(self.roles)
        twin.heads = list(self.heads)
        return twin

    def infer(self, *, may_be_empty: bool = False) -> None:
        """Infer the shapes and dtypes of all entries; see tofu.mx.graphs.infer."""
        infer(self.graph, self.variables, may_be_empty=may_be_empty)

    def describe_head_gradients(self) -> None:
        """Give the variables of the outputs' gradients the shapes of the outputs."""
        for i, head in enumerate(self.graph.heads):
            name = f"{HEAD_GRADIENT}{i}"
            self.variables[name] = (head.shape, dtype_name(head.dtype))
            self.roles[name] = f"head_grad:{i}"

    def add_heads(self, kind: str, entries: Mapping[str, Entry]) -> None:
        """Append heads with the roles "<kind>:<name>"."""
        self.graph.heads += entries.values()
        self.heads += [f"{kind}:{name}" for name in entries]

    def differentiate(self, gradients: Collection[str], use: GraphUse) -> None:
        """Append gradients, and the auxiliary states that the forward half computes."""
        outputs = len(self.graph.heads)
        states = BEFORE.apply(self.graph, use)
        self.graph.heads += states.values()
        self.graph, entries = _differentiate(self.graph, outputs, gradients, self.variables)
        states = dict(zip(states, self.graph.heads[outputs:]))
        del self.graph.heads[outputs:]
        self.add_heads("gradient", entries)
        self.add_heads("aux", states)
        stand_in(self.graph)

    def update(self, optimizer: str, names: Iterable[str]) -> None:
        """Append an optimizer's update of these parameters, by their gradients."""
        heads = self.graph.heads
        by_name = {name: heads[self.heads.index(f"gradient:{name}")] for name in names}
        new_weights, states = append_updates(self.graph, optimizer, by_name)
        self.add_heads("update", new_weights)
        self.variables.update(states)
        self.roles.update({name: f"state:{name.rpartition(':')[0]}" for name in states})


def _roles(inputs: Variables, parameters: Variables, aux: Variables) -> dict[str, str]:
    roles = dict.fromkeys(inputs, "data")
    roles.update(dict.fromkeys(parameters, "parameter"))
    roles.update(dict.fromkeys(aux, "aux"))
    return roles


def _check_variables(graph: Graph, variables: Variables, gradients: Iterable[str]) -> None:
    missing = [name for name in graph.variables() if name not in variables]
    if missing:
        raise GraphError(
            f"no shape for variable{'s' * (len(missing) > 1)} {', '.join(missing)}: every "
            "variable of the symbol must be among inputs, parameters or aux"
        )
    unknown = [name for name in gradients if name not in variables]
    if unknown:
        raise GraphError(f"gradients wanted for unknown variables: {', '.join(unknown)}")


def _drop_hidden_attributes(nodes: Iterable[Node]) -> None:
    """Drop initializers, learning rates, context groups and the like."""
    for node in nodes:
        node.attrs = {
            key: value
            for key, value in node.attrs.items()
            if not node.is_variable and not (key.startswith("__") and key.endswith("__"))
        }


def _differentiate(
    graph: Graph, outputs: int, gradients: Collection[str], variables: Variables
) -> tuple[Graph, dict[str, Entry]]:
    """Add the gradients of the outputs to the graph; zeros for variables without one."""
    extra = graph.heads[outputs:]
    graph.heads = graph.heads[:outputs]
    graph, gradient_of = differentiate(graph, list(gradients), carried=extra)
    zeros = {
        name: Entry(
            Node(
                "_zeros",
                f"{name}_no_gradient",
                {"shape": format_shape(variables[name][0]), "dtype": variables[name][1]},
            )
        )
        for name in gradients
        if name not in gradient_of
    }
    return graph, {name: gradient_of.get(name) or zeros[name] for name in gradients}


def _check_stateless(graph: Graph) -> None:
    stateful = [node for node in graph.topological() if is_stateful_backward(node.op)]
    if stateful:
        shown = ", ".join(f"{node.name} ({node.op})" for node in stateful[:3])
        raise GraphError(
            f"{len(stateful)} backward operators read state that their forward operator keeps "
            f"to itself and cannot be partitioned: {shown}{', ...' * (len(stateful) > 3)}"
        )


def _drop_shape_donors(graph: Graph) -> None:
    """Drop operators that no head reads; they only gave MXNet the shapes of others."""
    read = graph.nodes_read()
    for node in read:
        node.control_deps = [dep for dep in node.control_deps if dep in read]


def _finished(graph: Graph, roles: Mapping[str, str], heads: list[str]) -> _core.Graph:
    order = graph.topological()
    for node in order:
        if node.is_variable:
            node.attrs[ROLE] = roles[node.name]
    attrs = {
        "shape": ["list_shape", [list(shape) for node in order for shape in node.shapes]],
        "dtype": ["list_int", [dtype for node in order for dtype in node.dtypes]],
        "tofu_heads": ["list_str", heads],
    }
    return _core.Graph(graph.to_json(attrs))
