"""Measures operators, copies and the engine itself on MXNet's CPU contexts.

Everything is measured in processor time of this process, so other load on the machine hardly
matters. A worker must have one thread: set OMP_NUM_THREADS=1 before MXNet is imported.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.mx.nnvm import VARIABLE
from tofu.mx.run.executor import bind

__all__ = ["Engine", "engine_seconds", "fetch_seconds", "node_seconds"]

_GROUP = "__ctx_group__"
_FETCH = "_tofu_multifetch"
_MOST_COPIES = 64
_REPEATS = 3
# Arrays of a measurement together; those that do not fit a cache are read from memory.
_ARRAY_BYTES = 32 * 2**20
_ENGINE_NODES = 2000
_ENOUGH_S = 0.01  # shortest measurement
_UPDATES = {"sgd_update": "multi_sgd_update", "sgd_mom_update": "multi_sgd_mom_update"}


@dataclasses.dataclass(frozen=True)
class Engine:
    """Cost of MXNet's engine, in seconds of processor time per operator.

    Attributes:
        push_s: cost on the script's thread.
        launch_s: cost on the worker's thread.
    """

    push_s: float
    launch_s: float


class _Builder:
    """Writes graphs of single operators."""

    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._tensors: list[tuple[Sequence[int], int]] = []
        self._rows = [0]
        self._heads: list[list[int]] = []
        self.variables: list[tuple[str, Sequence[int], int, int]] = []

    def variable(self, shape: Sequence[int], dtype: int, worker: int = 0) -> list[int]:
        """An array of the caller."""
        entry = self.node(VARIABLE, {}, [], [(shape, dtype)], worker)
        self.variables.append((self._nodes[-1]["name"], shape, dtype, worker))
        return entry

    def node(
        self,
        op: str,
        attrs: Mapping[str, str],
        inputs: Sequence[Sequence[int]],
        outputs: Sequence[tuple[Sequence[int], int]],
        worker: int = 0,
    ) -> list[int]:
        """A node; returns its first entry."""
        number = len(self._nodes)
        name = f"{'_' if op.startswith('_') else ''}n{number}"
        node_attrs = {key: value for key, value in attrs.items() if not key.startswith("__")}
        if op == _FETCH:  # of other workers' arrays, in place
            node_attrs["__direct__"] = "1"
        self._nodes.append(
            {
                "op": op,
                "name": name,
                "attrs": {**node_attrs, _GROUP: f"worker{worker}"},
                "inputs": [[entry[0], entry[1], 0] for entry in inputs],
            }
        )
        self._tensors += outputs
        self._rows.append(len(self._tensors))
        return [number, 0]

    def head(self, entry: Sequence[int]) -> None:
        """Make an entry a head of the graph."""
        self._heads.append([entry[0], entry[1], 0])

    def bind(self, workers: int = 1) -> mx.executor.Executor:
        """An executor of the graph; every element of its arrays is 0.75."""
        nodes = self._nodes
        graph = {
            "nodes": nodes,
            "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == VARIABLE],
            "node_row_ptr": self._rows,
            "heads": self._heads,
            "attrs": {
                "shape": ["list_shape", [list(shape) for shape, _ in self._tensors]],
                "dtype": ["list_int", [dtype for _, dtype in self._tensors]],
            },
        }
        arrays = {
            name: mx.nd.full(tuple(shape), 0.75, mx.cpu(worker), dtype_name(dtype))
            for name, shape, dtype, worker in self.variables
        }
        contexts = [mx.cpu(worker) for worker in range(workers)]
        return bind("measured", _core.Graph(json.dumps(graph)), contexts, arrays)


@dataclasses.dataclass(frozen=True)
class _Spent:
    """Processor seconds of one run: of the process, and of the script's thread."""

    process: float
    script: float


def _spent(executor: mx.executor.Executor, *, enough_s: float = _ENOUGH_S) -> _Spent:
    """The least of several measurements, each of at least these seconds."""
    runs = 1
    measured: list[_Spent] = []
    executor.forward(is_train=True)
    mx.nd.waitall()
    while len(measured) < _REPEATS:
        begin, script_begin = time.process_time(), time.thread_time()
        for _ in range(runs):
            executor.forward(is_train=True)
        script = time.thread_time() - script_begin
        mx.nd.waitall()
        process = time.process_time() - begin
        if process < enough_s and runs < 1 << 12:
            runs *= 2
            continue
        measured.append(_Spent(process / runs, script / runs))
    return min(measured, key=lambda spent: spent.process)


def engine_seconds() -> Engine:
    """Measure the engine with operators that have next to nothing to do."""
    builder = _Builder()
    shape = ([1], 0)
    entry = builder.variable(*shape)
    for _ in range(_ENGINE_NODES):
        entry = builder.node("_mul_scalar", {"scalar": "1"}, [entry], [shape])
    builder.head(entry)
    spent = _spent(builder.bind())
    push = spent.script / _ENGINE_NODES
    return Engine(push, max(spent.process / _ENGINE_NODES - push, 0.0))


def node_seconds(node: _core.Node, engine: Engine, *, workers: int = 1) -> float:
    """The time of a node's operator on arrays of its shapes, without launching it.

    Args:
        node: of any graph; its call is measured, on arrays of its own.
        engine: the engine's cost, which is subtracted.
        workers: number of contexts that run the operator at the same time.

    Raises:
        MXNetError: MXNet computes neither all outputs nor only the last one.
    """
    if node.op in _UPDATES:
        return _update_seconds(node, engine)
    outputs = range(len(node.outputs))
    try:
        return _node_seconds(node, outputs, engine, workers)
    except mx.MXNetError:  # such as an Embedding, which has no gradient of its indices
        return _node_seconds(node, outputs[-1:], engine, workers)


def _update_seconds(node: _core.Node, engine: Engine) -> float:
    """The time of an update as gluon.Trainer makes it.

    Trainers with MXNet's SGD update by its operators for several weights, which take longer.
    """
    update = getattr(mx.nd, _UPDATES[node.op])
    rates = {"lrs": [0.01], "wds": [0.0], "num_weights": 1}
    if "momentum" in node.attrs:
        rates["momentum"] = float(node.attrs["momentum"])
    copies = max(1, min(_MOST_COPIES, _ARRAY_BYTES // (4 * _elements(node.inputs))))
    sets = [
        [mx.nd.full(tuple(shape), 0.75, mx.cpu(0), dtype_name(dtype)) for shape, dtype in inputs]
        for inputs in [node.inputs] * copies
    ]

    def run(count: int) -> float:
        begin, script_begin = time.process_time(), time.thread_time()
        for number in range(count):
            arrays = sets[number % copies]
            update(*arrays, out=[arrays[0]], **rates)
        mx.nd.waitall()
        return time.process_time() - begin - (time.thread_time() - script_begin)

    run(copies)
    count = copies
    while run(count) < _ENOUGH_S and count < copies << 12:
        count *= 2
    return max(min(run(count) for _ in range(_REPEATS)) / count - engine.launch_s, 1e-9)


def _elements(tensors: Sequence[tuple[Sequence[int], int]]) -> int:
    return max(1, sum(math.prod(shape) for shape, _ in tensors))


def _node_seconds(node: _core.Node, outputs: Sequence[int], engine: Engine, workers: int) -> float:
    """The same, if only these outputs are read: MXNet does not compute the others."""
    size = 4 * _elements([*node.inputs, *node.outputs])
    copies = max(1, min(_MOST_COPIES, _ARRAY_BYTES // size))
    builder = _Builder()
    for _ in range(copies):
        for worker in range(workers):
            inputs = [builder.variable(shape, dtype, worker) for shape, dtype in node.inputs]
            number, _ = builder.node(node.op, node.attrs, inputs, node.outputs, worker)
            for output in outputs:
                builder.head([number, output])
    spent = _spent(builder.bind(workers)).process / (copies * workers)
    return max(spent - engine.push_s - engine.launch_s, 1e-9)


def fetch_seconds(size: int, engine: Engine, *, workers: int) -> float:
    """The time that a worker takes to fetch `size` bytes from one other, all at the same time."""
    elements = max(size // 4, 1)
    copies = max(1, min(_MOST_COPIES, _ARRAY_BYTES // (2 * size)))
    builder = _Builder()
    for _ in range(copies):
        tile = [elements], 0
        tiles = [builder.variable(*tile, worker) for worker in range(workers)]
        spec = f"dtype=0 shape={elements} sources={elements}; pieces=0@0>0:{elements}"
        attrs = {"spec": spec}
        for worker in range(workers):
            owned = tiles[(worker + 1) % workers]
            builder.head(builder.node(_FETCH, attrs, [owned], [tile], worker))
    spent = _spent(builder.bind(workers)).process / (copies * workers)
    return max(spent - engine.push_s - engine.launch_s, 1e-9)
