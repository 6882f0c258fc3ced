"""Counts the bytes that workers read from each other in a step, in the graphs that MXNet runs.

The count shares no code with the passes: it adds up the bytes that MultiFetch's specifications
copy from tiles of other workers, and those that MXNet copies if a node reads an array of another
context.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP

from tofu.planner.compile_plan import Compiled

__all__ = ["expected_bytes", "moved_bytes", "wrong_bytes"]


def wrong_bytes(compiled: Compiled) -> str:
    """Describe a difference between the bytes that workers read and the plan's; "" if equal.

    Workers read less than the plan says in two cases: if it has copies of a tensor that no worker
    reads, and if MXNet copies an array once for several nodes, for which the plan counts it again.
    """
    moved, expected = moved_bytes(compiled), expected_bytes(compiled)
    tensors = compiled.plan.tensors
    may_be_less = compiled.fetch != "multifetch" or any(-1 in each.cuts for each in tensors)
    if moved == expected or (moved < expected and may_be_less):
        return ""
    return f"workers read {moved} bytes from each other, the plan says {expected}"


def expected_bytes(compiled: Compiled) -> int:
    """The plan's bytes, without those of updates, and corrected for shared fetches and roots."""
    found = compiled.searched.total_bytes - compiled.searched.update_bytes
    return found - compiled.shared_bytes + compiled.relayed_bytes


def moved_bytes(compiled: Compiled) -> int:
    """The bytes that workers read from each other in the forward and the backward pass."""
    return sum(sum(_moved(json.loads(graph.to_json()))) for graph in compiled.step.graphs)


def _moved(graph: Mapping[str, Any]) -> Iterator[int]:
    nodes, starts = graph["nodes"], graph["node_row_ptr"]
    shapes, dtypes = (graph["attrs"][name][1] for name in ("shape", "dtype"))
    workers = [node.get("attrs", {}).get("__ctx_group__") for node in nodes]
    copied = set()
    for node, here in zip(nodes, workers):
        inputs = [(source, output) for source, output, *_ in node["inputs"]]
        if node["op"] == "_tofu_multifetch":
            yield from _fetched(node["attrs"], [workers[source] != here for source, _ in inputs])
        else:
            for source, output in inputs:
                entry = starts[source] + output
                if workers[source] != here and (entry, here) not in copied:
                    copied.add((entry, here))
                    yield math.prod(shapes[entry]) * _size(dtypes[entry])


def _fetched(attrs: Mapping[str, str], is_remote: Sequence[bool]) -> Iterator[int]:
    """The bytes of each piece that a MultiFetch copies from another worker's tile.

    is_remote: whether another worker holds it, for each input.
    """
    tiles = iter(is_remote)
    for text in attrs["spec"].split("|"):
        spec = dict(word.partition("=")[::2] for word in text.split(" "))
        remote = [next(tiles) for _ in range(len(spec["sources"].split(";")) - 1)]
        for piece in spec["pieces"].split(";"):
            source, _, place = piece.partition("@")
            if source not in ("", "-") and remote[int(source)]:
                extents = place.partition("#")[0].rpartition(":")[2].split(",")
                yield math.prod(int(each) for each in extents if each) * _size(int(spec["dtype"]))
    assert next(tiles, None) is None


def _size(dtype: int) -> int:
    return int(np.dtype(_DTYPE_MX_TO_NP[dtype]).itemsize)
