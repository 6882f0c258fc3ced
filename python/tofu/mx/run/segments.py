"""Which operators of a worker MXNet's engine gets as one, in graphs of several GPUs.

MXNet waits for a GPU's stream after every operator, or after a segment: operators that it runs
in a row as one. It makes segments between copies from one context to another. Graphs whose
fetches read other workers' tiles in place have no copies, and MXNet then tries a single segment
over all workers, which fails.

Here a segment begins where operators of another worker end or other workers' tiles are fetched,
and ends after an operator whose output another worker reads. So nothing that could run already
waits for a fetch, and no other worker waits for more than what it reads.

The engine starts a segment when the inputs of all its operators are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..nnvm import VARIABLE

__all__ = ["executor_order", "segments"]

_FETCH = "_tofu_multifetch"


def executor_order(nodes: list[dict[str, Any]], heads: list[list[int]]) -> list[int]:
    """The nodes of a graph without copies, as an executor numbers them: depth first."""
    order: list[int] = []
    seen: set[int] = set()

    def needs(number: int) -> Iterator[int]:
        seen.add(number)
        yield from (each[0] for each in nodes[number]["inputs"])
        yield from nodes[number].get("control_deps", ())

    for head in heads:
        stack = [(head[0], needs(head[0]))] if head[0] not in seen else []
        while stack:
            number, rest = stack[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                order.append(number)
                stack.pop()
            else:
                stack.append((following, needs(following)))
    return order


def segments(nodes: list[dict[str, Any]], heads: list[list[int]]) -> list[tuple[int, int]]:
    """The first operator's and the last one's number, plus one, of segments of two or more.

    The graph is NNVM's JSON, and its fetches read other workers' tiles in place.
    """
    workers = [node.get("attrs", {}).get("__ctx_group__", "") for node in nodes]
    read_elsewhere = {
        each[0]
        for number, node in enumerate(nodes)
        for each in node["inputs"]
        if workers[each[0]] != workers[number]
    }
    found: list[tuple[int, int]] = []
    own: list[int] = []  # the executor's numbers of the segment's operators
    worker, fetches_only = "", True

    def close() -> None:
        if len(own) > 1:
            found.append((own[0], own[-1] + 1))
        own.clear()

    for place, number in enumerate(executor_order(nodes, heads)):
        node = nodes[number]
        if node["op"] == VARIABLE:
            continue
        is_fetch = node["op"] == _FETCH
        if workers[number] != worker or (is_fetch and not fetches_only):
            close()
            fetches_only = True
        worker, fetches_only = workers[number], fetches_only and is_fetch
        own.append(place)
        if number in read_elsewhere:
            close()
            fetches_only = True
    close()
    return found
