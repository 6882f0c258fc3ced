"""BatchNorm as MXNet's own operator, if every worker has all the data of its statistics.

MXNet's operator changes three of its inputs: the running statistics, and gamma if it counts
as one. A training graph's variables only change at the end of a step. So the operator gets
numbers of its own in their place, and the new running statistics are computed from its outputs.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection
from typing import Callable, Optional, Union

from tofu import _core
from tofu.analysis.table import SCRATCH
from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape

from .registry import Builder, flag

__all__ = [
    "STATISTICS",
    "backward",
    "forward",
    "kept_whole",
    "predict",
    "refined",
    "whole_statistics",
]

# Marks the sum that a BatchNorm in parts takes over batch and space, with the BatchNorm's name.
STATISTICS = "__tofu_statistics__"
_SINGLE = 0
_KEPT = ("eps", "momentum", "axis", "cudnn_off")


def forward(node: Node, build: Builder) -> tuple[Entry, Entry, Entry, Node]:
    """MXNet's operator on the batch's statistics: the output, their mean, 1 / deviation, itself."""
    data, gamma, beta, *_ = node.inputs
    scratch = _scratch(gamma, build), _scratch(gamma, build)
    attributes, shape, image = _attributes(node), data.shape, _image_shape(node, data)
    if image != shape:
        data, attributes["axis"] = build.reshape(data, image), "1"
    attributes[SCRATCH] = "1"
    fused = build.op("BatchNorm", data, _gamma(node, build), beta, *scratch, **attributes).node
    fused.num_outputs = 3
    out = Entry(fused) if image == shape else build.reshape(Entry(fused), shape)
    return out, Entry(fused, 1), Entry(fused, 2), fused


def backward(node: Node, fused: Node, build: Builder) -> tuple[Entry, Entry, Entry]:
    """MXNet's gradients of data, gamma and beta."""
    gradient, data, gamma = node.inputs[0], node.inputs[3], node.inputs[4]
    shape, image = data.shape, _image_shape(node, data)
    if image != shape:
        gradient = build.reshape(gradient, image)
    scratch = _scratch(gamma, build), _scratch(gamma, build)
    inputs = gradient, Entry(fused, 1), Entry(fused, 2), *fused.inputs[:3], *scratch
    gradients = build.op("_backward_BatchNorm", *inputs, **fused.attrs).node
    gradients.num_outputs = 3
    gradients.control_deps = [fused]
    by_data = Entry(gradients) if image == shape else build.reshape(Entry(gradients), shape)
    return by_data, Entry(gradients, 1), Entry(gradients, 2)


def predict(node: Node, build: Builder) -> Node:
    """MXNet's operator on the running statistics, which it only reads then."""
    data, _, beta, mean, variance = node.inputs
    inputs = data, _gamma(node, build), beta, mean, variance
    fused = build.op("BatchNorm", *inputs, **_attributes(node), use_global_stats=True).node
    fused.num_outputs = 3
    return fused


def whole_statistics(plan: _core.Plan) -> frozenset[str]:
    """Names of BatchNorms in parts whose statistics every worker computes from all of the data."""
    nodes = plan.table.graph.nodes
    names = set()
    for node in nodes:
        attrs = node.attrs
        norm = attrs.get(STATISTICS)
        if norm is None:
            continue
        source, output = node.sources[0]
        name = nodes[source].name
        tensor = f"{name}[{output}]" if output else name
        if set(ast.literal_eval(attrs["axis"])).isdisjoint(plan.cuts(tensor)):
            names.add(norm)
    return frozenset(names)


def refined(
    prepare: Callable[[Collection[str]], _core.StrategyTable], plan: Optional[_core.Plan]
) -> Optional[_core.StrategyTable]:
    """The table of the graph whose BatchNorms stay whole as in this plan; None if none does.

    prepare: makes the table of a graph in which the BatchNorms of these names stay whole.
    """
    names = frozenset() if plan is None else whole_statistics(plan)
    return prepare(names) if names else None


def kept_whole(before: _core.Graph, after: _core.Graph) -> frozenset[str]:
    """The BatchNorms that are in parts in one graph and whole in the other."""
    return _in_parts(before) - _in_parts(after)


def _in_parts(graph: _core.Graph) -> frozenset[str]:
    norms = (node.attrs.get(STATISTICS) for node in graph.nodes)
    return frozenset(norm for norm in norms if norm is not None)


def _image_shape(node: Node, data: Entry) -> Shape:
    """The shape of the data as an image with channels in dimension 1.

    MXNet's gradient makes an image of single precision by itself, and fails where oneDNN has
    left the data, or the head gradient, in a layout of its own ("!is_view").
    """
    shape = data.shape
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    if data.dtype != _SINGLE or (len(shape), axis) == (4, 1):
        return shape
    return math.prod(shape[:axis]), shape[axis], 1, math.prod(shape[axis + 1 :])


def _attributes(node: Node) -> dict[str, Union[str, bool, None]]:
    return {**{name: node.attrs.get(name) for name in _KEPT}, "fix_gamma": False}


def _gamma(node: Node, build: Builder) -> Entry:
    gamma = node.inputs[1]
    if not flag(node, "fix_gamma", default=True):
        return gamma
    return ones_like(gamma, build)


def ones_like(entry: Entry, build: Builder) -> Entry:
    """A tensor of ones."""
    return build.op("_ones", shape=entry.shape, dtype=dtype_name(entry.dtype))


def _scratch(like: Entry, build: Builder) -> Entry:
    return build.zeros(like.shape, dtype_name(like.dtype))
