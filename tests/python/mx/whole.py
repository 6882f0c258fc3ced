"""A training graph given to one worker, and gradients as MXNet's own executor computes them.

``phases_of_one`` makes, without the passes, the phases of the trivial partition, so that
these tests show the executors alone.
"""

import json

import mxnet as mx
import numpy as np

from tofu.mx.build.nnvm import Entry, Graph, Node
from tofu.mx.build.training_graph import training_graph
from tofu.mx.run.layout import layouts, scatter
from tofu.mx.run.program import Program

__all__ = ["numpy_of", "own_gradients", "phases_of_one", "shapes_of", "train"]


def numpy_of(arrays):
    return {name: array.asnumpy() for name, array in arrays.items()}


def shapes_of(arrays):
    return {name: (array.shape, np.dtype(array.dtype).name) for name, array in arrays.items()}


def phases_of_one(text):
    """The phases of a training graph over one worker."""
    record = json.loads(text)
    graph = Graph.from_json(text)
    entry_shapes, entry_dtypes = record["attrs"]["shape"][1], record["attrs"]["dtype"][1]
    rows = record["node_row_ptr"]
    by_name = {node.name: node for node in graph.topological()}
    for i, each in enumerate(record["nodes"]):
        node = by_name[each["name"]]
        node.shapes = [tuple(shape) for shape in entry_shapes[rows[i] : rows[i + 1]]]
        node.dtypes = entry_dtypes[rows[i] : rows[i + 1]]
    variables = {
        name: {
            "role": node.attrs["__tofu_role__"],
            "shape": node.shapes[0],
            "dtype": node.dtypes[0],
            "tiles": [_tile(node.shapes[0], name=f"{name}@0")],
        }
        for name, node in graph.variables().items()
    }
    for node in graph.topological():
        node.name += "@0"
        node.control_deps = []
        node.attrs["__ctx_group__"] = "worker0"
    roles = record["attrs"]["tofu_heads"][1]
    outputs = [e for e, role in zip(graph.heads, roles) if role == "output"]
    others = {r: e for e, r in zip(graph.heads, roles) if r != "output"}
    forward = set(Graph(outputs).topological())
    saved = _cut(others, forward)
    return json.dumps(
        {
            "format": "tofu-phases",
            "version": 1,
            "workers": 1,
            "variables": variables,
            "forward": _phase([*outputs, *saved], ["output"] * len(outputs)),
            "backward": _phase(list(others.values()), list(others)) if others else None,
            "saved": [
                {"name": node.name, "forward_head": len(outputs) + i, "worker": 0}
                for i, node in enumerate(saved.values())
            ],
        }
    )


def _cut(others, forward):
    """Variables in the backward graph for what it reads of the forward graph."""
    saved = {}

    def variable(entry):
        if entry.node not in forward or entry.node.is_variable:
            return entry
        if entry not in saved:
            cut = Node("null", f"{entry.node.name}#{entry.index}", {"__ctx_group__": "worker0"})
            cut.shapes, cut.dtypes = [entry.shape], [entry.dtype]
            saved[entry] = cut
        return Entry(saved[entry])

    for node in Graph(list(others.values())).topological():
        if node not in forward:
            node.inputs = [variable(entry) for entry in node.inputs]
    for role, entry in others.items():
        others[role] = variable(entry)
    return saved


def _phase(heads, roles):
    graph = Graph(heads)
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [shape for node in order for shape in node.shapes]],
        "dtype": ["list_int", [dtype for node in order for dtype in node.dtypes]],
    }
    return {
        "graph": json.loads(graph.to_json(attrs)),
        "heads": [
            {
                "role": role,
                "shape": entry.shape,
                "dtype": entry.dtype,
                "tiles": [_tile(entry.shape, head=i)],
            }
            for i, (role, entry) in enumerate(zip(roles, heads))
        ],
    }


def _tile(shape, **attrs):
    return {**attrs, "worker": 0, "begin": [0] * len(shape), "end": list(shape)}


def train(symbol, inputs, parameters, aux=None, *, head_gradients=None, steps=1, seed=7, workers=1):
    """Outputs, gradients and new auxiliary states of tofu's executors over one worker.

    Composite operators are taken apart as for `workers`.
    """
    aux = aux or {}
    text = training_graph(
        symbol,
        inputs=shapes_of(inputs),
        parameters=shapes_of(parameters),
        aux=shapes_of(aux),
        gradients=list(parameters),
        train=True,
        workers=workers,
    )
    phases = phases_of_one(text)
    given = {**parameters, **aux}
    tiles = {
        f"{name}@0": scatter(given[name], layout, [mx.cpu()])[0]
        for name, layout in layouts(json.loads(phases)["variables"]).items()
        if name in given
    }
    program = Program(phases, [mx.cpu()], tiles)
    mx.random.seed(seed)
    for _ in range(steps):
        outputs = program.forward(inputs, is_train=True, ctx=mx.cpu())
        heads = head_gradients or [mx.nd.ones_like(output) for output in outputs]
        gradients = program.backward(heads)
    return (
        [output.asnumpy() for output in outputs],
        {name: tiles[0].asnumpy() for name, tiles in gradients.items()},
        {name: tiles[f"{name}@0"].asnumpy() for name in aux},
    )


def own_gradients(symbol, inputs, parameters, aux=None, *, head_gradients=None, steps=1, seed=7):
    """The same of MXNet's own executor on the symbol as it is."""
    args = {name: array.copy() for name, array in {**inputs, **parameters}.items()}
    states = {name: array.copy() for name, array in (aux or {}).items()}
    gradients = {name: mx.nd.zeros_like(parameters[name]) for name in parameters}
    executor = symbol.bind(mx.cpu(), args, args_grad=gradients, aux_states=states)
    mx.random.seed(seed)
    for _ in range(steps):
        outputs = executor.forward(is_train=True)
        executor.backward(head_gradients or [mx.nd.ones_like(output) for output in outputs])
    return [output.asnumpy() for output in outputs], numpy_of(gradients), numpy_of(states)
