"""The data of a plan's web page: one JSON document for one plan, or for two to compare.

Tables are stored by column, with numbers for names, shapes and cuts that repeat: a page of
WResNet-152-10 has 14,000 rows and must stay below 2 MB. ``page/data.js`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Optional

from tofu import _core
from tofu.config import OBJECTIVES
from tofu.dtypes import dtype_bytes

from ..layers import DIRECTIONS, direction_of, layer_of, updated_variables
from ..names import readable
from ..peak import KINDS, Peak, operator_of
from ..plan import Plan, TensorPlan, tile_bounds
from .peak import held_groups
from .picture import draw, worker_pieces
from .text import summary

__all__ = ["page_data"]

# Points of the memory chart; each shows the peak of the operators it replaces.
_MOST_POINTS = 600
_NONE = -1
# Variables whose other cuts are priced, the largest: each takes up to a tenth of a second.
_MOST_PRICED = 32
# More pieces would make the drawing a grey square and the list of workers too long to read.
_MOST_CELLS = 1024


class _Numbers:
    """Numbers values in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Any]:
        return list(self._numbers)


def page_data(
    plans: Sequence[tuple[str, Plan]],
    graph: Optional[_core.Graph] = None,
    *,
    with_prices: bool = False,
) -> dict[str, Any]:
    """The document.

    Args:
        plans: one plan, or two of one graph or of similar ones, each with a name.
        graph: the graph, to show what each operator reads; None if unknown.
        with_prices: whether to find what other cuts of the largest variables cost.
    """
    names, layers = _Numbers(), _Numbers()
    tensors = _tensors([plan for _, plan in plans], names, layers)
    operators = _operators([plan for _, plan in plans], names, layers)
    if graph is not None:
        operators["reads"] = _reads(graph, names.values, tensors, operators)
    tensors["prices"] = _prices(plans[-1][1], tensors, names.values) if with_prices else {}
    return {
        "plans": [
            {**_plan(name, plan, names), "begins": _begins(plan, number, tensors)}
            for number, (name, plan) in enumerate(plans)
        ],
        "tensors": tensors,
        "operators": operators,
        "directions": list(DIRECTIONS),
        "layers": layers.values,
        "names": names.values,
        "labels": _labels(names.values),
    }


def _prices(plan: Plan, tensors: Mapping[str, Any], names: Sequence[str]) -> dict[int, Any]:
    """By row of a tensor, the bytes that each cut at each step would add to the plan.

    For the largest variables, of a plan that was just searched for the fewest bytes.
    """
    if plan.searched is None or plan.objective != OBJECTIVES[0]:
        return {}
    written = {operator.node for operator in plan.operators}
    variables = [tensor for tensor in plan.tensors if tensor.node not in written]
    variables.sort(key=lambda tensor: -tensor.bytes)
    rows = {names[name]: row for row, name in enumerate(tensors["name"])}
    prices = {}
    for tensor in variables[:_MOST_PRICED]:
        row, document = rows[tensor.node], json.loads(plan.searched.explain(tensor.node))
        prices[row] = [
            [
                [alternative["cut"], alternative["searched_bytes"] - document["total_bytes"]]
                for alternative in step["alternatives"]
            ]
            for step in document["tensor"]["steps"]
        ]
    return prices


def _labels(names: Sequence[str]) -> dict[int, str]:
    """The names that people read otherwise, by number."""
    shown = enumerate(map(readable, names))
    return {number: text for number, text in shown if text != names[number]}


def _plan(name: str, plan: Plan, names: _Numbers) -> dict[str, Any]:
    return {
        "name": name,
        "model": plan.model,
        "graph": plan.graph_hash,
        "workers": plan.workers,
        "parts": plan.parts,
        "mode": plan.mode,
        "status": plan.status,
        "summary": summary(plan),
        "steps": [[step.parts, step.groups, step.bytes] for step in plan.steps],
        "bytes": plan.total_bytes,
        "bound": plan.lower_bound_bytes,
        "kinds": [[kind.replace("_", " "), count] for kind, count in plan.bytes_per_worker.items()],
        "peak": None if plan.peak is None else _peak(plan, plan.peak, names),
    }


def _tensors(plans: Sequence[Plan], names: _Numbers, layers: _Numbers) -> dict[str, Any]:
    """Table of all plans' tensors, with columns per plan for shape and cuts."""
    shapes, cuts, dtypes = _Numbers(), _Numbers(), _Numbers()
    pictures: dict[tuple[int, int, tuple[int, ...]], tuple[int, Any]] = {}
    rows: dict[tuple[str, int], list[Any]] = {}
    for number, plan in enumerate(plans):
        written = {operator.node for operator in plan.operators}
        updated = updated_variables(written)
        for tensor in plan.tensors:
            is_variable = tensor.node not in written
            row = rows.setdefault(
                (tensor.node, tensor.output),
                [
                    names(tensor.node),
                    tensor.output,
                    dtypes((tensor.dtype_name, dtype_bytes(tensor.dtype))),
                    layers(layer_of(tensor.node, is_variable=is_variable)),
                    int(is_variable and tensor.node in updated),
                    [_NONE] * len(plans),
                    [_NONE] * len(plans),
                    [_NONE] * len(plans),
                ],
            )
            row[5][number] = shapes(tensor.shape)
            row[6][number] = cuts(tensor.cuts)
            # Tensors of one rank that are cut alike look alike.
            key = number, len(tensor.shape), tensor.cuts
            if key not in pictures:
                pictures[key] = len(pictures), _picture(tensor, plan.parts)
            row[7][number] = pictures[key][0]
    columns = [list(column) for column in zip(*rows.values())] or [[] for _ in range(8)]
    return {
        **dict(zip(("name", "output", "dtype", "layer", "parameter"), columns)),
        "shape": [list(column) for column in zip(*columns[5])] or [[] for _ in plans],
        "cuts": [list(column) for column in zip(*columns[6])] or [[] for _ in plans],
        "picture": [list(column) for column in zip(*columns[7])] or [[] for _ in plans],
        "pictures": [picture for _, picture in pictures.values()],
        "shapes": shapes.values,
        "cutsOf": cuts.values,
        "dtypes": dtypes.values,
    }


def _begins(
    plan: Plan, number: int, tensors: Mapping[str, Any]
) -> dict[str, list[Optional[list[int]]]]:
    """First indices of the pieces of each dimension, None if they are equal, by "SHAPE:CUTS"."""
    unequal: dict[str, list[Optional[list[int]]]] = {}
    for shape, cuts in set(zip(tensors["shape"][number], tensors["cuts"][number])):
        if shape == _NONE:
            continue
        bounds = tile_bounds(tensors["shapes"][shape], tensors["cutsOf"][cuts], plan.parts)
        begins = [[low for low, _ in each] if _is_unequal(each) else None for each in bounds]
        if any(begins):
            unequal[f"{shape}:{cuts}"] = begins
    return unequal


def _is_unequal(bounds: Sequence[tuple[int, int]]) -> bool:
    return len({high - low for low, high in bounds}) > 1


def _picture(tensor: TensorPlan, parts: Sequence[int]) -> dict[str, Any]:
    """The tiles as a grid, and the piece of each worker; no cells if there are too many."""
    drawn = draw(tensor, parts)
    pieces = worker_pieces(tensor, parts)
    axes = [axis for axis in (drawn.row_dimension, drawn.column_dimension) if axis is not None]
    cells = [[cell.row, cell.column, cell.workers] for cell in drawn.cells]
    return {
        "grid": [drawn.rows, drawn.columns, drawn.planes],
        "axes": axes,
        "cells": cells if len(cells) <= _MOST_CELLS else None,
        "pieces": pieces if len(pieces) <= _MOST_CELLS else None,
    }


def _operators(plans: Sequence[Plan], names: _Numbers, layers: _Numbers) -> dict[str, Any]:
    kinds, splits = _Numbers(), _Numbers()
    rows: dict[str, list[Any]] = {}
    for number, plan in enumerate(plans):
        for operator in plan.operators:
            row = rows.setdefault(
                operator.node,
                [
                    names(operator.node),
                    kinds(operator.op),
                    layers(layer_of(operator.node)),
                    DIRECTIONS.index(direction_of(operator)),
                    [_NONE] * len(plans),
                    [0] * len(plans),
                ],
            )
            row[4][number] = splits(operator.cuts)
            row[5][number] = operator.bytes
    columns = [list(column) for column in zip(*rows.values())] or [[] for _ in range(6)]
    return {
        **dict(zip(("name", "kind", "layer", "direction"), columns)),
        "split": [list(column) for column in zip(*columns[4])] or [[] for _ in plans],
        "bytes": [list(column) for column in zip(*columns[5])] or [[] for _ in plans],
        "kinds": kinds.values,
        "splits": splits.values,
    }


def _reads(
    graph: _core.Graph,
    names: Sequence[str],
    tensors: dict[str, Any],
    operators: dict[str, Any],
) -> list[list[int]]:
    """Per operator, the numbers of the tensors that it reads."""
    numbers = {
        (names[name], output): number
        for number, (name, output) in enumerate(zip(tensors["name"], tensors["output"]))
    }
    nodes = graph.nodes
    called = [node.name for node in nodes]
    inputs = {
        name: [(called[source], output) for source, output in node.sources]
        for name, node in zip(called, nodes)
    }
    return [
        [numbers[each] for each in inputs.get(names[name], []) if each in numbers]
        for name in operators["name"]
    ]


def _peak(plan: Plan, peak: Peak, names: _Numbers) -> dict[str, Any]:
    """The memory chart: each point is the peak of consecutive operators, by kind of memory."""
    width = max(1, -(-len(peak.nodes) // _MOST_POINTS))
    points = []
    for begin in range(0, len(peak.nodes), width):
        at = max(range(begin, min(begin + width, len(peak.nodes))), key=peak.bytes.__getitem__)
        held = [peak.fixed.get(kind, 0) + _at(peak.between.get(kind), at) for kind in KINDS]
        points.append([at, names(operator_of(peak.nodes[at])), held])
    return {
        "worker": peak.worker,
        "kinds": [kind.replace("_", " ") for kind in KINDS],
        "fixed": peak.fixed_bytes,
        "allocated": peak.allocated_bytes,
        "count": len(peak.nodes),
        "moment": peak.moment,
        "points": points,
        "held": [
            [group.name, len(group), group.first.kind, group.bytes] for group in held_groups(plan)
        ],
    }


def _at(bytes_over_time: Optional[Sequence[int]], moment: int) -> int:
    return bytes_over_time[moment] if bytes_over_time else 0
