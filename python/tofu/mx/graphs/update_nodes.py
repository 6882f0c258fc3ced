"""Update nodes of the common optimizers, appended to a training graph for planning.

They let the search see the optimizer's states and its element-wise update. They never
run: Trainer updates the tiles itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tofu.dtypes import dtype_name
from tofu.errors import GraphError
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node, Shape

__all__ = ["OPTIMIZERS", "append_updates"]

_FLOAT16 = 2


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update operator, its states and its required attributes."""

    op: str
    states: tuple[str, ...]
    attrs: tuple[tuple[str, str], ...] = (("lr", "0.01"),)


# MXNet has no operator for Adam's half-precision update; sgd's has the same pattern.
OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer("sgd_update", ()),
    "sgd_mom": Optimizer("sgd_mom_update", ("mom",), (("lr", "0.01"), ("momentum", "0.9"))),
    "adam": Optimizer("adam_update", ("mean", "var")),
}
_HALF: Mapping[str, Optimizer] = {
    "sgd": Optimizer("mp_sgd_update", ("weight32",)),
    "sgd_mom": Optimizer(
        "mp_sgd_mom_update", ("mom", "weight32"), (("lr", "0.01"), ("momentum", "0.9"))
    ),
}


def append_updates(
    graph: Graph, optimizer: str, gradients: Mapping[str, Entry]
) -> tuple[dict[str, Entry], dict[str, tuple[Shape, str]]]:
    """Build update nodes for the variables in `gradients`, whose shapes must be inferred.

    Returns the new weights by variable, and the states' shapes and dtypes by name
    ("<variable>:<state>").
    """
    if optimizer not in OPTIMIZERS:
        raise GraphError(
            f"optimizer {optimizer!r}: expected one of {', '.join(OPTIMIZERS)}, or None"
        )
    updates: dict[str, Entry] = {}
    states: dict[str, tuple[Shape, str]] = {}
    variables = graph.variables()
    for name, gradient in gradients.items():
        weight = Entry(variables[name])
        half = weight.dtype == _FLOAT16
        kind = _HALF.get(optimizer, OPTIMIZERS[optimizer]) if half else OPTIMIZERS[optimizer]
        inputs = [weight, gradient]
        for state in kind.states:
            # Inference gives the states of updates in mixed precision single precision.
            states[f"{name}:{state}"] = (weight.shape, dtype_name(weight.dtype))
            inputs.append(Entry(Node(VARIABLE, f"{name}:{state}")))
        updates[name] = Entry(Node(kind.op, f"{name}_update", dict(kind.attrs), inputs))
    return updates, states
