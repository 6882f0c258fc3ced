"""The plain form of fetches on stock MXNet: tensors cut at random, operators whole.

No operator is described here, so that every worker fetches all it reads and cuts its
tiles from what it computes: all that is tested is that the tiles and fetches are right.
"""

import json
import math
import random

import mxnet as mx
import numpy as np
import pytest

from tofu import _core
from tofu.mx.graph import training_graph
from tofu.mx.program import Program
from tofu.mx.tiles import gather, layouts, scatter

PARTS = {2: [2], 3: [3], 4: [2, 2], 6: [3, 2]}


def _network():
    """A small network, its data and its parameters, in float64."""
    data, label = mx.sym.var("data"), mx.sym.var("label")
    net = mx.sym.Convolution(data, num_filter=6, kernel=(3, 3), pad=(1, 1), name="conv")
    net = mx.sym.Pooling(mx.sym.relu(net), kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.FullyConnected(net, num_hidden=12, name="fc")
    loss = mx.sym.sum(mx.sym.square(mx.sym.tanh(net) - label), axis=1)
    shapes = {
        "data": (6, 4, 8, 8),
        "label": (6, 12),
        "conv_weight": (6, 4, 3, 3),
        "conv_bias": (6,),
        "fc_weight": (12, 96),
        "fc_bias": (12,),
    }
    rng = np.random.RandomState(3)
    arrays = {
        name: mx.nd.array(rng.uniform(-1, 1, shape), dtype="float64")
        for name, shape in shapes.items()
    }
    inputs = {name: arrays.pop(name) for name in ("data", "label")}
    return loss, inputs, arrays


def _expected(symbol, inputs, parameters):
    arguments = {**inputs, **parameters}
    gradients = {name: mx.nd.zeros_like(array) for name, array in parameters.items()}
    executor = symbol.bind(mx.cpu(), arguments, args_grad=gradients)
    (loss,) = executor.forward(is_train=True)
    executor.backward([mx.nd.ones_like(loss)])
    return loss.asnumpy(), {name: array.asnumpy() for name, array in gradients.items()}


def _random_cuts(shape, parts, rng):
    shape, cuts = list(shape), []
    for part in parts:
        fitting = [d for d, extent in enumerate(shape) if extent % part == 0]
        cuts.append(rng.choice([*fitting, *fitting, -1]))
        if cuts[-1] >= 0:
            shape[cuts[-1]] //= part
    return cuts


def _random_plan(graph_json, parts, rng):
    """A plan that cuts every tensor at random and no operator; what it costs is left open."""
    graph = json.loads(graph_json)
    shapes, rows = graph["attrs"]["shape"][1], graph["node_row_ptr"]
    tensors, operators = [], []
    for number, node in enumerate(graph["nodes"]):
        for entry in range(rows[number], rows[number + 1]):
            cuts = _random_cuts(shapes[entry], parts, rng)
            tensors.append({"node": node["name"], "output": entry - rows[number], "cuts": cuts})
        if node["op"] != "null":
            operators.append({"node": node["name"], "cuts": [None] * len(parts), "bytes": 0})
    return json.dumps(
        {
            "format": "tofu-plan",
            "version": 1,
            "workers": math.prod(parts),
            "graph_hash": _core.graph_hash(graph_json),
            "parts": parts,
            "steps": [{"parts": part, "bytes": 0} for part in parts],
            "lower_bound_bytes": 0,
            "status": "feasible",
            "search_seconds": 0.0,
            "tensors": tensors,
            "operators": operators,
        }
    )


@pytest.mark.parametrize("workers", PARTS)
@pytest.mark.parametrize("seed", range(3))
def test_random_tiles_give_the_losses_and_gradients_of_mxnet(workers, seed):
    symbol, inputs, parameters = _network()
    records = {name: (array.shape, "float64") for name, array in {**inputs, **parameters}.items()}
    graph = training_graph(
        symbol,
        inputs={name: records[name] for name in inputs},
        parameters={name: records[name] for name in parameters},
        aux={},
        gradients=list(parameters),
        train=True,
    )
    undescribed = [-1] * len(json.loads(graph)["nodes"])
    table = {"format": "tofu-strategy-table", "version": 1, "nodes": undescribed, "rows": []}
    plan = _random_plan(graph, PARTS[workers], random.Random(seed))
    phases = _core.phases(_core.partition(graph, json.dumps(table), plan))

    contexts = [mx.cpu(w) for w in range(workers)]
    divided = layouts(phases)
    tiles = {
        f"{name}@{w}": tile
        for name, array in parameters.items()
        for w, tile in enumerate(scatter(array, divided[name], contexts))
    }
    program = Program(phases, contexts, tiles)
    (loss,) = program.forward(inputs, is_train=True, ctx=mx.cpu())
    gradients = program.backward([mx.nd.ones_like(loss)])

    expected_loss, expected_gradients = _expected(symbol, inputs, parameters)
    np.testing.assert_allclose(loss.asnumpy(), expected_loss, rtol=1e-12)
    assert gradients.keys() == expected_gradients.keys()
    for name, expected in expected_gradients.items():
        found = gather(gradients[name], divided[name], mx.cpu()).asnumpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)
