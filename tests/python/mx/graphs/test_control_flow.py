"""Control flow in training graphs: loops are unrolled; other control flow is one operator."""

import json

import mxnet as mx
import pytest

from tofu.analysis.strategy_table import strategy_table
from tofu.errors import GraphError
from tofu.mx.graphs.training_graph import training_graph

sym = mx.sym
X, W, S = sym.var("x"), sym.var("w"), sym.var("s")
SHAPES = {"x": (4, 3), "w": (3, 3), "s": (3,)}


def built(symbol, gradients=("w",)):
    names = set(symbol.list_inputs())
    described = {name: (shape, "float32") for name, shape in SHAPES.items() if name in names}
    return training_graph(
        symbol,
        inputs={name: each for name, each in described.items() if name not in gradients},
        parameters={name: described[name] for name in gradients},
        aux={},
        gradients=list(gradients),
        train=True,
    )


def nodes_of(graph):
    return json.loads(graph.to_json())["nodes"]


def loop(body=None, data=X):
    outputs, states = sym.contrib.foreach(
        body or (lambda row, states: (row * states[0], [sym.dot(states[0], W) + row])), data, [S]
    )
    return sym.Group([outputs, *states])


def test_a_loop_has_one_copy_of_its_body_per_slice():
    nodes = nodes_of(built(loop()))
    assert not any("subgraphs" in node or node["op"] == "_foreach" for node in nodes)
    products = [node["name"] for node in nodes if node["op"] == "dot"]
    copies = [name for name in products if "backward" not in name]
    assert [name.partition("::")[2] for name in copies] == [f"step{step}" for step in range(4)]


def test_a_loop_in_a_loop_is_unrolled_too():
    def row(part, states):
        inner, _ = sym.contrib.foreach(
            lambda number, sums: (number * sums[0], [number + sums[0]]),
            sym.dot(part, W),
            [sym.slice_axis(states[0], axis=0, begin=0, end=1)],
        )
        return inner, [states[0] * 2]

    nodes = nodes_of(built(loop(row)))
    assert not any("subgraphs" in node for node in nodes)
    products = [n for n in nodes if n["op"] == "elemwise_mul" and "backward" not in n["name"]]
    assert len(products) == 4 * 3


def test_slices_of_unequal_number_are_refused():
    def body(rows, states):
        return rows[0] + rows[1], [sym.dot(states[0], W)]

    symbol = sym.contrib.foreach(body, [X, sym.concat(X, X, dim=0)], [S])[0]
    with pytest.raises(GraphError, match="its inputs have 4 and 8 slices, expected equally many"):
        built(symbol, ())


def test_running_statistics_in_a_loop_are_refused():
    def body(row, states):
        return sym.BatchNorm(sym.expand_dims(row, 0), name="norm"), [sym.dot(states[0], W)]

    names = ("norm_gamma", "norm_beta", "norm_moving_mean", "norm_moving_var")
    with pytest.raises(
        GraphError, match=r"'_foreach\d+' \(_foreach\): a layer inside of it keeps running stat"
    ):
        training_graph(
            loop(body),
            inputs={name: (SHAPES[name], "float32") for name in ("x", "s")},
            parameters={"w": ((3, 3), "float32"), **dict.fromkeys(names, ((3,), "float32"))},
            aux={},
            gradients=["w"],
            train=True,
        )


def chosen(then=lambda: sym.dot(X, W), otherwise=lambda: X * 2):
    return sym.contrib.cond(sym.sum(X) > 0, then, otherwise)


def test_what_depends_on_values_is_whole_and_the_rest_is_not():
    graph = built(sym.dot(chosen(), W))
    _, undescribed = strategy_table(graph)
    reason = "which operators run, and how often, depends on values"
    assert undescribed == {"_cond": reason, "_backward_cond": reason}


def test_a_counter_may_begin_with_zeros():
    def step(count, state):
        return state, [count + 1, sym.dot(state, W)]

    counter = sym.zeros((1,))
    _, (_, last) = sym.contrib.while_loop(lambda n, _: n < 2, step, [counter, X], max_iterations=2)
    assert any(node["name"].endswith("_unread0") for node in nodes_of(built(last)))


def recurrent():
    """An RNN with dropout between its layers, over one sample of four steps."""
    shapes = {"parameters": (48,), "state": (2, 1, 3)}
    zeros = {name: sym.zeros(shape) for name, shape in shapes.items()}
    data = sym.expand_dims(X, 1)
    out = sym.RNN(data, **zeros, mode="rnn_tanh", state_size=3, num_layers=2, p=0.5)
    return sym.reshape(out, shape=(4, 3))


@pytest.mark.parametrize(
    ("branch", "message"),
    [
        (lambda: chosen(lambda: sym.Dropout(X)), "Dropout inside of it may draw random numbers"),
        (lambda: chosen(recurrent), "RNN inside of it may draw random numbers"),
        (
            lambda: chosen(lambda: sym.LeakyReLU(X, act_type="rrelu")[0]),
            "LeakyReLU inside of it may",
        ),
        (
            lambda: chosen(lambda: X + sym.random.normal(shape=(4, 3))),
            "_random_normal inside of it may draw",
        ),
        (lambda: chosen(lambda: sym.ones((4, 3))), "one of its functions reads no tensor"),
    ],
)
def test_what_a_branch_cannot_hold(branch, message):
    with pytest.raises(GraphError, match=rf"^node '_cond\d+' \(_cond\): .*{message}"):
        built(sym.dot(branch(), W))
