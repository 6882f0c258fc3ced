"""Binding one graph over several contexts."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

import mxnet as mx

from tofu import _core
from tofu.errors import GraphError
from tofu.mx.extension import (
    MATCH_RANGE,
    SEARCH_MATCH_RANGE,
    backward_operators,
    connect_gpus,
    environment,
    join_nodes,
    mxnet_errors,
    placed,
    taught,
)

__all__ = ["bind", "bind_apart", "planner_settings"]

# The context of nodes without a group; there are none. It must not be cpu(0), where MXNet
# would activate a subgraph backend that chains five copies on every edge between contexts,
# nor a GPU, where MXNet would fuse operators of several workers.
_NOWHERE = mx.cpu(1)
# MXNet may run consecutive operators of one context as one, a segment: all of those between two
# copies. A segment waits for the inputs of all its operators and completes as a whole, so workers
# would wait for each other's segments. On GPUs, where MXNet waits for the stream after every
# operator or segment, tofu makes segments that delay nothing (src/passes/schedule/segments.h).
_NO_SEGMENTS = {"MXNET_EXEC_BULK_EXEC_INFERENCE": "0"}


def bind(
    what: str,
    graph: _core.Graph,
    contexts: Sequence[mx.Context],
    arrays: Mapping[str, mx.nd.NDArray],
    *,
    planner: Optional[Mapping[str, str]] = None,
) -> mx.executor.Executor:
    """Bind a graph whose nodes name their worker.

    Args:
        what: a name for the graph, for errors.
        graph: every node is in a context group "worker<w>".
        contexts: one per worker.
        arrays: variable -> array, bound in place; others are ignored.
        planner: environment variables for MXNet's memory planner. None chooses settings
            under which the graph runs correctly and in the least memory.

    Raises GraphError if a node is in no such group, a variable has no array on its worker's
    context, or MXNet refuses the graph.
    """
    groups = {f"worker{worker}": context for worker, context in enumerate(contexts)}
    _check(what, graph, groups, arrays)
    with mxnet_errors(f"loading the {what} graph"):
        symbol = mx.sym.load_json(graph.to_symbol_json())
    arguments = {name: arrays[name] for name in symbol.list_arguments()}
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    if planner is None:
        planner = planner_settings(graph, contexts)
    settings = {**planner, **_NO_SEGMENTS}
    if _has_gpu(contexts) and graph.nodes_of({"_tofu_multifetch"}):
        connect_gpus([each.device_id for each in contexts if each.device_type == "gpu"])
    outputs = {node.name: node.outputs for node in graph.nodes_of(backward_operators())}
    doing = f"binding the {what} graph"
    with mxnet_errors(doing), taught(outputs), environment(settings), _placed(what, graph, groups):
        executor = symbol.bind(
            _NOWHERE, arguments, aux_states=states, grad_req="null", group2ctx=groups
        )
    if _joins(contexts):
        join_nodes(executor, _core.segments(graph, len(contexts)))
    return executor


@contextlib.contextmanager
def _placed(what: str, graph: _core.Graph, groups: Mapping[str, mx.Context]) -> Iterator[None]:
    """Let MXNet put no copies between contexts, if the graph's operators need none."""
    placements = graph.placements
    if not placements:
        yield
        return
    # MXNet numbers the contexts of a bind in the order of their groups' names.
    numbers: dict[mx.Context, int] = {}
    for group in sorted(groups):
        numbers.setdefault(groups[group], len(numbers))
    devices = {group: numbers[context] for group, context in groups.items()}
    with placed([(name, devices[group]) for name, group in placements]) as is_placed:
        yield
    if not is_placed():
        raise GraphError(
            f"binding the {what} graph: MXNet copies between contexts, expected its operators "
            "to read other workers' arrays themselves; set TOFU_FETCH=plain"
        )


# MXNet gives operators temporary space that belongs to the thread that binds or calls them.
_apart = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="tofu-bind")


def bind_apart(
    what: str,
    graph: _core.Graph,
    contexts: Sequence[mx.Context],
    arrays: Mapping[str, mx.nd.NDArray],
) -> mx.executor.Executor:
    """Bind a graph as ``bind`` does, with temporary space that the script's thread never uses.

    Needed for a graph that runs in an autograd callback. By then the script's thread has
    pushed operators that wait for the graph's results. If they held temporary space that
    the graph needs as well, each would wait for the other.
    """
    scalars = mx.util.is_np_shape()  # every thread has its own setting

    def bind_there() -> mx.executor.Executor:
        with mx.util.np_shape(scalars):
            return bind(what, graph, contexts, arrays)

    return _apart.submit(bind_there).result()


def planner_settings(graph: _core.Graph, contexts: Sequence[mx.Context]) -> dict[str, str]:
    """Settings for MXNet's memory planner: a safe match range, or a search if all are safe.

    Tensors of a partitioned graph come in many sizes. With the default range, small tensors
    that live long would occupy the memory of large ones. But MXNet's copies between CPU contexts
    assume the oneDNN layout that a block of memory had last, which may be the layout of a tensor
    with another shape: such a block must not be used again by a tensor of another size.
    """
    if graph.has_copies and not _has_gpu(contexts):
        return {MATCH_RANGE: "0"}
    return {SEARCH_MATCH_RANGE: "1"}


def _joins(contexts: Sequence[mx.Context]) -> bool:
    """Whether MXNet's engine gets several operators as one."""
    return _has_gpu(contexts)


def _has_gpu(contexts: Sequence[mx.Context]) -> bool:
    return any(context.device_type == "gpu" for context in contexts)


def _check(
    what: str,
    graph: _core.Graph,
    groups: Mapping[str, mx.Context],
    arrays: Mapping[str, mx.nd.NDArray],
) -> None:
    # MXNet reads out of bounds if a node has no context, so check before binding.
    for group, node in graph.contexts.items():
        if group not in groups:
            raise GraphError(
                f"{what} graph, node {node!r}: found "
                f"{f'context group {group!r}' if group else 'no context group'}, expected "
                f"one of worker0 to worker{len(groups) - 1}"
            )
    for name, group in graph.variables:
        array = arrays.get(name)
        if array is None or array.context != groups[group]:
            raise GraphError(
                f"{what} graph, variable {name!r}: found "
                f"{'no array' if array is None else f'an array on {array.context}'}, expected "
                f"one on {groups[group]}"
            )
