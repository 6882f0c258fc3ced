"""What MXNet's executor allocates for a graph, before anything is allocated.

    graph = tofu._core.Graph(graph_json)
    rules = memory_rules(graph)
    memory = predict(graph, rules, workers=8)
    memory.bytes_per_worker

MXNet's planner is followed step by step in C++ (src/passes/memory/executor_memory.h). What it
asks of each operator, whether an output may lie where an input lay, MXNet tells nobody;
it is found out by binding graphs of that one operator, which touches no memory, and
reading how much was planned for them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.errors import InternalError

from ..build.nnvm import VARIABLE
from ..run.executor import bind
from ..run.extension import MATCH_RANGE, load

__all__ = [
    "DEFAULT_MATCH_RANGE",
    "ExecutorMemory",
    "LiveTensor",
    "memory_rules",
    "planned_mib",
    "predict",
    "rules_of",
]

DEFAULT_MATCH_RANGE = 16
_FORMAT = "tofu-memory-rules"
_VERSION = 1
_GROUP = "__ctx_group__"
# MXNet's planner takes every element for a float32, and prints whole MiB.
_PLANNED_ELEMENT_BYTES = 4
_MIB = 2**20
# What a probe's tensors add up to, so that whole MiB tell one from the other.
_PROBE_BYTES = 4 * _MIB
# A tensor this small is not worth a probe: in place or not, no plan changes by 1%.
_SMALLEST_BYTES = 2**15
_PRINTED = re.compile(r"Total (\d+) MB allocated")


@dataclasses.dataclass(frozen=True)
class LiveTensor:
    """A tensor that is alive at the worst moment.

    Attributes:
        node: name of the node that wrote it; "" for a copy between workers.
        op: that node's operator.
        output: which output of the node it is.
        bytes: its size.
        is_head: whether it is a head of the graph.
    """

    node: str
    op: str
    output: int
    bytes: int
    is_head: bool


@dataclasses.dataclass(frozen=True)
class ExecutorMemory:
    """What an executor's pool of intermediate tensors takes.

    Attributes:
        match_range: the planner's setting that was used or found best.
        planned_bytes: over all workers and with four bytes an element, as MXNet plans;
            ``executor.debug_str()`` prints it.
        bytes_per_worker: what is allocated.
        live_per_worker: the most that is needed at one moment.
        peak: what is alive at that moment on the worker that needs most, largest first.
    """

    match_range: int
    planned_bytes: int
    bytes_per_worker: tuple[int, ...]
    live_per_worker: tuple[int, ...]
    peak: tuple[LiveTensor, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Operator:
    """One way to call an operator.

    Attributes:
        op: its name.
        attrs: its attributes.
        inputs: shape and type flag of each.
        outputs: the same.
    """

    op: str
    attrs: Mapping[str, str]
    inputs: tuple[tuple[tuple[int, ...], int], ...]
    outputs: tuple[tuple[tuple[int, ...], int], ...]

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> _Operator:
        """One of the operators that tofu._core.operator_uses lists."""
        inputs, outputs = (
            tuple((tuple(shape), dtype) for shape, dtype in record[side])
            for side in ("inputs", "outputs")
        )
        return cls(record["op"], record["attrs"], inputs, outputs)

    def size(self) -> int:
        """Elements of all inputs and outputs."""
        return sum(math.prod(shape) for shape, _ in self.inputs + self.outputs)


def predict(
    graph: _core.Graph,
    rules: str,
    *,
    workers: int = 1,
    match_range: int = DEFAULT_MATCH_RANGE,
    search_match_range: bool = False,
    external: Sequence[int] = (),
) -> ExecutorMemory:
    """Follow MXNet's memory planner over a graph.

    Args:
        graph: with shapes and dtypes; nodes name their worker or are all of worker 0.
        rules: what memory_rules returns for it.
        workers: number of workers.
        match_range: NNVM_EXEC_MATCH_RANGE.
        search_match_range: NNVM_AUTO_SEARCH_MATCH_RANGE.
        external: numbers of the heads that the executor is given arrays for, as those of
            gradients are when MXNet itself differentiates.

    Raises:
        GraphError: the rules cannot be read, or do not fit.
    """
    found = _core.executor_memory(
        graph,
        rules,
        workers=workers,
        match_range=match_range,
        search_match_range=search_match_range,
        external_heads=list(external),
    )
    return ExecutorMemory(
        match_range=found["match_range"],
        planned_bytes=found["planned_bytes"],
        bytes_per_worker=tuple(found["bytes_per_worker"]),
        live_per_worker=tuple(found["live_per_worker"]),
        peak=tuple(LiveTensor(*record) for record in found["peak"]),
    )


def memory_rules(graph: _core.Graph) -> str:
    """What the operators of a graph do in place (JSON, docs/formats.md).

    Raises GraphError where MXNet refuses an operator, UnsupportedMXNetError as load does.
    """
    return rules_of(json.loads(_core.operator_uses(graph)))


def rules_of(uses: Mapping[str, Any]) -> str:
    """The same from the ways in which a graph calls its operators (docs/formats.md)."""
    load()
    operators = map(_Operator.of_record, uses["operators"])
    return json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "nodes": uses["nodes"],
            "rules": [_rule(_key(operator), operator) for operator in operators],
        }
    )


def planned_mib(executor: mx.executor.Executor) -> int:
    """Whole MiB that MXNet has planned for an executor's intermediate tensors."""
    found = _PRINTED.search(executor.debug_str())
    if found is None:
        raise InternalError("debug_str() of an executor has no line 'Total ... MB allocated'")
    return int(found.group(1))


def _key(operator: _Operator) -> str:
    return json.dumps([operator.op, sorted(operator.attrs.items()), len(operator.inputs)])


_rules: dict[tuple[str, bool], dict[str, Any]] = {}


def _rule(key: str, operator: _Operator) -> dict[str, Any]:
    """The operator's rule, remembered unless its tensors are too small to tell."""
    large = _PLANNED_ELEMENT_BYTES * operator.size() >= _SMALLEST_BYTES
    if (key, large) not in _rules:
        _rules[key, large] = _Probe(operator).rule() if large else {"inplace": [], "ignored": []}
    return _rules[key, large]


def _copies(size: int) -> int:
    """How many operators a probe needs for tensors of `size` elements to be told apart."""
    return max(1, math.ceil(_PROBE_BYTES / (_PLANNED_ELEMENT_BYTES * size)))


class _Probe:
    """Graphs of one operator whose planned bytes tell what it does in place."""

    def __init__(self, operator: _Operator) -> None:
        self._operator = operator

    def rule(self) -> dict[str, Any]:
        """In-place pairs, and the inputs of which only the shape is read."""
        pairs, ignored = [], []
        for i, (shape, _) in enumerate(self._operator.inputs):
            size = math.prod(shape)
            if _PLANNED_ELEMENT_BYTES * size < _SMALLEST_BYTES:
                continue
            for j, (output, _) in enumerate(self._operator.outputs):
                if math.prod(output) != size:
                    continue
                if self._saves(i, j, size, still_read=True):
                    pairs.append([i, j, True])
                elif self._saves(i, j, size, still_read=False):
                    pairs.append([i, j, False])
                elif _copies(size) == 1 and self._saves(
                    i, j, size, still_read=False, match_range=1
                ):
                    # Its block was free before the operator asked for one. (Beside further
                    # copies, those of an earlier one are free as well.)
                    ignored.append(i)
        return {"inplace": pairs, "ignored": sorted(set(ignored))}

    def _saves(
        self, source: int, output: int, size: int, *, still_read: bool, match_range: int = 0
    ) -> bool:
        """Whether less is planned than all tensors need, by the block of `source`."""
        copies = _copies(size)
        graph = self._graph(source, output, still_read, copies)
        needed = copies * _PLANNED_ELEMENT_BYTES * self._operator.size()
        saved = needed - planned_mib(self._bind(graph, match_range)) * _MIB
        return saved > copies * _PLANNED_ELEMENT_BYTES * size / 2

    def _graph(self, source: int, output: int, still_read: bool, copies: int) -> dict[str, Any]:
        """Only `output` is a head; all inputs but `source` have another reader."""
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
            graph,
            [mx.cpu(0)],
            arrays,
            planner={MATCH_RANGE: str(match_range)},
        )
