"""Gradients that need their forward operator's state, by running that operator again."""

import json
import types

import mxnet as mx
import numpy as np
import pytest

from tofu.analysis.strategy_table import table_document
from tofu.errors import GraphError
from tofu.mx.graphs.replay import _Replay

from ..models import random
from ..whole import graph_of, own_gradients, train
from .test_lower import pairs

sym = mx.sym
X, Y = sym.var("x"), sym.var("y")
BOXES = mx.nd.array([[0, 0, 0, 3, 3], [1, 1, 0, 4, 5], [0, 2, 2, 5, 5]])
OPERATORS = {  # an operator between two others, and its other inputs, which are not trained
    "ROIPooling": (
        lambda x: sym.ROIPooling(x, Y, pooled_size=(2, 2), spatial_scale=1.0),
        {"y": BOXES},
    ),
    "SequenceLast": (lambda x: sym.SequenceLast(x, Y, use_sequence_length=True), {"y": [1, 3]}),
    "SequenceLast without lengths": (lambda x: sym.SequenceLast(x), {}),
    "Pad by reflection": (
        lambda x: sym.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 2, 0)),
        {},
    ),
    "Crop": (lambda x: sym.Crop(x, h_w=(3, 4), offset=(1, 2)), {}),
    "BilinearSampler": (lambda x: sym.BilinearSampler(x, Y), {"y": (2, 2, 4, 4)}),
    "MakeLoss of valid elements": (
        lambda x: sym.MakeLoss(sym.square(x), normalization="valid", valid_thresh=0.2),
        {},
    ),
    "SVMOutput": (
        lambda x: sym.SVMOutput(sym.reshape(x, shape=(2, -1)), Y),
        {"y": [3, 1]},
    ),
}


def case(name):
    make, more = OPERATORS[name]
    # Products on both sides put the operator inside the graph.
    symbol = make(X * 2)
    if name not in ("MakeLoss of valid elements", "SVMOutput"):
        symbol = sym.square(symbol)
    inputs = {
        key: random(value, seed=3) if isinstance(value, tuple) else mx.nd.array(value)
        for key, value in more.items()
    }
    return symbol, inputs, {"x": random((2, 3, 6, 6)) if name[:3] != "Seq" else random((4, 2, 3))}


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name):
    symbol, inputs, parameters = case(name)
    (shape,) = symbol.infer_shape(x=parameters["x"].shape, **shapes(inputs))[1]
    heads = [random(shape, seed=1)]
    own = own_gradients(symbol, inputs, parameters, head_gradients=heads)
    assert own[1]["x"].any()
    for found, expected, what in pairs(
        train(symbol, inputs, parameters, head_gradients=heads), own
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=what)


def shapes(arrays):
    return {name: array.shape for name, array in arrays.items()}


def test_the_operator_is_computed_whole_and_named():
    graph = graph_of(*case("ROIPooling"))
    table, undescribed = table_document(graph)
    nodes = json.loads(graph.to_json())["nodes"]
    rows = zip(nodes, json.loads(table)["nodes"])
    assert [n["op"] for n, row in rows if row < 0 and n["op"] != "null"] == ["Custom"]
    assert list(undescribed) == ["_backward_ROIPooling"]
    assert "keeps to itself" in undescribed["_backward_ROIPooling"]


def test_what_draws_random_numbers_or_has_two_outputs_is_not_run_again():
    states = {name: random((1, 2, 3), seed=5) for name in ("h", "c")}
    options = {"mode": "lstm", "state_size": 3, "num_layers": 1}
    clipped = {"lstm_state_clip_min": -1.0, "lstm_state_clip_max": 1.0}
    symbol = sym.RNN(X, *map(sym.var, "whc"), **options, **clipped)
    parameters = {"x": random((4, 2, 3)), "w": random((4 * 3 * (3 + 3 + 2),))}
    with pytest.raises(GraphError, match=r"read state .* cannot be partitioned: .*_backward_RNN"):
        graph_of(symbol, states, parameters)


def test_the_operator_runs_under_the_shapes_that_it_was_bound_under():
    """MXNet runs it on its own threads, where an empty shape would be an unknown one."""
    seen = []

    def run(**_):
        seen.append(mx.util.is_np_shape())
        return (None,)

    fake = types.SimpleNamespace(arg_dict={}, grad_dict={}, forward=run, backward=lambda _: None)
    for scalars in (False, True):
        with mx.util.np_shape(scalars):
            replay = _Replay(None, has_head=True)
        replay._executor = fake
        replay.forward(True, [], [mx.nd.ones((1,))], [], [])
    assert seen == [False, True]
