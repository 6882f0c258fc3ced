"""Groups operators that MXNet's engine gets as one, in graphs over several GPUs.

MXNet waits for a GPU's stream after every operator, or after a segment: operators that it runs
in a row as one. It makes segments between copies from one context to another. Graphs whose
fetches read other workers' tiles in place have no copies, and MXNet then tries a single segment
over all workers, which fails.

Here a segment begins where operators of another worker end or other workers' tiles are fetched,
and ends after an operator whose output another worker reads. So no operator that could run waits
for a fetch, and no worker waits for more than the tensors that it reads.

The engine starts a segment when the inputs of all its operators are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tofu import _core

__all__ = ["Step", "executor_order", "segments", "steps_of"]

_FETCH = "_tofu_multifetch"


class Step(NamedTuple):
    """The parts of a node that matter for its order.

    Attributes:
        op: its operator, "" for a variable.
        worker: its context group.
        sources: the numbers of the nodes that it reads.
        control_deps: the numbers of other nodes that run before it.
    """

    op: str
    worker: str
    sources: Sequence[int]
    control_deps: Sequence[int] = ()


def steps_of(graph: _core.Graph) -> list[Step]:
    """The nodes of a graph."""
    return [
        Step(
            node.op,
            node.attrs.get("__ctx_group__", ""),
            [source for source, _ in node.sources],
            node.control_deps,
        )
        for node in graph.nodes
    ]


def executor_order(nodes: Sequence[Step], heads: Sequence[int]) -> list[int]:
    """The nodes of a graph without copies, as an executor numbers them: depth first."""
    order: list[int] = []
    seen: set[int] = set()

    def needs(number: int) -> Iterator[int]:
        seen.add(number)
        yield from nodes[number].sources
        yield from nodes[number].control_deps

    for head in heads:
        stack = [(head, needs(head))] if head not in seen else []
        while stack:
            number, rest = stack[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                order.append(number)
                stack.pop()
            else:
                stack.append((following, needs(following)))
    return order


def segments(nodes: Sequence[Step], heads: Sequence[int]) -> list[tuple[int, int]]:
    """Segments of two or more operators: begin and end, excluded, in the executor's numbers.

    The graph's fetches read other workers' tiles in place.
    """
    read_elsewhere = {
        source for node in nodes for source in node.sources if nodes[source].worker != node.worker
    }
    joined: list[tuple[int, int]] = []
    own: list[int] = []  # the executor's numbers of the segment's operators
    worker, fetches_only = "", True

    def close() -> None:
        if len(own) > 1:
            joined.append((own[0], own[-1] + 1))
        own.clear()

    for place, number in enumerate(executor_order(nodes, heads)):
        node = nodes[number]
        if not node.op:
            continue
        is_fetch = node.op == _FETCH
        if node.worker != worker or (is_fetch and not fetches_only):
            close()
            fetches_only = True
        worker, fetches_only = node.worker, fetches_only and is_fetch
        own.append(place)
        if number in read_elsewhere:
            close()
            fetches_only = True
    close()
    return joined
