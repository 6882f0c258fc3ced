"""Memory of a worker over a training step, and at its worst moment."""

from __future__ import annotations

import dataclasses

from .names import readable

__all__ = ["Held", "Peak", "operator_of"]


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
        fixed_bytes: parameters, auxiliary and optimizer states, and inputs: there all the time.
        nodes: the nodes that it runs, in order.
        bytes: for each node, the tensors between operators that are alive while it runs.
        held: the tensors alive at the worst moment, largest first.
        allocated_bytes: bytes that MXNet allocates for such tensors, including space that it
            cannot reuse; 0 if unknown.
    """

    worker: int
    fixed_bytes: int
    nodes: tuple[str, ...]
    bytes: tuple[int, ...]
    held: tuple[Held, ...]
    allocated_bytes: int

    @property
    def moment(self) -> int:
        """Index in `nodes` of the node that runs at the worst moment."""
        return max(range(len(self.bytes)), key=self.bytes.__getitem__, default=0)


def operator_of(node: str) -> str:
    """The name in the training graph of a node of the partitioned one.

    >>> operator_of("fc1_fwd@3"), operator_of("fc1_fwd@3/in0/fetch"), operator_of("")
    ('fc1_fwd', 'fc1_fwd', '(copies)')
    """
    return node.partition("@")[0] or "(copies)"
