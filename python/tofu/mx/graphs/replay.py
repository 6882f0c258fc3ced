"""Gradients of operators that keep state between forward and backward: run both again.

The backward operators of ROIPooling, SequenceLast and other old operators read state that
the forward operator left in the same executor. A partitioned graph has two executors, so
that state is missing. If no lowering rewrites such a gradient, a custom operator replaces
it. It takes the forward operator's inputs, runs forward and backward in its own executor,
and every worker computes it whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import mxnet as mx

from tofu.analysis.strategy_table import WHOLE
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node

from ..extension import is_stateful_backward, untaught

__all__ = ["replay_stateful"]

_REPLAY = "tofu_replay"  # tofu.analysis.table knows it
_REASON = "its gradient needs what the forward operator keeps to itself, which runs once more"
# Operators that are random or have no meaning in another executor.
_REFUSED = frozenset(
    (
        *("CachedOp", "_CachedOp", "Custom", "_CustomFunction", "_NDArray", "_Native"),
        *("_CrossDeviceCopy", "_cond", "_foreach", "_while_loop", "Dropout", "RNN"),
    )
)
_GROUP = "__ctx_group__"
_registered: list[type] = []


def replay_stateful(graph: Graph) -> None:
    """Replace the stateful backward operators of a training graph where possible."""
    replacements: dict[Entry, Entry] = {}
    for node in graph.topological():
        if is_stateful_backward(node.op) and node.control_deps:
            replay = _replay_of(node, node.control_deps[0])
            if replay is not None:
                pairs = ((Entry(node, i), Entry(replay, i)) for i in range(replay.num_outputs))
                replacements.update(pairs)
    graph.replace(replacements)


def _replay_of(node: Node, forward: Node) -> Optional[Node]:
    """Return a node that computes the same gradients from the forward inputs, or None."""
    if forward.op in _REFUSED or len(forward.inputs) != node.num_outputs:
        return None
    symbol = _symbol(forward.op, forward.attrs, len(forward.inputs))
    if symbol.list_auxiliary_states() or len(symbol.list_outputs()) != 1:
        return None
    heads = [e for e in node.inputs if e.node is not forward and e not in forward.inputs]
    if len(heads) > 1:
        return None
    _register()
    attrs = {
        "op_type": _REPLAY,
        "of": node.op,
        "operator": forward.op,
        "arguments": json.dumps(forward.attrs, sort_keys=True),
        "inputs": str(len(forward.inputs)),
        "has_head": str(len(heads)),
        WHOLE: _REASON,
    }
    inputs = [*heads, *forward.inputs]
    return Node("Custom", node.name, attrs, inputs, [forward], num_outputs=node.num_outputs)


def _symbol(op: str, attrs: Mapping[str, str], inputs: int) -> mx.sym.Symbol:
    """An operator on variables x0, x1, ..., all of one context group."""
    group = {_GROUP: _GROUP}
    variables = [Entry(Node(VARIABLE, f"x{k}", dict(group))) for k in range(inputs)]
    return Graph([Entry(Node(op, "replayed", {**attrs, **group}, variables))]).to_symbol()


def _register() -> None:
    """Register the operator with MXNet, once."""
    if not _registered:
        _registered.append(mx.operator.register(_REPLAY)(_ReplayProp))


class _Replay(mx.operator.CustomOp):  # type: ignore[misc]
    """Runs another operator forward and backward.

    Args:
        symbol: the operator, on variables.
        has_head: whether its gradient reads the head gradient; if so, that is input 0.
    """

    def __init__(self, symbol: mx.sym.Symbol, has_head: bool) -> None:
        super().__init__()
        self._symbol, self._has_head = symbol, has_head
        self._executor: Optional[mx.executor.Executor] = None
        self._scalars = mx.util.is_np_shape()  # per thread; other threads run the operator

    def forward(
        self,
        is_train: bool,
        req: list[str],
        in_data: list[Any],
        out_data: list[Any],
        aux: list[Any],
    ) -> None:
        """Compute the gradients with respect to the operator's inputs."""
        with mx.util.np_shape(self._scalars):
            self._run(req, in_data, out_data)

    def _run(self, req: list[str], in_data: list[Any], out_data: list[Any]) -> None:
        # Arrays are of mx.np where the script has set it.
        in_data, out_data = ([a.as_nd_ndarray() for a in each] for each in (in_data, out_data))
        inputs = in_data[1:] if self._has_head else in_data
        if self._executor is None:  # not earlier: MXNet creates operators during another bind
            self._executor = self._bound(inputs)
        for name, array in self._executor.arg_dict.items():
            inputs[_number(name)].copyto(array)
        (output,) = self._executor.forward(is_train=True)
        head = in_data[0] if self._has_head else mx.nd.ones_like(output)
        self._executor.backward([head])
        for name, gradient in self._executor.grad_dict.items():
            self.assign(out_data[_number(name)], req[_number(name)], gradient)

    def _bound(self, inputs: Sequence[Any]) -> mx.executor.Executor:
        names = self._symbol.list_arguments()
        arrays = {name: mx.nd.zeros_like(inputs[_number(name)]) for name in names}
        gradients = {name: mx.nd.zeros_like(array) for name, array in arrays.items()}
        # Use a context group: on plain cpu(0) MXNet would search for subgraphs and log it.
        with untaught():
            return self._symbol.bind(
                mx.cpu(1), arrays, args_grad=gradients, group2ctx={_GROUP: inputs[0].context}
            )


def _number(name: str) -> int:
    """The number of the input that a variable stands for."""
    return int(name[1:])


class _ReplayProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    """The operator's properties for MXNet; it accepts no other attributes."""

    def __init__(
        self, of: str, operator: str, arguments: str, inputs: str, has_head: str, **others: str
    ) -> None:
        super().__init__(need_top_grad=False)
        self._count, self._has_head = int(inputs), has_head == "1"
        self._symbol = _symbol(operator, json.loads(arguments), self._count)

    def list_arguments(self) -> list[str]:
        """The head gradient, if the operator reads it, and the forward inputs."""
        inputs = [f"input{k}" for k in range(self._count)]
        return ["head", *inputs] if self._has_head else inputs

    def list_outputs(self) -> list[str]:
        """Returns the names of the gradients, one per forward input."""
        return [f"gradient{k}" for k in range(self._count)]

    def infer_shape(self, in_shape: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Gradients have the shapes of the inputs."""
        return in_shape, in_shape[self._has_head :], []

    def infer_type(self, in_type: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Gradients have the types of the inputs."""
        return in_type, in_type[self._has_head :], []

    def create_operator(self, ctx: Any, in_shapes: list[Any], in_dtypes: list[Any]) -> _Replay:
        """Create the operator."""
        return _Replay(self._symbol, self._has_head)
