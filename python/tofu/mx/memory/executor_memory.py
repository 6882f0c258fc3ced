"""Predicts the memory that MXNet's executor allocates for a graph, without allocating it.

    memory = predict(graph, workers=8)     # a tofu._core.Graph
    memory.bytes_per_worker

C++ code follows MXNet's planner step by step (src/passes/memory/executor_memory.h). The
planner needs to know of each operator whether an output may reuse the memory of an input,
and MXNet has no function that says so. So this module binds graphs of that one operator,
which touches no memory, and reads how much MXNet planned for them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import mxnet as mx

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.errors import InternalError

from ..extension import MATCH_RANGE, load
from ..nnvm import VARIABLE
from ..run.executor import bind

__all__ = [
    "DEFAULT_MATCH_RANGE",
    "ExecutorMemory",
    "LiveTensor",
    "operator_rules",
    "planned_mib",
    "predict",
]

DEFAULT_MATCH_RANGE = 16
_GROUP = "__ctx_group__"
# MXNet's planner counts every element as a float32, and prints whole MiB.
_PLANNED_ELEMENT_BYTES = 4
_MIB = 2**20
# The tensors of a probe add up to this size, so whole MiB can tell results apart.
_PROBE_BYTES = 4 * _MIB
# Smaller tensors are not worth a probe: in place or not, no plan changes by 1%.
_SMALLEST_BYTES = 2**15
_PRINTED = re.compile(r"Total (\d+) MB allocated")
# In-place pairs (input, output, whether also while others still read the input), and the
# inputs whose values are not read, only their shapes.
Rule = tuple[list[tuple[int, int, bool]], list[int]]


@dataclasses.dataclass(frozen=True)
class LiveTensor:
    """A tensor that is alive when most memory is needed.

    Attributes:
        node: name of the node that wrote it; "" for a copy between workers.
        op: the node's operator.
        output: the number of the node's output.
        bytes: its size.
        head: the number of a head of the graph that it is; -1 for none.
        born, died: the moment at which it is written, and the first one at which it is gone.
    """

    node: str
    op: str
    output: int
    bytes: int
    head: int
    born: int
    died: int


@dataclasses.dataclass(frozen=True)
class ExecutorMemory:
    """The memory of an executor's pool of intermediate tensors.

    Attributes:
        match_range: the planner's setting, given or chosen as the best.
        planned_bytes: MXNet's own figure, which ``executor.debug_str()`` prints: the sum over
            all workers at four bytes per element.
        bytes_per_worker: the bytes allocated.
        live_per_worker: the most bytes needed at one moment.
        peak_worker: the number of the worker that needs most.
        moments: the nodes that this worker runs, in order; "" for a copy.
        lives: its tensors between operators.
    """

    match_range: int
    planned_bytes: int
    bytes_per_worker: tuple[int, ...]
    live_per_worker: tuple[int, ...]
    peak_worker: int = 0
    moments: tuple[str, ...] = ()
    lives: tuple[LiveTensor, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Operator:
    """One way to call an operator.

    Attributes:
        op: its name.
        attrs: its attributes.
        inputs: shape and type flag of each input.
        outputs: the same for each output.
    """

    op: str
    attrs: Mapping[str, str]
    inputs: tuple[tuple[tuple[int, ...], int], ...]
    outputs: tuple[tuple[tuple[int, ...], int], ...]

    @classmethod
    def of_node(cls, node: _core.Node) -> _Operator:
        """The call that a node makes."""
        attrs = {key: value for key, value in node.attrs.items() if not key.startswith("__")}
        return cls(node.op, attrs, tuple(node.inputs), tuple(node.outputs))

    def size(self) -> int:
        """The number of elements of all inputs and outputs."""
        return sum(math.prod(shape) for shape, _ in self.inputs + self.outputs)


def predict(
    graph: _core.Graph,
    *,
    workers: int = 1,
    match_range: int = DEFAULT_MATCH_RANGE,
    search_match_range: bool = False,
    external: Sequence[int] = (),
    only_worker: Optional[int] = None,
) -> ExecutorMemory:
    """Follow MXNet's memory planner over a graph.

    Args:
        graph: with shapes and dtypes; nodes name their worker, or all belong to worker 0.
        workers: number of workers.
        match_range: NNVM_EXEC_MATCH_RANGE.
        search_match_range: NNVM_AUTO_SEARCH_MATCH_RANGE.
        external: numbers of the heads whose arrays the caller provides, such as gradients
            when MXNet itself differentiates.
        only_worker: the worker that counts; None: all count.

    Raises:
        GraphError: MXNet refuses an operator.
        UnsupportedMXNetError: see tofu.mx.extension.load.
    """
    uses = _core.OperatorUses(graph)
    prediction = _core.executor_memory(
        uses,
        operator_rules(uses),
        workers=workers,
        match_range=match_range,
        search_match_range=search_match_range,
        external_heads=list(external),
        only_worker=-1 if only_worker is None else only_worker,
    )
    return ExecutorMemory(
        match_range=prediction["match_range"],
        planned_bytes=prediction["planned_bytes"],
        bytes_per_worker=tuple(prediction["bytes_per_worker"]),
        live_per_worker=tuple(prediction["live_per_worker"]),
        peak_worker=prediction["peak_worker"],
        moments=tuple(prediction["moments"]),
        lives=tuple(LiveTensor(*record) for record in prediction["lives"]),
    )


def operator_rules(uses: _core.OperatorUses) -> list[Rule]:
    """Find the in-place rules of a graph's operators, for each way in which it calls them.

    Raises:
        GraphError: MXNet refuses an operator.
        UnsupportedMXNetError: see tofu.mx.extension.load.
    """
    load()
    return [_rule(_Operator.of_node(node)) for node in uses.nodes]


def planned_mib(executor: mx.executor.Executor) -> int:
    """Whole MiB that MXNet has planned for an executor's intermediate tensors."""
    match = _PRINTED.search(executor.debug_str())
    if match is None:
        raise InternalError("debug_str() of an executor has no line 'Total ... MB allocated'")
    return int(match.group(1))


_rules: dict[str, Rule] = {}


def _rule(operator: _Operator) -> Rule:
    """The operator's rule, cached; empty if its tensors are too small to matter."""
    pairs = _candidates(operator)
    if not pairs:
        return [], []
    # Calls with the same attributes can pair other tensors: a layer's gradient has the size
    # of its input only where the layer keeps the width. And one copy finds more than several.
    alone = [_copies(math.prod(operator.inputs[i][0])) == 1 for i, _ in pairs]
    attrs = sorted(operator.attrs.items())
    key = json.dumps([operator.op, attrs, len(operator.inputs), pairs, alone])
    if key not in _rules:
        _rules[key] = _Probe(operator).rule()
    return _rules[key]


def _candidates(operator: _Operator) -> list[tuple[int, int]]:
    """Inputs and outputs of one size, large enough to matter."""
    outputs = [math.prod(shape) for shape, _ in operator.outputs]
    return [
        (i, j)
        for i, (shape, _) in enumerate(operator.inputs)
        if _PLANNED_ELEMENT_BYTES * math.prod(shape) >= _SMALLEST_BYTES
        for j, size in enumerate(outputs)
        if size == math.prod(shape)
    ]


def _copies(size: int) -> int:
    """Number of operators with which a probe tells tensors of `size` elements apart."""
    return max(1, math.ceil(_PROBE_BYTES / (_PLANNED_ELEMENT_BYTES * size)))


class _Probe:
    """Measures how an operator works in place, by the planned bytes of small graphs."""

    def __init__(self, operator: _Operator) -> None:
        self._operator = operator

    def rule(self) -> Rule:
        """Determine which inputs' memory the operator reuses."""
        pairs: list[tuple[int, int, bool]] = []
        ignored = []
        for i, j in _candidates(self._operator):
            size = math.prod(self._operator.inputs[i][0])
            if self._saves(i, j, size, still_read=True):
                pairs.append((i, j, True))
            elif self._saves(i, j, size, still_read=False):
                pairs.append((i, j, False))
            elif _copies(size) == 1 and self._saves(i, j, size, still_read=False, match_range=1):
                # The input's block was free before the operator needed one. (With more
                # copies, blocks of earlier copies would be free as well.)
                ignored.append(i)
        return pairs, sorted(set(ignored))

    def _saves(
        self, source: int, output: int, size: int, *, still_read: bool, match_range: int = 0
    ) -> bool:
        """Whether the plan saves the block of `source`, compared with all tensors' sizes."""
        copies = _copies(size)
        graph = self._graph(source, output, still_read, copies)
        needed = copies * _PLANNED_ELEMENT_BYTES * self._operator.size()
        saved = needed - planned_mib(self._bind(graph, match_range)) * _MIB
        return saved > copies * _PLANNED_ELEMENT_BYTES * size / 2

    def _graph(self, source: int, output: int, still_read: bool, copies: int) -> dict[str, Any]:
        """Build the graph; every input is a head too, except `source` unless `still_read`."""
        nodes: list[dict[str, Any]] = []
        entries: list[tuple[tuple[int, ...], int]] = []
        rows = [0]
        heads = []

        def add(op: str, attrs: Mapping[str, str], inputs: list[int], outputs: Any) -> int:
            name = f"{'_' if op.startswith('_') else ''}n{len(nodes)}"
            attrs = {**attrs, _GROUP: "worker0"}
            edges = [[node, 0, 0] for node in inputs]
            nodes.append({"op": op, "name": name, "attrs": attrs, "inputs": edges})
            entries.extend(outputs)
            rows.append(len(entries))
            return len(nodes) - 1

        operator = self._operator
        for _ in range(copies):
            inputs = [
                add("_copy", {}, [add(VARIABLE, {}, [], [entry])], [entry])
                for entry in operator.inputs
            ]
            heads += [[node, 0, 0] for i, node in enumerate(inputs) if still_read or i != source]
            heads.append([add(operator.op, operator.attrs, inputs, operator.outputs), output, 0])
        return {
            "nodes": nodes,
            "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == VARIABLE],
            "node_row_ptr": rows,
            "heads": heads,
            "attrs": {
                "shape": ["list_shape", [list(shape) for shape, _ in entries]],
                "dtype": ["list_int", [dtype for _, dtype in entries]],
            },
        }

    def _bind(self, graph: Mapping[str, Any], match_range: int) -> mx.executor.Executor:
        first, shapes = graph["node_row_ptr"], graph["attrs"]["shape"][1]
        dtypes = graph["attrs"]["dtype"][1]
        arrays = {
            graph["nodes"][i]["name"]: mx.nd.empty(
                tuple(shapes[first[i]]), mx.cpu(0), dtype_name(dtypes[first[i]])
            )
            for i in graph["arg_nodes"]
        }
        return bind(
            f"{self._operator.op} probe",
            _core.Graph(json.dumps(graph)),
            [mx.cpu(0)],
            arrays,
            planner={MATCH_RANGE: str(match_range)},
        )
