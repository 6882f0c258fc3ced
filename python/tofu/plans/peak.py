"""Memory of a worker over a training step, and at its worst moment."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

from .names import readable

__all__ = ["BETWEEN", "KINDS", "Held", "Peak", "alive_over_time", "operator_of"]

# What a worker holds; activations include everything without a kind of its own.
KINDS = ("parameters", "gradients", "optimizer_state", "activations", "fetch_buffers")
# Kinds of tensors that come and go between operators.
BETWEEN = ("gradients", "activations", "fetch_buffers")


@dataclasses.dataclass(frozen=True)
class Held:
    """A tensor, or a part of one, that a worker holds at its worst moment.

    Attributes:
        node: the node of the partitioned graph that wrote it; "" for a copy.
        output: the number of the node's output.
        bytes: its size.
        kind: "tensor", "fetched", or "result": a gradient or an output, kept to the end.
    """

    node: str
    output: int
    bytes: int
    kind: str

    @property
    def name(self) -> str:
        """The operator that wrote it or that it was fetched for, in the training graph."""
        name = readable(operator_of(self.node))
        return f"{name}[{self.output}]" if self.output and self.kind != "fetched" else name


@dataclasses.dataclass(frozen=True)
class Peak:
    """The memory of the worker that holds most between its operators.

    Attributes:
        worker: its number.
        fixed: by kind of KINDS, bytes that are there all the time: parameters, auxiliary and
            optimizer states, and inputs as activations.
        nodes: the nodes that it runs, in order.
        between: by kind of BETWEEN, for each node the bytes of tensors between operators that
            are alive while it runs.
        held: the tensors alive at the worst moment, largest first.
        allocated_bytes: bytes that MXNet allocates for such tensors, including space that it
            cannot reuse; 0 if unknown.
        reuses: whether a tensor may take the memory of one that is gone.
    """

    worker: int
    fixed: Mapping[str, int]
    nodes: tuple[str, ...]
    between: Mapping[str, tuple[int, ...]]
    held: tuple[Held, ...]
    allocated_bytes: int
    reuses: bool = True

    @property
    def fixed_bytes(self) -> int:
        """The bytes that are there all the time."""
        return sum(self.fixed.values())

    @functools.cached_property
    def bytes(self) -> tuple[int, ...]:
        """For each node, the tensors between operators that are alive while it runs."""
        return tuple(map(sum, zip(*self.between.values())))

    @functools.cached_property
    def moment(self) -> int:
        """Index in `nodes` of the node that runs at the worst moment."""
        return max(range(len(self.bytes)), key=self.bytes.__getitem__, default=0)


def alive_over_time(
    lives: Iterable[tuple[str, int, int, int]], moments: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """By kind of BETWEEN, the bytes alive at each moment.

    Args:
        lives: the kind, bytes, birth and death of each tensor; it is alive from its birth until
            before its death.
        moments: their times, in order.

    >>> alive_over_time([("activations", 8, 0, 2), ("activations", 4, 1, 3)], range(4))[
    ...     "activations"
    ... ]
    (8, 12, 4, 0)
    """
    changes = {kind: [0] * (len(moments) + 1) for kind in BETWEEN}
    for kind, size, born, died in lives:
        of_kind = changes[kind]
        of_kind[bisect.bisect_left(moments, born)] += size
        of_kind[bisect.bisect_left(moments, died)] -= size
    return {kind: tuple(itertools.accumulate(each[:-1])) for kind, each in changes.items()}


def operator_of(node: str) -> str:
    """The name in the training graph of a node of the partitioned one.

    >>> operator_of("fc1_fwd@3"), operator_of("fc1_fwd@3/in0/fetch"), operator_of("")
    ('fc1_fwd', 'fc1_fwd', '(copies)')
    """
    return node.partition("@")[0] or "(copies)"
