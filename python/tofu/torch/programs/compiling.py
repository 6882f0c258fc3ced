"""Compiles a rank's calls between two exchanges with ``torch.compile``.

The calls of a segment become one function of the tiles that they read. Calls that draw random
numbers stay as they are: their seeds depend on the rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Callable

import torch

from tofu.torch.graphs.calls import filled

__all__ = ["Segment", "with_segments"]


class Segment:
    """A run of calls as one compiled function.

    Args:
        calls: the calls that the function runs.
        kept: tiles that are needed after the segment.

    Attributes:
        reads, makes: the tiles that it reads and makes.
        drops: tiles that no later step reads.
    """

    def __init__(self, calls: Sequence[Any], kept: set[Any]) -> None:
        graph = torch.fx.Graph()
        self.reads: list[Any] = []
        self.drops = tuple(tile for call in calls for tile in call.drops)
        known: dict[Any, Any] = {}
        for call in calls:
            for tile in call.reads:
                if tile not in known:
                    known[tile] = graph.placeholder(f"tile{len(self.reads)}")
                    self.reads.append(tile)
            values = [known[tile] for tile in call.reads]
            positional = tuple(filled(each, values) for each in call.positional)
            named = {name: filled(each, values) for name, each in call.named.items()}
            result = graph.call_function(call.function, positional, named)
            several = len(call.function._schema.returns) > 1 or _is_list(call.function)
            for tile, position in call.makes:
                item = graph.call_function(_item, (result, position)) if several else result
                known[tile] = item
        self.makes = [tile for call in calls for tile, _ in call.makes if tile in kept]
        graph.output(tuple(known[tile] for tile in self.makes))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        self._function = torch.compile(module, dynamic=False, fullgraph=True)

    def __call__(self, tiles: Sequence[Any]) -> Sequence[Any]:
        """Run the calls on tiles in the order of `reads`; returns tiles in the order of `makes`."""
        results: Sequence[Any] = self._function(*tiles)
        return results


def _item(values: Any, position: int) -> Any:
    return values[position]


def _is_list(function: Any) -> bool:
    returned = function._schema.returns
    return bool(returned) and isinstance(returned[0].type, torch.ListType)


def with_segments(steps: Sequence[Any], can: Callable[[Any], bool], kept: set[Any]) -> list[Any]:
    """Compiles each run of two or more calls among a pass's steps.

    Args:
        steps: the calls and exchanges of the pass; each has `reads`.
        can: whether a step may be compiled.
        kept: the tiles that are needed after the pass.
    """
    done: list[Any] = []
    later = set(kept)
    for is_run, run in itertools.groupby(reversed(steps), can):
        calls = list(run)[::-1]
        joined = [Segment(calls, later)] if is_run and len(calls) > 1 else calls
        done = [*joined, *done]
        later.update(tile for call in calls for tile in call.reads)
    return done
