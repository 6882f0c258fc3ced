"""Counts the bytes that each operator fetches under a plan, tensor by tensor, in plain Python.

    for part in fetches(graph, table, plan, node): print(part.tensor, part.bytes)

This count is independent of the search's: it follows docs/formats.md (tiles, regions and
fetches) and shares no code with the passes.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tofu.analysis.strategy_table import table_document
from tofu.dtypes import dtype_bytes
from tofu.plans import Plan, Problem

__all__ = ["Counter", "Fetch"]

Box = list[tuple[int, int]]  # half-open, one range per dimension


@dataclasses.dataclass(frozen=True)
class Fetch:
    """The bytes that all workers fetch of one input, or for one output, of an operator."""

    tensor: str
    is_output: bool
    index: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class _Range:
    """The part of a variable's range that a worker computes."""

    begin: int
    end: int
    is_split: bool = False
    is_first: bool = True


class Counter:
    """Counts the fetches of a plan's operators.

    Args:
        problem: the graph and its strategy table.
        plan: its plan.
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        graph = json.loads(problem.graph.to_json())
        table = json.loads(table_document(problem.graph)[0])
        self.nodes = graph["nodes"]
        self._starts = graph["node_row_ptr"]
        self._shapes = graph["attrs"]["shape"][1]
        self._dtypes = graph["attrs"]["dtype"][1]
        self._rows = [table["rows"][row] if row >= 0 else None for row in table["nodes"]]
        self._plan = plan
        self._cuts = [tensor.cuts for tensor in plan.tensors]
        self._splits = {operator.node: operator.cuts for operator in plan.operators}
        self._read = {
            self._starts[node] + index
            for source in [*graph["heads"], *(i for each in self.nodes for i in each["inputs"])]
            for node, index in [source[:2]]
        }

    def fetches(self, node: int) -> Iterator[Fetch]:
        """The fetches of node number `node`: of its inputs, then for its outputs."""
        row, name = self._rows[node], self.nodes[node]["name"]
        if row is None:
            raise ValueError(f"{name}: no description, so no regions to count")
        ranges = list(self._ranges(node, row))
        for index, (source, output, *_) in enumerate(self.nodes[node]["inputs"]):
            entry = self._starts[source] + output
            elements = sum(
                _volume(need) - _overlap(need, self._tile(entry, worker))
                for worker, instance in enumerate(ranges)
                if not self._is_zeroed(row["inputs"][index], instance)
                for need in [_need(row["inputs"][index], instance, self._shapes[entry])]
            )
            yield self._fetch(entry, elements, is_output=False, index=index)
        for index, access in enumerate(row["outputs"]):
            entry = self._starts[node] + index
            if entry in self._read:
                elements = self._output_elements(entry, access, row, ranges)
                yield self._fetch(entry, elements, is_output=True, index=index)

    def _fetch(self, entry: int, elements: int, *, is_output: bool, index: int) -> Fetch:
        size = elements * dtype_bytes(self._dtypes[entry])
        return Fetch(self._plan.tensors[entry].name, is_output, index, size)

    def _output_elements(
        self, entry: int, access: Mapping[str, Any], row: Mapping[str, Any], ranges: Sequence[Any]
    ) -> int:
        """Elements of an owner's tile, in each part of the sum, that the owner does not compute."""
        reduced = {row["vars"][int(v)]["name"] for v in access.get("reduce", {})}
        split = self._splits[self._plan.tensors[entry].node]
        parts = math.prod(k for k, cut in zip(self._plan.parts, split) if cut in reduced)
        total = 0
        for worker, instance in enumerate(ranges):
            tile = self._tile(entry, worker)
            region = _region(access["dims"], instance, self._shapes[entry])
            total += parts * _volume(tile) - _overlap(tile, region)
        return total

    def _ranges(self, node: int, row: Mapping[str, Any]) -> Iterator[list[_Range]]:
        """For every worker, its part of each variable's range."""
        extents = [self._extent(node, variable["extent"]) for variable in row["vars"]]
        names = [variable["name"] for variable in row["vars"]]
        for worker in range(self._plan.workers):
            ranges = [_Range(0, extent) for extent in extents]
            for cut, count, digit in self._steps(self._splits[self.nodes[node]["name"]], worker):
                if cut is None:
                    continue
                at = names.index(cut)
                size = (ranges[at].end - ranges[at].begin) // count
                begin = ranges[at].begin + digit * size
                is_first = ranges[at].is_first and digit == 0
                ranges[at] = _Range(begin, begin + size, is_split=True, is_first=is_first)
            yield ranges

    def _extent(self, node: int, extent: Any) -> int:
        if not isinstance(extent, list):
            return int(extent)
        kind, slot, dimension = extent
        if kind == "input":
            source, output, *_ = self.nodes[node]["inputs"][slot]
            return int(self._shapes[self._starts[source] + output][dimension])
        return int(self._shapes[self._starts[node] + slot][dimension])

    def _is_zeroed(self, access: Mapping[str, Any], ranges: Sequence[_Range]) -> bool:
        return any(not ranges[variable].is_first for variable in access.get("only_first", ()))

    def _tile(self, entry: int, worker: int) -> Box:
        box = [(0, size) for size in self._shapes[entry]]
        for cut, count, digit in self._steps(self._cuts[entry], worker):
            if cut >= 0:
                begin, end = box[cut]
                size = (end - begin) // count
                box[cut] = (begin + digit * size, begin + (digit + 1) * size)
        return box

    def _steps(self, cuts: Sequence[Any], worker: int) -> Iterator[tuple[Any, int, int]]:
        """Cut, parts and the worker's digit at each step."""
        weight = self._plan.workers
        for cut, count in zip(cuts, self._plan.parts):
            weight //= count
            yield cut, count, worker // weight % count


def _need(access: Mapping[str, Any], ranges: Sequence[_Range], shape: Sequence[int]) -> Box:
    """The region of an input that an instance reads."""
    pad = access.get("pad")
    padded = pad is not None and any(ranges[variable].is_split for variable in pad["vars"])
    return _region(access["dims"], ranges, shape, exact=padded)


def _region(
    dims: Sequence[Any], ranges: Sequence[_Range], shape: Sequence[int], *, exact: bool = False
) -> Box:
    """The region that an instance touches, clipped to the tensor.

    A dimension that no split variable indexes is whole, unless `exact`.
    """
    box = []
    for dimension, size in zip(dims, shape):
        if dimension is None or not (exact or _is_split(dimension, ranges)):
            box.append((0, size))
        else:
            low, high = (_evaluate(dimension[key], ranges) for key in ("lo", "hi"))
            box.append((max(low, 0), min(high + 1, size)))
    return box


def _is_split(dimension: Mapping[str, Any], ranges: Sequence[_Range]) -> bool:
    terms = (*dimension["lo"]["terms"], *dimension["hi"]["terms"])
    return any(ranges[variable].is_split for variable, *_ in terms)


def _evaluate(form: Mapping[str, Any], ranges: Sequence[_Range]) -> int:
    total = form["const"]
    for variable, bound, factor in form["terms"]:
        total += factor * (ranges[variable].end - 1 if bound else ranges[variable].begin)
    return int(total // form["div"])


def _volume(box: Box) -> int:
    return math.prod(max(end - begin, 0) for begin, end in box)


def _overlap(first: Box, second: Box) -> int:
    pairs = zip(first, second)
    return _volume([(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairs])
