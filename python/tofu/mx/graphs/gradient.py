"""The backward half of a training graph, from NNVM's own MXGradient pass."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

import mxnet as mx
from mxnet.base import _LIB, c_str, check_call

from tofu.mx.nnvm import Entry, Graph, Node

from ..extension import mxnet_errors
from .lower.split_sensitive import DATA_SHAPE

__all__ = ["HEAD_GRADIENT", "RENAMED", "differentiate"]

# The variables of the head gradients have this name, followed by the output's index.
HEAD_GRADIENT = "tofu_head_gradient"
# Operators that MXGradient creates under names that MXNet does not use.
_SUM = "add_n"
RENAMED = {"zeros": "_zeros_without_dtype", "elemwise_sum": _SUM}
# MXNet saves this operator without an attribute that it needs to load it: the shape of the
# forward operator's data, which the lowering of gather_nd keeps as DATA_SHAPE.
_SCATTERED = "_backward_gather_nd"
# No gradient flows through these; most have no gradient function at all.
_CONSTANT = frozenset(
    ("BlockGrad", "argmax", "argmax_channel", "argmin", "argsort", "shape_array", "size_array")
)
_CUT = "tofu_cut"


def differentiate(
    forward: Graph, with_respect_to: Sequence[str], *, carried: Sequence[Entry] = ()
) -> tuple[Graph, dict[str, Entry]]:
    """Add the gradients of the heads to a graph. Modifies `forward`.

    with_respect_to: names of variables.
    carried: other entries that stay heads and are not differentiated.

    Returns the graph (its heads: those of `forward`, then the carried ones) and the entry
    of every gradient. A variable that no head depends on has no gradient. Head gradients are
    variables named HEAD_GRADIENT plus the head's index; those that nothing reads are absent.
    """
    forward.heads = _distinct_heads(forward.heads)
    num_outputs = len(forward.heads)
    forward.heads += carried
    dependent = _dependent(forward, frozenset(with_respect_to))
    active = [i for i in range(num_outputs) if forward.heads[i].node in dependent]
    reached = _reached([forward.heads[i].node for i in active], dependent)
    names = [name for name in with_respect_to if name in reached]
    if not names:
        return forward, {}
    count = len(forward.heads)
    cuts = _cut(dependent)
    symbol = Graph(forward.heads + list(cuts)).to_symbol()
    with mxnet_errors("computing the gradient"):
        gradients = _gradient_symbol(symbol, active, names)
    graph = Graph.from_symbol(mx.sym.Group([symbol, gradients]))
    sources = graph.heads[count : count + len(cuts)]
    placeholders = graph.variables()
    graph.heads[count : count + len(cuts)] = []
    graph.replace(
        {Entry(placeholders[cut.name]): source for cut, source in zip(cuts.values(), sources)}
    )
    entries = dict(zip(names, graph.heads[count:]))
    for node in graph.topological():
        node.op = RENAMED.get(node.op, node.op)
        if node.op == _SUM:
            _chain(node)
        if node.op == _SCATTERED:
            node.attrs["shape"] = node.control_deps[0].attrs[DATA_SHAPE]
    return Graph(graph.heads[:count], _kept(graph, forward)), entries


def _chain(total: Node) -> None:
    """Add the terms of a sum one at a time, as they become available.

    A weight that every timestep uses gets one gradient per timestep. To hold all of them at
    once would take many times the weight's memory.
    """
    first, *others = total.inputs
    for i, term in enumerate(others[:-1]):
        attrs = {"num_args": "2"}
        first = Entry(Node(_SUM, f"{total.name}_{i}", attrs, inputs=[first, term]))
    total.inputs = [first, others[-1]]
    total.attrs["num_args"] = "2"


def _distinct_heads(heads: Sequence[Entry]) -> list[Entry]:
    """Copy heads that are variables or appear twice, so each has its own gradient."""
    distinct: list[Entry] = []
    for i, entry in enumerate(heads):
        if entry.node.is_variable or entry in distinct:
            entry = Entry(Node("_copy", f"{entry.node.name}_output{i}", inputs=[entry]))
        distinct.append(entry)
    return distinct


def _dependent(graph: Graph, names: Collection[str]) -> set[Node]:
    """The nodes through which a gradient flows to one of the variables."""
    dependent: set[Node] = set()
    for node in graph.topological():
        if node.is_variable:
            flows = node.name in names
        else:
            flows = any(entry.node in dependent for entry in node.inputs)
        if flows and node.op not in _CONSTANT:
            dependent.add(node)
    return dependent


def _reached(heads: Sequence[Node], dependent: set[Node]) -> set[str]:
    """The variables that a gradient reaches from the heads."""
    pending, seen = list(heads), set(heads)
    while pending:
        inputs = {entry.node for entry in pending.pop().inputs}
        new = (inputs & dependent) - seen
        seen |= new
        pending += new
    return {node.name for node in seen if node.is_variable}


def _cut(dependent: Collection[Node]) -> dict[Entry, Node]:
    """Replace inputs of dependent nodes that have no gradient by variables.

    MXGradient then never visits the operators that compute them; it would refuse some.
    """
    cuts: dict[Entry, Node] = {}
    for node in dependent:
        for i, entry in enumerate(node.inputs):
            if entry.node not in dependent and not entry.node.is_variable:
                cut = cuts.setdefault(entry, Node("null", f"{_CUT}{len(cuts)}"))
                node.inputs[i] = Entry(cut)
    return cuts


def _kept(graph: Graph, forward: Graph) -> list[Node]:
    """The variables of both graphs; a symbol alone drops those that nothing reads."""
    variables = {
        name: node for name, node in graph.variables().items() if not name.startswith(_CUT)
    }
    for node in forward.topological():
        if node.is_variable and not node.name.startswith(_CUT):
            variables.setdefault(node.name, node)
    return list(variables.values())


def _gradient_symbol(
    symbol: mx.sym.Symbol, active: Sequence[int], names: Sequence[str]
) -> mx.sym.Symbol:
    internals = symbol.get_internals()
    outputs = internals.list_outputs()
    xs = mx.sym.Group([internals[outputs.index(name)] for name in names])
    ys = mx.sym.Group([symbol[i] for i in active])
    head_gradients = mx.sym.Group([mx.sym.Variable(f"{HEAD_GRADIENT}{i}") for i in active])
    graph = ctypes.c_void_p()
    check_call(_LIB.NNGraphCreate(ys.handle, ctypes.byref(graph)))
    try:
        attributes = {"grad_ys": ys, "grad_xs": xs, "grad_ys_out_grad": head_gradients}
        for key, value in attributes.items():
            check_call(_LIB.NNGraphSetNodeEntryListAttr_(graph, c_str(key), value.handle))
        # If two variables share one gradient, the second gets a copy.
        check_call(_LIB.NNGraphSetJSONAttr(graph, c_str("copy_op"), c_str('["str", "_copy"]')))
        return _apply_pass(graph, "MXGradient")
    finally:
        _LIB.NNGraphFree(graph)


def _apply_pass(graph: ctypes.c_void_p, name: str) -> mx.sym.Symbol:
    names = (ctypes.c_char_p * 1)(name.encode())
    result = ctypes.c_void_p()
    check_call(_LIB.NNGraphApplyPasses(graph, 1, names, ctypes.byref(result)))
    try:
        handle = ctypes.c_void_p()
        check_call(_LIB.NNGraphGetSymbol(result, ctypes.byref(handle)))
        return mx.sym.Symbol(handle)
    finally:
        _LIB.NNGraphFree(result)
