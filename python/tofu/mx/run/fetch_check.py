"""Checks which kind of fetch works between the workers' contexts.

fetch = usable_fetch("multifetch", [mx.gpu(0), mx.gpu(1)])
_core.partition(plan, fetch=fetch.kind, apart=fetch.apart)

MultiFetch reads other workers' memory in place. CUDA's driver says which GPUs can do that;
between the others, stock operators copy. A small fetch between the contexts shows whether it
works; if not, stock operators copy everywhere. MultiFetch's kernels for GPUs have been compiled,
and run on CPUs, but not on a GPU yet. There the user must choose MultiFetch, as a wrong access
would end the process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np

from tofu import _core
from tofu.errors import TofuError
from tofu.mx.extension import (
    check_fetches,
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
_FLOAT32, _INT64 = 0, 6
_WIDTH = 8
_PAIRS_SHOWN = 3
_Pairs = frozenset[tuple[int, int]]


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
    reason = _out_of_reach(apart, contexts) if apart else None
    if len(apart) == len(contexts) * (len(contexts) - 1) > 0:
        return Fetch(PLAIN, reason=reason)
    crossing = "copies"
    if places_nodes() and not apart:
        crossing = "tiles" if on_gpus else "plain_tiles" if views_arrays() else "copies"
    problem = _self_test(contexts, apart, crossing)
    if problem is not None:
        return Fetch(PLAIN, reason=problem)
    return Fetch(MULTIFETCH, apart, reason, crossing)


def _out_of_reach(apart: _Pairs, contexts: Sequence[mx.Context]) -> str:
    """A sentence that names GPUs that cannot read others' memory."""
    pairs = sorted(apart)
    shown = [
        f"GPU {contexts[reader].device_id} that of GPU {contexts[owner].device_id}"
        for reader, owner in pairs[:_PAIRS_SHOWN]
    ]
    more = f", and {len(pairs) - _PAIRS_SHOWN} more pairs" if len(pairs) > _PAIRS_SHOWN else ""
    return f"these GPUs cannot read others' memory: {', '.join(shown)}{more}"


def _self_test(
    contexts: tuple[mx.Context, ...], apart: _Pairs = frozenset(), crossing: str = "copies"
) -> Optional[str]:
    """Let every worker fetch a row from every worker that it reaches. Return the problem.

    MXNet keeps an error with every array that a failed operator should have written. No such array
    is left when this returns.
    """
    mx.nd.waitall()  # raises errors of earlier operators
    try:
        return _problem(contexts, apart, crossing)
    except TofuError as error:
        with contextlib.suppress(mx.base.MXNetError):
            mx.nd.waitall()
        return str(error)


def _problem(contexts: tuple[mx.Context, ...], apart: _Pairs, crossing: str) -> Optional[str]:
    rows = np.arange(len(contexts) * _WIDTH, dtype="float32").reshape(-1, _WIDTH)
    tiles = {
        f"tile{worker}": mx.nd.array(rows[worker : worker + 1], context)
        for worker, context in enumerate(contexts)
    }
    graph = _test_graph(len(contexts), apart, crossing)
    executor = bind("MultiFetch test", graph, contexts, tiles)
    with mxnet_errors("running MultiFetch's self-test"):
        regions = [array.asnumpy() for array in executor.forward()[: len(contexts)]]
    check_fetches()
    for reader, (context, region) in enumerate(zip(contexts, regions)):
        if not np.array_equal(region, rows[_read_by(reader, len(contexts), apart)]):
            return f"MultiFetch's self-test found wrong values on {context}"
    return None


def _read_by(reader: int, workers: int, apart: _Pairs) -> list[int]:
    return [worker for worker in range(workers) if (reader, worker) not in apart]


def _test_graph(workers: int, apart: _Pairs = frozenset(), crossing: str = "copies") -> _core.Graph:
    direct: dict[str, Any] = {} if crossing == "copies" else {"__direct__": "1"}
    tiles, handles = [], []
    for worker in range(workers):
        tiles.append(_node(VARIABLE, f"tile{worker}", worker, [], [(1, _WIDTH)], [_FLOAT32]))
        if direct:
            continue
        publish = ("_tofu_publish", f"publish{worker}", worker, [Entry(tiles[-1])])
        handles.append(_node(*publish, [(1,)], [_INT64]))
    fetches = []
    for reader in range(workers):
        rows = _read_by(reader, workers, apart)
        others = [worker for worker in rows if worker != reader]
        pieces = [
            f"{number}@0,0>{rows.index(worker)},0:1,{_WIDTH}"
            for number, worker in enumerate([*others, reader])
        ]
        sources = handles or tiles
        inputs = [*(Entry(sources[worker]) for worker in others), Entry(tiles[reader])]
        owners = [f"{number}:0@{worker}" for number, worker in enumerate(others) if handles]
        fetches.append(
            _node(
                "_tofu_multifetch",
                f"fetch{reader}",
                reader,
                inputs,
                [(len(rows), _WIDTH), (1,)],
                [_FLOAT32, _INT64],
                spec=f"dtype={_FLOAT32} shape={len(rows)},{_WIDTH} "
                f"remote={len(others) if handles else 0} "
                f"sources={f'1,{_WIDTH};' * len(rows)} pieces={';'.join(pieces)}",
                handles=" ".join(owners),
                label="of the self-test",
                **direct,
            )
        )
    retired = []
    for owner in range(len(handles)):
        readers = [
            Entry(fetch, 1)
            for reader, fetch in enumerate(fetches)
            if reader != owner and (reader, owner) not in apart
        ]
        inputs = [Entry(tiles[owner]), Entry(handles[owner]), *readers]
        retire = ("_tofu_retire", f"retire{owner}", owner, inputs)
        retired.append(_node(*retire, [(1,)], [_INT64], num_args=str(len(inputs)), **direct))
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
