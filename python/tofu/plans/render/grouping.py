"""Groups repeated structure of a plan: tensors or operators whose names differ in a number.

The names of the layers of a stack, or of the timesteps of an unrolled network, differ only in
numbers. If they also have the same shape and cuts, the text shows them once, with their number.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Callable, Generic, TypeVar

from ..plan import OperatorPlan, Plan, TensorPlan

__all__ = ["Repeated", "repeated", "repeated_operators", "repeated_tensors"]

_NUMBER = re.compile(r"(\d+)")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Repeated(Generic[T]):
    """Members that are alike.

    Attributes:
        name: their name, with "*" for each number that differs.
        members: all of them, in the plan's order; the first represents all.
        bytes: total of all of them.
    """

    name: str
    members: tuple[T, ...]
    bytes: int

    @property
    def first(self) -> T:
        """The member that represents all."""
        return self.members[0]

    def __len__(self) -> int:
        return len(self.members)


def repeated_tensors(plan: Plan) -> list[Repeated[TensorPlan]]:
    """The tensors of a plan, grouped by shape, data type and cuts, largest first."""
    return repeated(
        plan.tensors,
        name=lambda tensor: tensor.label,
        alike=lambda tensor: (tensor.shape, tensor.dtype, tensor.cuts),
        size=lambda tensor: tensor.bytes,
    )


def repeated_operators(plan: Plan) -> list[Repeated[OperatorPlan]]:
    """The operators of a plan, grouped by kind, split and cost, most expensive first."""
    return repeated(
        plan.operators,
        name=lambda operator: operator.label,
        alike=lambda operator: (operator.op, operator.cuts, operator.bytes),
        size=lambda operator: operator.bytes,
    )


def repeated(
    items: Iterable[T],
    *,
    name: Callable[[T], str],
    alike: Callable[[T], Hashable],
    size: Callable[[T], int],
) -> list[Repeated[T]]:
    """Groups of alike items whose names differ only in numbers; largest first."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault((_NUMBER.sub("*", name(item)), alike(item)), []).append(item)
    repeats = [
        Repeated(_common_name([name(item) for item in members]), tuple(members), total)
        for members in groups.values()
        for total in [sum(map(size, members))]
    ]
    return sorted(repeats, key=lambda group: -group.bytes)


def _common_name(names: Sequence[str]) -> str:
    """The names as one: a common number stays, a differing one becomes "*"."""
    pieces = [_NUMBER.split(name) for name in names]
    return "".join(column[0] if len(set(column)) == 1 else "*" for column in zip(*pieces))
