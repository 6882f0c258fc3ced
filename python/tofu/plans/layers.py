"""The layers of a plan: tensors and operators by the block that they come from.

A plan has names, but no blocks. Gluon builds a name from that of the block ("net_dense0_weight",
"net_dense0_fwd"), and tofu those of gradients, updates and stages from the operator's
("net_dense0_fwd_backward"), so the layer is what these names begin with. A name with dots comes
from a module of PyTorch, and the layer is what stands before the last dot::

    for layer in layers_of(plan):
        print(layer.name, layer.parameter_bytes, layer.fetched_bytes)
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Optional

from tofu.dtypes import dtype_bytes

from .plan import OperatorPlan, Plan, TensorPlan

__all__ = [
    "DIRECTIONS", "Layer", "direction_of", "layer_of", "layers_of", "tile_bytes",
    "updated_variables",
]  # fmt: skip

DIRECTIONS = ("forward", "backward", "update")
_BACKWARD = "_backward"
_UPDATES = ("_update", "/update")  # of MXNet's graphs, and of PyTorch's
_FORWARD = "_fwd"
# Parts of a recurrent cell, its timesteps, and a norm's variables besides parameters.
_CELL = re.compile(r"_(t\d+|i2h|h2h|running)$")
_ADDED = re.compile(r"grad_sum(_|$)")
# The sum of a parameter's gradients in a module that uses it twice.
_SUMMED = "/gradient"


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of a plan.

    Attributes:
        name: the common start of its tensors' and operators' names.
        parameter_bytes: its parameters, whole: variables that an update changes.
        worker_bytes: the tiles of its tensors on one worker. Memory is used again, so a worker
            needs less than the sum over all layers.
        fetched_bytes: bytes that its operators fetch, by direction.
    """

    name: str
    parameter_bytes: int
    worker_bytes: int
    fetched_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes that its operators fetch in a step."""
        return sum(self.fetched_bytes.values())


def layer_of(name: str, *, is_variable: bool = False) -> str:
    """The layer of a node.

    >>> layer_of("net_conv0_weight", is_variable=True), layer_of("net_conv0_fwd_backward")
    ('net_conv0', 'net_conv0')
    >>> layer_of("net_batchnorm0_fwd_Convolution6"), layer_of("net_attention1_reshape0")
    ('net_batchnorm0', 'net_attention1')
    >>> layer_of("fc1"), layer_of("fc1_weight_update"), layer_of("rnn_lstm0_t3_plus0")
    ('fc1', 'fc1', 'rnn_lstm0')
    >>> layer_of("layers.0.ln_1.weight/state0"), layer_of("layers.0.ln_1.native_layer_norm")
    ('layers.0.ln_1', 'layers.0.ln_1')
    """
    full, name = name, name.partition(":")[0]  # the state of an optimizer is "WEIGHT:mom"
    if _ADDED.match(name):
        return "(sums of gradients)"
    if "." in name:
        return name.partition("/")[0].rpartition(".")[0] or full
    updated = _updated(name)
    if updated is not None:
        name, is_variable = updated, True
    base = name.partition(_BACKWARD)[0]
    inner, forward, _ = base.partition(_FORWARD)
    if not forward and (is_variable or inner.count("_") > 1):
        inner = inner.rpartition("_")[0] or inner
    while _CELL.search(inner):
        inner = _CELL.sub("", inner)
    return inner or full


def direction_of(operator: OperatorPlan) -> str:
    """The part of a step in which an operator runs: one of DIRECTIONS."""
    if _updated(operator.node) is not None:
        return "update"
    is_sum = _ADDED.match(operator.node) or operator.node.endswith(_SUMMED)
    return "backward" if is_sum or _BACKWARD in operator.node else "forward"


def updated_variables(nodes: Iterable[str]) -> set[str]:
    """The variables that operators of these names update."""
    return {updated for node in nodes if (updated := _updated(node)) is not None}


def _updated(node: str) -> Optional[str]:
    """The variable that an operator updates, by the operator's name."""
    for ending in _UPDATES:
        if node.endswith(ending):
            return node[: -len(ending)]
    return None


def tile_bytes(tensor: TensorPlan, plan: Plan) -> int:
    """The bytes of a tensor's tile on one worker."""
    shape = [max(high - low for low, high in each) for each in tensor.bounds(plan.parts)]
    return math.prod(shape) * dtype_bytes(tensor.dtype)


def layers_of(plan: Plan) -> list[Layer]:
    """The layers of a plan, in the order in which its graph has them."""
    operators = {operator.node for operator in plan.operators}
    updated = updated_variables(operators)
    by_layer: dict[str, dict[str, int]] = {}

    def add(layer: str, kind: str, count: int) -> None:
        sizes = by_layer.setdefault(layer, {})
        sizes[kind] = sizes.get(kind, 0) + count

    for tensor in plan.tensors:
        is_variable = tensor.node not in operators
        layer = layer_of(tensor.node, is_variable=is_variable)
        add(layer, "worker", tile_bytes(tensor, plan))
        if is_variable and tensor.node in updated:
            add(layer, "parameter", tensor.bytes)
    for operator in plan.operators:
        add(layer_of(operator.node), direction_of(operator), operator.bytes)
    return [
        Layer(
            name,
            sizes.get("parameter", 0),
            sizes.get("worker", 0),
            {direction: sizes.get(direction, 0) for direction in DIRECTIONS},
        )
        for name, sizes in by_layer.items()
    ]
