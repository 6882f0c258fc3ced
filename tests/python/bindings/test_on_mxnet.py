"""Random plans on stock MXNet: with any cuts, losses and gradients are those of a serial run.

Runs once without descriptions, so every worker fetches whole inputs and cuts its tiles from its
outputs, and once with operators split at random, too.
"""

import json
import math
import random

import mxnet as mx
import numpy as np
import pytest

from tofu import _core
from tofu.analysis.strategy_table import table_document
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.run.program import Program
from tofu.mx.run.transfer import gather, scatter
from tofu.plans.layout import variables_of

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


def _random_cuts(extents, choices, parts, rng):
    """A random one of `choices` whose extent divides, or None, for each step."""
    extents, cuts = list(extents), []
    for part in parts:
        fitting = [choice for choice in choices if extents[choice] % part == 0]
        cuts.append(rng.choice([*fitting, *fitting, None]))
        if cuts[-1] is not None:
            extents[cuts[-1]] //= part
    return cuts


def _extent(variable, inputs, outputs):
    """The extent of an index variable of a row, given the shapes of its node."""
    extent = variable["extent"]
    if isinstance(extent, int):
        return extent
    kind, slot, dim = extent
    return (inputs if kind == "input" else outputs)[slot][dim]


def _operator_cuts(row, inputs, outputs, parts, rng):
    variables = row["vars"]
    extents = [_extent(variable, inputs, outputs) for variable in variables]
    cuts = _random_cuts(extents, row["splittable"], parts, rng)
    return [None if cut is None else variables[cut]["name"] for cut in cuts]


def _random_plan(graph, table, parts, rng):
    """A plan that cuts every tensor and operator at random; its costs are not filled in."""
    tensors, operators = [], []
    for number, node in enumerate(graph.nodes):
        outputs = [shape for shape, _ in node.outputs]
        for output, shape in enumerate(outputs):
            cuts = _random_cuts(shape, range(len(shape)), parts, rng)
            cuts = [-1 if cut is None else cut for cut in cuts]
            tensors.append({"node": node.name, "output": output, "cuts": cuts})
        if not node.op:
            continue
        inputs = [shape for shape, _ in node.inputs]
        row = table["nodes"][number]
        cuts = [None] * len(parts)
        if row >= 0:
            cuts = _operator_cuts(table["rows"][row], inputs, outputs, parts, rng)
        operators.append({"node": node.name, "cuts": cuts, "bytes": 0})
    return json.dumps(
        {
            "format": "tofu-plan",
            "version": 1,
            "workers": math.prod(parts),
            "graph_hash": graph.hash,
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
@pytest.mark.parametrize("described", [False, True], ids=["undescribed", "described"])
def test_random_plans_give_the_losses_and_gradients_of_mxnet(described, workers, seed):
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
    table = json.loads(table_document(graph)[0])
    if not described:
        table["nodes"] = [-1] * len(table["nodes"])
    plan = _random_plan(graph, table, PARTS[workers], random.Random(seed))
    strategies = _core.StrategyTable(json.dumps(table), graph)
    step = _core.schedule(_core.partition(_core.Plan(plan, strategies)))

    contexts = [mx.cpu(w) for w in range(workers)]
    divided = variables_of(step)
    tiles = {
        f"{name}@{w}": tile
        for name, array in parameters.items()
        for w, tile in enumerate(scatter(array, divided[name].layout, contexts))
    }
    program = Program(step, contexts, tiles)
    (loss,) = program.forward(inputs, is_train=True, ctx=mx.cpu())
    gradients = program.backward([mx.nd.ones_like(loss)])

    expected_loss, expected_gradients = _expected(symbol, inputs, parameters)
    np.testing.assert_allclose(loss.asnumpy(), expected_loss, rtol=1e-12)
    assert gradients.keys() == expected_gradients.keys()
    for name, expected in expected_gradients.items():
        found = gather(gradients[name], divided[name].layout, mx.cpu()).asnumpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)
