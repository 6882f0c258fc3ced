"""Runs every operator of a training graph alone, whole and as its plan splits it.

A script's results say that something is wrong; this says which operator. Each gets the values that
the operators before it compute whole, so a wrong one does not make those after it look wrong::

    for wrong in wrong_operators(compiled.searched, values):
        print(wrong.node, wrong.splits, wrong.difference)

The passes partition a graph of that one operator (tests/python/equality draws such graphs at
random), so it runs with the same regions, fetches and attributes as in the script.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

from tofu import _core
from tofu.analysis.described import description_of, is_random
from tofu.analysis.strategy_table import WHOLE
from tofu.analysis.table import Row, described_name, document, row_for
from tofu.dtypes import dtype_name
from tofu.errors import TofuError
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node
from tofu.mx.run.program import Program
from tofu.plans.plan import REPLICATED
from tofu.plans.runs import UNUSUAL

__all__ = ["Wrong", "first_sensitive", "has_own", "wrong_operators"]

# Far above rounding in double precision, far below a wrong region's difference.
_TOLERANCE = 1e-6
_HEAD_GRADIENT = "head_grad"
_ROLE = "__tofu_role__"
Cuts = Sequence[Optional[str]]


@dataclasses.dataclass(frozen=True)
class Wrong:
    """An operator whose parts do not give the whole.

    Attributes:
        node: its name in the training graph.
        op: its operator.
        splits: the index variable that each step splits.
        used: whether the plan splits it so.
        difference: the largest difference, relative to the largest value; infinite if the parts
            do not run.
        error: why the parts do not run, or "".
    """

    node: str
    op: str
    splits: tuple[Optional[str], ...]
    used: bool
    difference: float
    error: str = ""


def has_own(graph: _core.Graph) -> bool:
    """Whether the user describes any operator of a graph."""
    return any(map(_is_own, (node for node in graph.nodes if node.op)))


def _is_own(node: Any) -> bool:
    description = description_of(described_name(node.op, node.attrs)[0])
    return description is not None and not description.is_shipped


def wrong_operators(plan: _core.Plan, values: Mapping[str, Any]) -> Iterator[Wrong]:
    """Yields the operators whose parts do not give the whole, in the graph's order.

    Args:
        plan: the plan; operators that the user describes are split in every other way, too.
        values: values of the graph's variables; missing ones are drawn at random.
    """
    nodes = plan.table.graph.nodes
    names = [node.name for node in nodes]
    read = {source for node in nodes for source in node.sources}
    cuts = _Cuts(plan)
    tried: set[Any] = set()
    for number, operator, outputs in _whole(plan, values):
        node = nodes[number]
        if operator.row is None or is_random(node.op):
            continue
        compared = [i for i in range(len(outputs)) if (number, i) in read or len(outputs) == 1]
        sources = [(names[at], index) for at, index in node.sources]
        for parts, splits, tensors, used in cuts.ways(node, operator, sources):
            key = (node.op, tuple(sorted(node.attrs.items())), operator.shapes, tuple(splits),
                   tuple(map(tuple, tensors)), tuple(parts))  # fmt: skip
            if key not in tried:
                tried.add(key)
                difference, error = operator.compare(parts, splits, tensors, outputs, compared)
                if difference > _TOLERANCE:
                    yield Wrong(node.name, node.op, tuple(splits), used, difference, error)


def first_sensitive(
    plan: _core.Plan, values: Mapping[str, Any], rounded: Mapping[str, Any]
) -> Optional[tuple[str, str, float]]:
    """The first node whose whole results change by more than usual, its operator, and by how much.

    Args:
        plan: the plan.
        values: values of the graph's variables.
        rounded: the same, changed by about one rounding.
    """
    for (number, operator, outputs), (_, _, others) in zip(
        _whole(plan, values), _whole(plan, rounded)
    ):
        # A sum that cancels is measured by what it sums.
        least = min((_largest(array) for array in operator.inputs), default=0.0)
        for array, changed in zip(outputs, others):
            largest = _largest(array)
            change = _difference(changed, array)
            if change * largest > UNUSUAL * max(largest, least):
                node = plan.table.graph.nodes[number]
                return node.name, node.op, change
    return None


def _whole(
    plan: _core.Plan, values: Mapping[str, Any]
) -> Iterator[tuple[int, _SingleOperator, Sequence[Any]]]:
    """Yields every operator's number, itself, and what it computes whole."""
    cuts = _Cuts(plan)
    rng = np.random.default_rng(1)
    outputs_of: dict[tuple[int, int], Any] = {}
    for number, node in enumerate(plan.table.graph.nodes):
        if not node.op:
            outputs_of[number, 0] = _value(node, values, rng)
            continue
        operator = _SingleOperator(node, [outputs_of[source] for source in node.sources])
        outputs = operator.run((), [], cuts.none)
        outputs_of.update({(number, index): array for index, array in enumerate(outputs)})
        yield number, operator, outputs


def _value(node: Any, values: Mapping[str, Any], rng: np.random.Generator) -> Any:
    if node.name in values:
        return values[node.name]
    ((shape, dtype),) = node.outputs
    return rng.uniform(0.5, 1.5, shape).astype(dtype_name(dtype))


class _Cuts:
    """Cuts of tensors and splits of operators in a plan."""

    def __init__(self, plan: _core.Plan) -> None:
        self.parts = plan.parts
        self._tensors = {(node, output): cuts for node, output, _, _, cuts in plan.tensors}
        self._operators = {node: splits for node, _, splits, _ in plan.operators}
        self.none: list[list[int]] = []

    def ways(
        self, node: Any, operator: _SingleOperator, sources: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[Sequence[int], Cuts, list[list[int]], bool]]:
        """Yields parts, the operator's splits, its tensors' cuts, and whether the plan has them."""
        outputs = [(node.name, index) for index in range(len(node.outputs))]
        tensors = [list(self._tensors[key]) for key in (*sources, *outputs)]
        splits = self._operators[node.name]
        if any(split is not None for split in splits):
            yield self.parts, splits, tensors, True
        if not _is_own(node):
            return
        for variable, extent in operator.splittable():
            if variable in splits:
                continue
            parts = next((p for p in range(2, extent + 1) if extent % p == 0), None)
            if parts is not None:
                yield [parts], [variable], [[REPLICATED]] * len(tensors), False


class _SingleOperator:
    """A graph of a single operator, with the values of its inputs."""

    def __init__(self, node: Any, inputs: Sequence[Any]) -> None:
        self._node, self.inputs = node, inputs
        self.shapes = tuple((tuple(a.shape), str(a.dtype)) for a in inputs)
        ins, outs = ([tuple(shape) for shape, _ in side] for side in (node.inputs, node.outputs))
        self._ins, self._outs = ins, outs
        self.row: Optional[Row] = None
        if WHOLE not in node.attrs:
            try:
                self.row = row_for(node.op, node.attrs, ins, outs)
            except TofuError:
                self.row = None

    def splittable(self) -> Iterator[tuple[str, int]]:
        """The variables that can be split, with their extents."""
        from tofu.analysis.apply_row import extent_of

        assert self.row is not None
        for number in self.row["splittable"]:
            variable = self.row["vars"][number]
            yield variable["name"], extent_of(variable["extent"], self._ins, self._outs)

    def compare(
        self,
        parts: Sequence[int],
        splits: Cuts,
        tensors: list[list[int]],
        whole: Sequence[Any],
        compared: Sequence[int],
    ) -> tuple[float, str]:
        """The largest relative difference of the parts' outputs, and why they do not run or ""."""
        try:
            results = self.run(parts, splits, tensors)
        except (mx.MXNetError, TofuError) as error:
            return math.inf, str(error).strip().splitlines()[-1]
        return max((_difference(results[i], whole[i]) for i in compared), default=0.0), ""

    def run(self, parts: Sequence[int], splits: Cuts, tensors: list[list[int]]) -> list[Any]:
        """Run the operator on one worker per part and return its outputs."""
        graph = self._graph()
        rows = document([self.row if node.op else None for node in graph.nodes])
        table = _core.StrategyTable(rows, graph)
        plan = _core.Plan(self._plan(graph, parts, splits, tensors), table)
        step = _core.schedule(_core.partition(plan, fetch="plain"))
        inputs = {f"x{k}": dense_array(a, dtype=a.dtype) for k, a in enumerate(self.inputs)}
        contexts = [mx.cpu(worker) for worker in range(math.prod(parts))]
        program = Program(step, contexts, {})
        outputs = program.forward(inputs, is_train=True, ctx=mx.cpu())
        return [output.asnumpy() for output in outputs]

    def _graph(self) -> _core.Graph:
        node = Node(self._node.op, "op", dict(self._node.attrs))
        node.num_outputs = len(self._node.outputs)
        for number, (shape, dtype) in enumerate(self._node.inputs):
            variable = Node(VARIABLE, f"x{number}", {_ROLE: "data"})
            variable.shapes, variable.dtypes = [tuple(shape)], [dtype]
            node.inputs.append(Entry(variable))
        node.shapes = [tuple(shape) for shape, _ in self._node.outputs]
        node.dtypes = [dtype for _, dtype in self._node.outputs]
        graph = Graph([Entry(node, index) for index in range(node.num_outputs)])
        order = graph.topological()
        attrs = {
            "shape": ["list_shape", [list(shape) for each in order for shape in each.shapes]],
            "dtype": ["list_int", [dtype for each in order for dtype in each.dtypes]],
            "tofu_heads": ["list_str", ["output"] * node.num_outputs],
        }
        return _core.Graph(graph.to_json(attrs))

    def _plan(
        self, graph: _core.Graph, parts: Sequence[int], splits: Cuts, tensors: list[list[int]]
    ) -> str:
        names = [(f"x{number}", 0) for number in range(len(self._ins))]
        names += [("op", index) for index in range(len(self._outs))]
        tensor_cuts = tensors or [[] for _ in names]
        return json.dumps(
            {
                "format": "tofu-plan",
                "version": 1,
                "workers": math.prod(parts),
                "graph_hash": graph.hash,
                "parts": list(parts),
                "steps": [{"parts": part, "bytes": 0} for part in parts],
                "lower_bound_bytes": 0,
                "status": "feasible",
                "search_seconds": 0.0,
                "tensors": [
                    {"node": name, "output": output, "cuts": cuts}
                    for (name, output), cuts in zip(names, tensor_cuts)
                ],
                "operators": [{"node": "op", "cuts": list(splits), "bytes": 0}],
            }
        )


def _largest(array: Any) -> float:
    return float(np.abs(array).max(initial=0.0))


def _difference(parts: Any, whole: Any) -> float:
    """The largest difference, relative to the largest value."""
    result, expected = (np.asarray(a, dtype=np.float64) for a in (parts, whole))
    if result.shape != expected.shape or not np.array_equal(
        np.isfinite(result), np.isfinite(expected)
    ):
        return math.inf
    finite = np.isfinite(expected)
    if not finite.any():
        return 0.0
    change = float(np.abs(result[finite] - expected[finite]).max())
    scale = float(np.abs(expected[finite]).max())
    return change / scale if scale else (math.inf if change else 0.0)
