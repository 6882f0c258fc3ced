"""Derives from a plan the placements of operators' tensors and the moves of a training step.

A tensor is kept as the tiles that the plan gives it. An operator's split says in which placements
it reads its inputs and makes its outputs; wherever a placement differs, tiles move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from tofu.analysis import row_for
from tofu.analysis.table import Row
from tofu.torch.module_graph import attributes_of, operator_name
from tofu.torch.module_trace import Entry, Operator
from tofu.torch.placements import Placing, placing
from tofu.torch.redistribution import WHOLE, Placement, received_elements, route
from tofu.torch.torch_plan import TorchPlan

__all__ = ["Move", "Split", "kept_placement", "moves_of", "received_bytes", "split_of"]


@dataclass(frozen=True)
class Split:
    """Split of an operator over the dimensions of the mesh.

    Attributes:
        row: its strategies, or None if it has no description.
        variables: the variable of the row that each dimension of the mesh splits, None for none.
        placings: by dimension of the mesh, how the parts lie in the operator's tensors.
    """

    row: Optional[Row]
    variables: tuple[Optional[int], ...]
    placings: tuple[Optional[Placing], ...]

    def needed(self, number: int) -> Placement:
        """The placement in which an input is read."""
        dims = [None if each is None else each.inputs[number] for each in self.placings]
        return tuple(WHOLE if d is None else d for d in dims)

    def made(self, number: int) -> Placement:
        """The placement in which the parts make an output."""
        places: list[Any] = []
        for each in self.placings:
            reduction = None if each is None else each.reduces[number]
            cut = None if each is None else each.outputs[number]
            places.append(reduction if reduction is not None else WHOLE if cut is None else cut)
        return tuple(places)


@dataclass(frozen=True)
class Move:
    """Tiles of a tensor that get another placement.

    Attributes:
        entry: the tensor.
        meta: a tensor of its shape and type.
        source, target: placements before and after.
    """

    entry: Entry
    meta: Any
    source: Placement
    target: Placement

    def received_bytes(self, mesh: tuple[int, ...]) -> int:
        """The bytes that all devices together receive."""
        shape = tuple(self.meta.shape)
        stages = route(shape, self.source, self.target, mesh)
        elements = sum(received_elements(shape, stage, mesh) for stage in stages)
        return elements * int(self.meta.element_size())


def kept_placement(plan: TorchPlan, entry: Entry) -> Placement:
    """The placement in which a tensor is kept."""
    left = iter(plan.cuts[entry])
    return tuple(next(left) if size > 1 else WHOLE for size in plan.mesh)


def split_of(plan: TorchPlan, operator: Operator, ins: Sequence[Any], outs: Sequence[Any]) -> Split:
    """The plan's split of an operator whose tensors have these shapes."""
    row = row_for(operator_name(operator), attributes_of(operator), ins, outs)
    left = iter(plan.splits[operator.name])
    variables: list[Optional[int]] = []
    placings: list[Optional[Placing]] = []
    for size in plan.mesh:
        name = next(left) if size > 1 else None
        if name is None or row is None:
            variables.append(None)
            placings.append(None)
            continue
        variables.append(next(v for v, var in enumerate(row["vars"]) if var["name"] == name))
        placings.append(placing(row, variables[-1] or 0, ins, outs))
    return Split(row, tuple(variables), tuple(placings))


def moves_of(plan: TorchPlan) -> Iterator[Move]:
    """The moves of a step, in order.

    Operators of one pass that read the same region share its move. Moves that make outputs
    whole for the user are not included.
    """
    traced = plan.traced
    metas = {Entry(v.name): v.meta for v in traced.variables}
    for operator in traced.operators:
        metas.update((Entry(operator.name, k), meta) for k, meta in enumerate(operator.outputs))
    read = {entry for operator in traced.operators for _, entry in operator.inputs}
    read |= {entry for entry in traced.outputs if entry is not None}
    read |= {*traced.gradients.values(), *traced.mutations.values()}
    seen: set[Any] = set()
    for operator in traced.operators:
        phase = operator.name in traced.forward
        ins = [tuple(metas[entry].shape) for _, entry in operator.inputs]
        split = split_of(plan, operator, ins, [tuple(meta.shape) for meta in operator.outputs])
        for k, (_, entry) in enumerate(operator.inputs):
            kept, needed = kept_placement(plan, entry), split.needed(k)
            if kept != needed and (phase, entry, needed) not in seen:
                seen.add((phase, entry, needed))
                yield Move(entry, metas[entry], kept, needed)
        for k, meta in enumerate(operator.outputs):
            entry = Entry(operator.name, k)
            kept, own = kept_placement(plan, entry), split.made(k)
            if kept != own and entry in read:
                yield Move(entry, meta, own, kept)


def received_bytes(plan: TorchPlan) -> int:
    """The bytes that all devices together receive in a step.

    The plan's own bytes count a region once per operator that reads it.
    """
    return sum(move.received_bytes(plan.mesh) for move in moves_of(plan))
