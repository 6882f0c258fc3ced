"""Training graphs on one worker, and the gradients of MXNet's own executor.

``step_of_one`` makes the step of the trivial partition without the passes, so its tests
exercise only the executors.
"""

import json
import types

import mxnet as mx
import numpy as np

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.nnvm import Entry, Graph, Node
from tofu.mx.run.program import Program
from tofu.mx.run.transfer import scatter
from tofu.plans.layout import variables_of

__all__ = ["graph_of", "numpy_of", "own_gradients", "step_of_one", "shapes_of", "train"]


def numpy_of(arrays):
    return {name: array.asnumpy() for name, array in arrays.items()}


def shapes_of(arrays):
    return {name: (array.shape, np.dtype(array.dtype).name) for name, array in arrays.items()}


def graph_of(symbol, inputs, parameters, aux=None, **options):
    """The training graph for arrays of these shapes; all parameters have gradients.

    The options are training_graph's, which may replace these.
    """
    settings = {"gradients": list(parameters), "train": True, **options}
    return training_graph(
        symbol,
        inputs=shapes_of(inputs),
        parameters=shapes_of(parameters),
        aux=shapes_of(aux or {}),
        **settings,
    )


def step_of_one(training):
    """The training step of a graph over one worker."""
    text = training.to_json()
    record = json.loads(text)
    graph = Graph.from_json(text)
    entry_shapes, entry_dtypes = record["attrs"]["shape"][1], record["attrs"]["dtype"][1]
    rows = record["node_row_ptr"]
    by_name = {node.name: node for node in graph.topological()}
    for i, each in enumerate(record["nodes"]):
        node = by_name[each["name"]]
        node.shapes = [tuple(shape) for shape in entry_shapes[rows[i] : rows[i + 1]]]
        node.dtypes = entry_dtypes[rows[i] : rows[i + 1]]
    variables = [
        (
            name,
            node.attrs["__tofu_role__"],
            node.shapes[0],
            dtype_name(node.dtypes[0]),
            [_tile(f"{name}@0", node.shapes[0])],
        )
        for name, node in graph.variables().items()
    ]
    for node in graph.topological():
        node.name += "@0"
        node.control_deps = []
        node.attrs["__ctx_group__"] = "worker0"
    roles = record["attrs"]["tofu_heads"][1]
    outputs = [e for e, role in zip(graph.heads, roles) if role == "output"]
    others = {r: e for e, r in zip(graph.heads, roles) if r != "output"}
    forward = set(Graph(outputs).topological())
    saved = _cut(others, forward)
    graphs = [_graph([*outputs, *saved])]
    if others:
        graphs.append(_graph(list(others.values())))
    return types.SimpleNamespace(
        workers=1,
        variables=variables,
        is_joint=False,
        graphs=graphs,
        forward_heads=_heads(outputs, ["output"] * len(outputs)),
        backward_heads=_heads(others.values(), others),
        saved=[(node.name, len(outputs) + i) for i, node in enumerate(saved.values())],
    )


def _cut(others, forward):
    """Replace the forward entries that the backward graph reads by variables."""
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


def _graph(heads):
    graph = Graph(heads)
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [shape for node in order for shape in node.shapes]],
        "dtype": ["list_int", [dtype for node in order for dtype in node.dtypes]],
    }
    return _core.Graph(graph.to_json(attrs))


def _heads(entries, roles):
    return [
        (role, entry.shape, dtype_name(entry.dtype), [_tile(number, entry.shape)])
        for number, (role, entry) in enumerate(zip(roles, entries))
    ]


def _tile(name, shape):
    return name, (0,) * len(shape), tuple(shape)


def train(symbol, inputs, parameters, aux=None, *, head_gradients=None, steps=1, seed=7, **options):
    """Outputs, gradients and new auxiliary states of tofu's executors over one worker.

    The options are training_graph's: composite operators are taken apart as for `workers`.
    """
    aux = aux or {}
    training = graph_of(symbol, inputs, parameters, aux, **options)
    step = step_of_one(training)
    given = {**parameters, **aux}
    tiles = {
        f"{name}@0": scatter(given[name], variable.layout, [mx.cpu()])[0]
        for name, variable in variables_of(step).items()
        if name in given
    }
    program = Program(step, [mx.cpu()], tiles)
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
    """The same results from MXNet's own executor, on the unchanged symbol."""
    args = {name: array.copy() for name, array in {**inputs, **parameters}.items()}
    states = {name: array.copy() for name, array in (aux or {}).items()}
    gradients = {name: mx.nd.zeros_like(parameters[name]) for name in parameters}
    executor = symbol.bind(mx.cpu(), args, args_grad=gradients, aux_states=states)
    mx.random.seed(seed)
    for _ in range(steps):
        outputs = executor.forward(is_train=True)
        executor.backward(head_gradients or [mx.nd.ones_like(output) for output in outputs])
    return [output.asnumpy() for output in outputs], numpy_of(gradients), numpy_of(states)
