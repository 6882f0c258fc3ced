"""Checks which kind of fetch works between the workers' contexts.

fetch = usable_fetch("multifetch", [mx.gpu(0), mx.gpu(1)])
_core.partition(plan, fetch=fetch.kind, crossing=fetch.crossing)

MultiFetch reads other workers' memory in place. CUDA's driver says whether all GPUs can do that,
and a small fetch between the contexts shows whether it works; if not, stock operators copy.
MultiFetch's kernels for GPUs have been compiled, and run on CPUs, but not on a GPU yet. There the
user must choose MultiFetch, as a wrong access would end the process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

from tofu import _core
from tofu.errors import TofuError
from tofu.mx.extension import (
    connect_gpus,
    load,
    mxnet_errors,
    places_nodes,
    views_arrays,
)
from tofu.plans.fetch import Fetch

from ..nnvm import VARIABLE, Entry, Graph, Node, Shape
from .executor import bind

__all__ = ["MULTIFETCH", "PLAIN", "usable_fetch"]

MULTIFETCH, PLAIN = "multifetch", "plain"
_FLOAT32 = 0
_WIDTH = 8
_PAIRS_SHOWN = 3


def usable_fetch(requested: Optional[str], contexts: Sequence[mx.Context]) -> Fetch:
    """Return the kind to use between contexts.

    Args:
        requested: one of config.FETCHES, or None if the user sets none.
        contexts: one per worker.

    Raises:
        MXNetError: an operator that the script called earlier has failed.
    """
    on_gpus = contexts[0].device_type == "gpu"
    if requested == PLAIN or (requested is None and on_gpus):
        return Fetch(PLAIN)
    # All CPU contexts share one memory, so testing two of them is enough.
    return _tested(tuple(contexts if on_gpus else contexts[:2]))


@functools.cache
def _tested(contexts: tuple[mx.Context, ...]) -> Fetch:
    on_gpus = contexts[0].device_type == "gpu"
    try:
        load()
        apart = connect_gpus([each.device_id for each in contexts]) if on_gpus else frozenset()
    except TofuError as error:
        return Fetch(PLAIN, reason=str(error))
    if apart:
        return Fetch(PLAIN, reason=_out_of_reach(apart, contexts))
    if not places_nodes() or not (on_gpus or views_arrays()):
        return Fetch(PLAIN, reason="a graph of this MXNet cannot read other contexts' arrays")
    problem = _self_test(contexts)
    if problem is not None:
        return Fetch(PLAIN, reason=problem)
    return Fetch(MULTIFETCH, crossing="tiles" if on_gpus else "plain_tiles")


def _out_of_reach(apart: frozenset[tuple[int, int]], contexts: Sequence[mx.Context]) -> str:
    """A sentence that names GPUs that cannot read others' memory."""
    pairs = sorted(apart)
    shown = [
        f"GPU {contexts[reader].device_id} that of GPU {contexts[owner].device_id}"
        for reader, owner in pairs[:_PAIRS_SHOWN]
    ]
    more = f", and {len(pairs) - _PAIRS_SHOWN} more pairs" if len(pairs) > _PAIRS_SHOWN else ""
    return f"these GPUs cannot read others' memory: {', '.join(shown)}{more}"


def _self_test(contexts: tuple[mx.Context, ...]) -> Optional[str]:
    """Let every worker fetch a row from every worker. Return the problem.

    MXNet keeps an error with every array that a failed operator should have written. No such array
    is left when this returns.
    """
    mx.nd.waitall()  # raises errors of earlier operators
    try:
        return _problem(contexts)
    except TofuError as error:
        with contextlib.suppress(mx.base.MXNetError):
            mx.nd.waitall()
        return str(error)


def _problem(contexts: tuple[mx.Context, ...]) -> Optional[str]:
    rows = np.arange(len(contexts) * _WIDTH, dtype="float32").reshape(-1, _WIDTH)
    tiles = {
        f"tile{worker}": dense_array(rows[worker : worker + 1], context)
        for worker, context in enumerate(contexts)
    }
    executor = bind("MultiFetch test", _test_graph(len(contexts)), contexts, tiles)
    with mxnet_errors("running MultiFetch's self-test"):
        regions = [array.asnumpy() for array in executor.forward()]
    for context, region in zip(contexts, regions):
        if not np.array_equal(region, rows):
            return f"MultiFetch's self-test found wrong values on {context}"
    return None


def _test_graph(workers: int) -> _core.Graph:
    """Every worker fetches all workers' rows."""
    row = (1, _WIDTH)
    tiles = [_node(VARIABLE, f"tile{worker}", worker, [], row) for worker in range(workers)]
    pieces = ";".join(f"{worker}@0,0>{worker},0:1,{_WIDTH}" for worker in range(workers))
    spec = (
        f"dtype={_FLOAT32} shape={workers},{_WIDTH} sources={f'1,{_WIDTH};' * workers} "
        f"pieces={pieces}"
    )
    attrs = {"spec": spec, "label": "of the self-test", "__direct__": "1"}
    inputs = [Entry(tile) for tile in tiles]
    graph = Graph(
        [
            Entry(_node("_tofu_multifetch", f"fetch{w}", w, inputs, (workers, _WIDTH), **attrs))
            for w in range(workers)
        ]
    )
    order = graph.topological()
    shapes = {
        "shape": ["list_shape", [shape for node in order for shape in node.shapes]],
        "dtype": ["list_int", [dtype for node in order for dtype in node.dtypes]],
    }
    return _core.Graph(graph.to_json(shapes))


def _node(op: str, name: str, worker: int, inputs: list[Entry], shape: Shape, **attrs: str) -> Node:
    node = Node(op, name, attrs, inputs, shapes=[shape], dtypes=[_FLOAT32])
    node.attrs["__ctx_group__"] = f"worker{worker}"
    return node
