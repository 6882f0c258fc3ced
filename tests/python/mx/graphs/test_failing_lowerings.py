"""A lowering that fails affects only its operator, which every worker then computes whole."""

import dataclasses
import json

import mxnet as mx
import pytest

from tofu.analysis.strategy_table import WHOLE, table_document
from tofu.errors import GraphError
from tofu.mx.graphs.lower import AFTER, BEFORE, STAGES

from ..models import random
from ..whole import graph_of

sym = mx.sym


@pytest.fixture
def failing(monkeypatch):
    """Replace the lowering of an operator with a function that fails."""

    def replace(registry, op, **changes):
        changed = dataclasses.replace(registry._lowerings[op], **changes)
        monkeypatch.setitem(registry._lowerings, op, changed)

    return replace


def boom(node, build):
    build.op("negative", node.inputs[0])
    node.attrs["changed"] = "1"
    node.inputs.clear()
    build.shared[node] = []
    build.aux_updates["x"] = None
    raise IndexError("tuple index out of range")


def graph_of_parameters(symbol, parameters, aux=None, workers=2):
    return graph_of(symbol, {}, parameters, aux, workers=workers)


def rows_of(graph):
    """The operators of a graph, with whether the strategy table has a row for them."""
    table, undescribed = table_document(graph)
    nodes = json.loads(graph.to_json())["nodes"]
    pairs = zip(nodes, json.loads(table)["nodes"])
    return {n["op"]: row >= 0 for n, row in pairs if n["op"] != "null"}, undescribed


def test_an_operator_whose_lowering_fails_is_whole_and_so_is_its_gradient(failing):
    failing(BEFORE, "mean", function=boom)
    graph = graph_of_parameters(sym.mean(sym.square(sym.var("x")), axis=1), {"x": random((4, 6))})
    rows, undescribed = rows_of(graph)
    assert {op for op, has_row in rows.items() if not has_row} == {"mean", "_backward_mean"}
    assert {"square", "_backward_square"} < set(rows)
    assert undescribed["mean"] == "its rewrite fails: IndexError: tuple index out of range"
    (node,) = [n for n in json.loads(graph.to_json())["nodes"] if n["op"] == "mean"]
    assert "changed" not in node["attrs"] and len(node["inputs"]) == 1


def test_where_a_lowering_only_helps_the_operator_stays_split(failing):
    failing(STAGES, "softmax", function=boom)
    rows, undescribed = rows_of(
        graph_of_parameters(sym.softmax(sym.var("x")), {"x": random((3, 8))})
    )
    assert rows["softmax"] and rows["_backward_softmax"] and not undescribed


def test_so_it_does_where_it_is_asked_whether_it_would_help(failing):
    def unsure(node, workers):
        raise ZeroDivisionError

    failing(STAGES, "softmax", where=unsure)
    rows, undescribed = rows_of(
        graph_of_parameters(sym.softmax(sym.var("x")), {"x": random((3, 8))})
    )
    assert rows["softmax"] and not undescribed


def test_a_gradient_whose_lowering_fails_is_whole(failing):
    failing(AFTER, "_backward_Dropout", function=boom)
    graph = "node '.*' .*_backward_Dropout.*: its rewrite fails: IndexError"
    # The gradient reads its forward operator's state, which no worker has.
    with pytest.raises(GraphError, match="read state|" + graph):
        graph_of_parameters(sym.Dropout(sym.var("x"), p=0.5), {"x": random((4, 6))})


NORM = [f"n_{name}" for name in ("gamma", "beta", "moving_mean", "moving_var")]


@pytest.mark.parametrize("op", ["BatchNorm", "_backward_BatchNorm"])
def test_what_cannot_do_without_its_lowering_is_named(failing, op):
    failing(AFTER, op, function=boom)
    symbol = sym.BatchNorm(sym.var("x"), name="n", fix_gamma=False)
    vectors = {name: random((3,)) for name in NORM}
    parameters = {"x": random((4, 3)), **{name: vectors[name] for name in NORM[:2]}}
    aux = {name: vectors[name] for name in NORM[2:]}
    with pytest.raises(GraphError, match=f"node 'n.* \\({op}\\): its rewrite fails: IndexError"):
        graph_of_parameters(symbol, parameters, aux)


def test_scripts_cannot_set_the_whole_attribute():
    """A script's attribute of that name is dropped, like all of its hidden attributes."""
    symbol = sym.relu(sym.var("x"), attr={WHOLE: "mine"})
    rows, _ = rows_of(graph_of_parameters(symbol, {"x": random((4, 6))}))
    assert rows["relu"]
