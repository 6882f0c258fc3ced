"""Training graphs, and the symbols that cannot become one."""

import json
from unittest import mock

import mxnet as mx
import numpy as np
import pytest

from tofu import _core
from tofu.analysis.strategy_table import table_document
from tofu.dtypes import dtype_name
from tofu.errors import GraphError
from tofu.mx.devices import GraphUse
from tofu.mx.graphs import training_graph as module
from tofu.mx.graphs.training_graph import training_graph, training_graphs
from tofu.mx.nnvm import Graph

from ..models import mlp, random, zoo
from ..whole import graph_of, train


def build(symbol, inputs, parameters, aux=None, **options):
    return json.loads(graph_of(symbol, inputs, parameters, aux, **options).to_json())


def roles(graph):
    return {
        node["name"]: node["attrs"]["__tofu_role__"]
        for node in graph["nodes"]
        if node["op"] == "null"
    }


def heads(graph):
    return graph["attrs"]["tofu_heads"][1]


def dtypes(graph):
    rows, flags = graph["node_row_ptr"], graph["attrs"]["dtype"][1]
    return {node["name"]: flags[row] for node, row in zip(graph["nodes"], rows)}


def head_shapes(graph):
    rows, shapes = graph["node_row_ptr"], graph["attrs"]["shape"][1]
    return {
        role: tuple(shapes[rows[node] + index])
        for role, (node, index, _) in zip(heads(graph), graph["heads"])
    }


def test_every_entry_has_a_shape_and_a_dtype():
    graph = build(*zoo("resnet18_v1", (2, 3, 16, 16), thumbnail=True))
    attrs, rows = graph["attrs"], graph["node_row_ptr"]
    assert len(attrs["shape"][1]) == len(attrs["dtype"][1]) == rows[-1]
    assert all(shape and min(shape) > 0 for shape in attrs["shape"][1])
    assert set(attrs["dtype"][1]) == {0}
    assert len({node["name"] for node in graph["nodes"]}) == len(graph["nodes"])


def test_roles_and_heads():
    symbol, inputs, parameters, aux = zoo("resnet18_v1", (2, 3, 16, 16), thumbnail=True)
    graph = build(symbol, inputs, parameters, aux)
    found = roles(graph)
    assert found["data"] == "data"
    assert found["tofu_head_gradient0"] == "head_grad:0"
    assert {found[name] for name in parameters} == {"parameter"}
    assert {found[name] for name in aux} == {"aux"}
    used = [name for name in aux if f"aux:{name}" in heads(graph)]
    assert used == list(aux)
    shapes = head_shapes(graph)
    for name, array in parameters.items():
        assert shapes[f"gradient:{name}"] == array.shape


def test_backward_nodes_name_their_forward_node_first():
    graph = build(*mlp())
    nodes = graph["nodes"]
    for node in nodes:
        if node["op"] == "_backward_FullyConnected":
            assert nodes[node["control_deps"][0]]["op"] == "FullyConnected"


def test_dtypes_follow_the_variables():
    graph = build(*mlp("float64"))
    dtypes = {
        node["name"]: graph["attrs"]["dtype"][1][row]
        for node, row in zip(graph["nodes"], graph["node_row_ptr"])
    }
    assert (dtypes["fc1_weight"], dtypes["label"], dtypes["tofu_head_gradient0"]) == (1, 0, 1)


def test_without_gradients_there_is_only_the_forward():
    symbol, inputs, parameters, _ = mlp()
    graph = build(symbol, inputs, parameters, gradients=[], train=False)
    assert heads(graph) == ["output"]
    assert not [node for node in graph["nodes"] if "backward" in node["op"]]


def test_gradients_of_inputs():
    symbol, inputs, parameters, _ = mlp()
    graph = build(symbol, inputs, parameters, gradients=["data", "fc1_weight"])
    assert heads(graph) == ["output", "gradient:data", "gradient:fc1_weight"]


def test_a_parameter_without_gradient_gets_zeros():
    x, unused = mx.sym.var("x"), mx.sym.var("unused")
    symbol = mx.sym.Group([x * 2, mx.sym.BlockGrad(unused)])
    graph = build(symbol, {}, {"x": random((2, 3)), "unused": random((4,))})
    assert head_shapes(graph)["gradient:unused"] == (4,)
    head = graph["heads"][heads(graph).index("gradient:unused")][0]
    assert graph["nodes"][head]["op"] == "_zeros"


def test_a_variable_that_a_lowering_drops_stays_in_the_graph():
    symbol = mx.sym.BatchNorm(mx.sym.var("x"), name="bn")  # fix_gamma
    parameters = {"x": random((2, 3, 4)), "bn_gamma": random((3,)), "bn_beta": random((3,))}
    aux = {"bn_moving_mean": random((3,)), "bn_moving_var": random((3,))}
    assert roles(build(symbol, {}, parameters, aux))["bn_gamma"] == "parameter"


def test_extents_that_follow_from_readers_are_written_out():
    symbol = mx.sym.zeros((0, 3)) + mx.sym.var("x")
    graph = build(symbol, {}, {"x": random((2, 3))})
    (zeros,) = [node for node in graph["nodes"] if node["op"] == "_zeros"]
    assert zeros["attrs"]["shape"] == "(2, 3)"


@pytest.mark.parametrize(
    ("optimizer", "dtype", "op", "states"),
    [
        ("sgd", "float32", "sgd_update", []),
        ("sgd_mom", "float32", "sgd_mom_update", ["w:mom"]),
        ("adam", "float64", "adam_update", ["w:mean", "w:var"]),
        ("sgd", "float16", "mp_sgd_update", ["w:weight32"]),
        ("sgd_mom", "float16", "mp_sgd_mom_update", ["w:mom", "w:weight32"]),
    ],
)
def test_updates_for_planning(optimizer, dtype, op, states):
    symbol = mx.sym.dot(mx.sym.var("x"), mx.sym.var("w"))
    arrays = {"x": random((2, 3), dtype)}, {"w": random((3, 4), dtype)}
    graph = build(symbol, *arrays, optimizer=optimizer)
    assert heads(graph) == ["output", "gradient:w", "update:w"]
    assert graph["nodes"][graph["heads"][2][0]]["op"] == op
    assert {name for name, role in roles(graph).items() if role == "state:w"} == set(states)
    # Updates of half precision keep single precision.
    kept = "float32" if dtype == "float16" else dtype
    assert {dtype_name(dtypes(graph)[name]) for name in states} <= {kept}


def settings(kind):
    """A small network, and the other arguments of its training graphs."""
    x = mx.sym.var("data")
    if kind == "BatchNorm":
        x = mx.sym.BatchNorm(mx.sym.BatchNorm(x, name="one"), name="two")
    symbol = mx.sym.sum(mx.sym.FullyConnected(x, num_hidden=4, name="dense"), axis=1)
    symbol = mx.sym.Dropout(symbol) if kind == "Dropout" else symbol
    shapes, _, states = symbol.infer_shape(data=(8, 6))
    known = {n: (s, "float32") for n, s in zip(symbol.list_arguments(), shapes)}
    options = {
        "inputs": {"data": known.pop("data")},
        "parameters": known,
        "aux": {n: (s, "float32") for n, s in zip(symbol.list_auxiliary_states(), states)},
        "gradients": list(known),
        "train": True,
        "optimizer": "sgd_mom",
        "workers": 2,
    }
    return symbol, options


def graphs_of(symbol, *, train, workers, **arguments):
    return training_graphs(symbol, use=GraphUse(train, workers), **arguments)


def test_graphs_with_other_whole_norms_share_the_gradient(monkeypatch):
    symbol, options = settings("BatchNorm")
    differentiate = mock.Mock(wraps=module.differentiate)
    monkeypatch.setattr(module, "differentiate", differentiate)
    choices = [(), ["one"], ["one", "two"], None, ()]
    make = graphs_of(symbol, **options)
    found = [make(fused).to_json() for fused in choices]
    differentiate.assert_called_once()
    alone = [training_graph(symbol, fused=fused, **options).to_json() for fused in choices]
    assert found == alone
    assert len(set(found)) == 3  # None differs in predictions only


def test_without_a_norm_there_is_one_graph():
    symbol, options = settings("Dropout")
    make = graphs_of(symbol, **options)
    assert make(()) is make(["absent"])


def test_the_hidden_attributes_of_a_script_do_not_leak():
    weight = mx.sym.var("w", shape=(9, 9), lr_mult=2, init=mx.init.Zero(), dtype="float16")
    with mx.AttrScope(ctx_group="dev1"):
        symbol = mx.sym.dot(mx.sym.var("x"), weight)
    graph = build(symbol, {"x": random((2, 3))}, {"w": random((3, 4))})
    attrs = {key for node in graph["nodes"] for key in node.get("attrs", {})}
    assert {key for key in attrs if key.startswith("__")} == {"__tofu_role__"}


def test_two_variables_of_one_name_are_one():
    symbol = mx.sym.var("x") * mx.sym.var("x")
    graph = build(symbol, {}, {"x": random((2, 3))})
    assert [node["name"] for node in graph["nodes"]].count("x") == 1


def test_errors_say_what_is_missing():
    symbol, inputs, parameters, _ = mlp()
    with pytest.raises(GraphError, match="no shape for variable fc1_bias: every variable"):
        build(symbol, inputs, {k: v for k, v in parameters.items() if k != "fc1_bias"})
    with pytest.raises(GraphError, match="unknown variables: nothing"):
        build(symbol, inputs, parameters, gradients=["nothing"])
    with pytest.raises(GraphError, match="optimizer 'sgb': expected one of sgd, sgd_mom, adam"):
        build(symbol, inputs, parameters, optimizer="sgb")
    with pytest.raises(GraphError, match="inferring shapes and dtypes: MXNet refused"):
        build(symbol, {**inputs, "data": random((6, 13))}, parameters)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": []}', '{"nodes": [{"op": "null"}]}'])
def test_a_foreign_or_truncated_json_is_refused(text):
    with pytest.raises(GraphError, match="symbol JSON: cannot be read"):
        Graph.from_json(text)


def test_a_graph_survives_writing_and_reading():
    symbol = mlp()[0]
    again = Graph.from_symbol(symbol).to_symbol()
    assert again.list_arguments() == symbol.list_arguments()
    assert json.loads(again.tojson())["nodes"] == json.loads(symbol.tojson())["nodes"]


def test_strategy_table_has_a_row_for_every_described_node():
    graph = build(*mlp())
    graph["nodes"][-1]["op"] = "_backward_nobody_described"
    text, undescribed = table_document(_core.Graph(json.dumps(graph)))
    table = json.loads(text)
    assert (table["format"], table["version"]) == ("tofu-strategy-table", 1)
    assert "_backward_nobody_described" in undescribed
    assert "FullyConnected" not in undescribed
    for node, index in zip(graph["nodes"], table["nodes"]):
        assert (index >= 0) == (node["op"] != "null" and node["op"] not in undescribed)
        if index >= 0:
            assert table["rows"][index]["op"] == node["op"]


def test_an_output_that_is_returned_twice_has_two_head_gradients():
    out = mx.sym.tanh(mx.sym.var("x"))
    symbol, parameters = mx.sym.Group([out, out]), {"x": random((2, 3), "float64")}
    head_gradients = [random((2, 3), "float64", seed=k) for k in (1, 2)]
    found, gradients, _ = train(symbol, {}, parameters, head_gradients=head_gradients)
    np.testing.assert_array_equal(found[0], found[1])
    slope = 1 - found[0] ** 2
    expected = slope * (head_gradients[0] + head_gradients[1]).asnumpy()
    np.testing.assert_allclose(gradients["x"], expected, rtol=1e-10)
