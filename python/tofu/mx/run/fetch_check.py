"""Checks which kind of fetch works between the workers' contexts.

kind, reason = usable_fetch("multifetch", [mx.gpu(0), mx.gpu(1)])

MultiFetch reads other workers' memory in place. A small fetch between the contexts shows
whether that works here; if not, stock operators copy. Its kernels for GPUs
have been compiled, and run on CPUs, but not on a GPU yet: there the user must choose it, as a
wrong access would end the process.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Optional

import mxnet as mx
import numpy as np

from tofu import _core
from tofu.errors import TofuError

from ..build.nnvm import VARIABLE, Entry, Graph, Node, Shape
from .executor import bind
from .extension import load, mxnet_errors

__all__ = ["MULTIFETCH", "PLAIN", "usable_fetch"]

MULTIFETCH, PLAIN = "multifetch", "plain"
_FLOAT32, _INT64 = 0, 6
_WIDTH = 8


def usable_fetch(
    wanted: Optional[str], contexts: Sequence[mx.Context]
) -> tuple[str, Optional[str]]:
    """Return the kind to use, and the reason if it is not the wanted one, else None.

    Args:
        wanted: one of config.FETCHES, or None if the user sets none.
        contexts: one per worker.
    """
    on_gpus = contexts[0].device_type == "gpu"
    if wanted == PLAIN or (wanted is None and on_gpus):
        return PLAIN, None
    # All CPU contexts share one memory, so testing two of them is enough.
    tested = tuple(contexts if on_gpus else contexts[:2])
    reason = _self_test(tested)
    return (MULTIFETCH, None) if reason is None else (PLAIN, reason)


@functools.cache
def _self_test(contexts: tuple[mx.Context, ...]) -> Optional[str]:
    """Let every worker fetch a row from every worker. Return the problem, or None."""
    expected = np.arange(len(contexts) * _WIDTH, dtype="float32").reshape(-1, _WIDTH)
    try:
        load()
        graph = _test_graph(len(contexts))
        tiles = {
            f"tile{worker}": mx.nd.array(expected[worker : worker + 1], context)
            for worker, context in enumerate(contexts)
        }
        executor = bind("MultiFetch test", graph, contexts, tiles)
        with mxnet_errors("running MultiFetch's self-test"):
            regions = [array.asnumpy() for array in executor.forward()[: len(contexts)]]
    except TofuError as error:
        return str(error)
    for context, region in zip(contexts, regions):
        if not np.array_equal(region, expected):
            return f"MultiFetch's self-test found wrong values on {context}"
    return None


def _test_graph(workers: int) -> _core.Graph:
    tiles, handles = [], []
    for worker in range(workers):
        tiles.append(_node(VARIABLE, f"tile{worker}", worker, [], [(1, _WIDTH)], [_FLOAT32]))
        publish = ("_tofu_publish", f"publish{worker}", worker, [Entry(tiles[-1])])
        handles.append(_node(*publish, [(1,)], [_INT64]))
    fetches = []
    for reader in range(workers):
        others = [worker for worker in range(workers) if worker != reader]
        pieces = [
            f"{number}@0,0>{worker},0:1,{_WIDTH}" for number, worker in enumerate([*others, reader])
        ]
        inputs = [*(Entry(handles[worker]) for worker in others), Entry(tiles[reader])]
        fetches.append(
            _node(
                "_tofu_multifetch",
                f"fetch{reader}",
                reader,
                inputs,
                [(workers, _WIDTH), (1,)],
                [_FLOAT32, _INT64],
                spec=f"dtype={_FLOAT32} shape={workers},{_WIDTH} remote={workers - 1} "
                f"sources={f'1,{_WIDTH};' * workers} pieces={';'.join(pieces)}",
            )
        )
    retired = []
    for owner in range(workers):
        readers = [Entry(fetch, 1) for reader, fetch in enumerate(fetches) if reader != owner]
        inputs = [Entry(tiles[owner]), Entry(handles[owner]), *readers]
        retire = ("_tofu_retire", f"retire{owner}", owner, inputs)
        retired.append(_node(*retire, [(1,)], [_INT64], num_args=str(len(inputs))))
    graph = Graph([Entry(node) for node in [*fetches, *retired]])
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [shape for node in order for shape in node.shapes]],
        "dtype": ["list_int", [dtype for node in order for dtype in node.dtypes]],
    }
    return _core.Graph(graph.to_json(attrs))


def _node(
    op: str,
    name: str,
    worker: int,
    inputs: list[Entry],
    shapes: list[Shape],
    dtypes: list[int],
    **attrs: str,
) -> Node:
    node = Node(op, name, attrs, inputs, num_outputs=len(shapes), shapes=shapes, dtypes=dtypes)
    node.attrs["__ctx_group__"] = f"worker{worker}"
    return node
