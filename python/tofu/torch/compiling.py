"""Compiles a rank's calls between two exchanges with ``torch.compile``.

The calls of a segment become one function of the tiles that they read. Calls that draw random
numbers stay as they are: their seeds depend on the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tofu.torch.calls import filled

__all__ = ["Key", "Segment", "segments"]

Key = tuple[Any, Any]  # a tensor and its placement


class Segment:
    """A run of calls as one compiled function.

    Args:
        calls: the calls that the function runs.
        kept: tensors that are needed after the segment.
    """

    def __init__(self, calls: Sequence[Any], kept: set[Any]) -> None:
        graph = torch.fx.Graph()
        self.reads: list[Key] = []
        known: dict[Key, Any] = {}
        for call in calls:
            values = []
            for entry, place, is_zero in call.inputs:
                key = entry, place
                if key not in known:
                    known[key] = graph.placeholder(f"tile{len(self.reads)}")
                    self.reads.append(key)
                zeros = torch.ops.aten.zeros_like.default
                values.append(graph.call_function(zeros, (known[key],)) if is_zero else known[key])
            positional = tuple(filled(each, values) for each in call.positional)
            named = {name: filled(each, values) for name, each in call.named.items()}
            result = graph.call_function(call.function, positional, named)
            several = len(call.function._schema.returns) > 1 or _is_list(call.function)
            for out in call.outputs:
                item = graph.call_function(_item, (result, out.position)) if several else result
                known[out.entry, out.made] = item
        outs = [out for call in calls for out in call.outputs if out.entry in kept]
        self.makes: list[Key] = [(out.entry, out.made) for out in outs]
        graph.output(tuple(known[key] for key in self.makes))
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


def segments(calls: Sequence[Any], starts: Sequence[int], kept: set[Any]) -> dict[int, Any]:
    """Compiles the segments of a pass: number of the first call -> segment and number of its end.

    Args:
        calls: the calls of the pass.
        starts: the calls before which something is exchanged.
        kept: the tensors that are needed after the pass.
    """
    compiled: dict[int, Any] = {}
    bounds = sorted({0, *starts, len(calls)} | _random(calls))
    for begin, end in zip(bounds, bounds[1:]):
        if end - begin > 1:
            later = {entry for call in calls[end:] for entry, _, _ in call.inputs}
            compiled[begin] = end, Segment(calls[begin:end], kept | later)
    return compiled


def _random(calls: Sequence[Any]) -> set[int]:
    """The bounds of calls that draw random numbers."""
    alone = [k for k, call in enumerate(calls) if call.seed is not None]
    return {*alone, *(k + 1 for k in alone)}
