"""Arrays that take no memory, because binding touches none."""

import mxnet as mx

from tofu.dtypes import dtype_name

__all__ = ["empty_variables"]


def empty_variables(graph, contexts):
    """An array for every variable of a graph, on its worker's context."""
    groups = dict(graph.variables)
    arrays = {}
    for node in graph.nodes:
        if not node.op:
            ((shape, dtype),) = node.outputs
            context = contexts[int(groups[node.name][len("worker") :])]
            arrays[node.name] = mx.nd.empty(shape, context, dtype_name(dtype))
    return arrays
