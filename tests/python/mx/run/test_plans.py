"""Real plans of real graphs, partitioned over two to four workers, equal the whole graphs."""

import mxnet as mx
import numpy as np
import pytest

from tofu.analysis.strategy_table import strategy_table
from tofu.config import FETCHES
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.run.program import Program
from tofu.mx.run.transfer import gather, scatter
from tofu.planner.compile_plan import compile_graph
from tofu.plans.fetch import Fetch

from ..models import convolutions, lstm, mlp, random, zoo
from ..whole import graph_of, own_gradients

CASES = {
    "mlp": (lambda: mlp("float64"), 1e-12),
    "lstm": (lstm, 1e-5),
    "convolutions": (lambda: convolutions("float64"), 1e-12),
    "resnet18": (lambda: zoo("resnet18_v1", (4, 3, 16, 16), "float64", thumbnail=True), 1e-9),
}


def compiled_program(case, workers, fetch, *, joint=False):
    symbol, inputs, parameters, aux = case
    graph = graph_of(symbol, inputs, parameters, aux)
    compiled = compile_graph(
        strategy_table(graph)[0],
        workers=workers,
        fetch=Fetch(fetch, crossing="plain_tiles"),
        joint=joint,
    )
    contexts = [mx.cpu(worker) for worker in range(workers)]
    tiles = {}
    for name, variable in compiled.variables.items():
        if name in parameters or name in aux:
            parts = scatter({**parameters, **aux}[name], variable.layout, contexts)
            tiles.update(zip(variable.tiles, parts))
    return Program(compiled.step, contexts, tiles), tiles, compiled.variables


@pytest.mark.parametrize(
    ("name", "workers", "fetch"),
    [
        (name, workers, fetch)
        for name in CASES
        for workers in (2, 3, 4)
        for fetch in FETCHES
        if (name, fetch) != ("resnet18", "plain") or workers == 4  # the others take long
    ],
)
def test_a_partitioned_step_equals_the_whole_one(name, workers, fetch):
    make, tolerance = CASES[name]
    case = symbol, inputs, parameters, aux = make()
    program, tiles, records = compiled_program(case, workers, fetch)
    outputs = program.forward(inputs, is_train=True, ctx=mx.cpu())
    heads = [random(output.shape, output.dtype) for output in outputs]
    gradients = program.backward(heads)
    own = own_gradients(symbol, inputs, parameters, aux, head_gradients=heads)
    assert len(outputs) == len(own[0])
    for mine, theirs in zip(outputs, own[0]):
        np.testing.assert_allclose(mine.asnumpy(), theirs, rtol=tolerance, atol=tolerance)
    states = {key: [tiles[tile] for tile in records[key].tiles] for key in aux}
    for found, expected in ((gradients, own[1]), (states, own[2])):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            mine = gather(found[key], program.layouts[key], mx.cpu()).asnumpy()
            scale = np.abs(value).max() + 1e-6
            np.testing.assert_allclose(mine / scale, value / scale, atol=tolerance, err_msg=key)


def test_halves_of_one_executor_compute_what_two_executors_do():
    """This holds even after a backward pass has overwritten inputs of a second one."""
    case = _, inputs, _, _ = CASES["lstm"][0]()
    found = []
    for joint in (False, True):
        mx.random.seed(3)
        program, _, _ = compiled_program(case, 2, "multifetch", joint=joint)
        kept = []
        for passes in (1, 2):
            outputs = program.forward(inputs, is_train=True, ctx=mx.cpu())
            heads = [mx.nd.ones_like(output) * passes for output in outputs]
            for _ in range(passes):
                gradients = program.backward(heads)
                kept += [tile.asnumpy() for key in sorted(gradients) for tile in gradients[key]]
            kept += [output.asnumpy() for output in outputs]
        found.append(kept)
    assert len(found[0]) == len(found[1]) > 3
    for apart, together in zip(*found):
        np.testing.assert_array_equal(apart, together)


HALF = 2  # MXNet's flag of float16


def test_only_draws_that_need_inputs_keep_two_executors():
    data = mx.sym.var("data")
    symbols = {
        "plain": data * 2,
        "dropout": mx.sym.Dropout(data),
        "noise": data * mx.sym.random.uniform(shape=(4, 4)),
        "sampled": data * mx.sym.sample_exponential(data, shape=()),
    }
    steps = {}
    for name, symbol in symbols.items():
        graph = training_graph(
            symbol,
            inputs={"data": ((4, 4), "float32")},
            parameters={},
            aux={},
            gradients=["data"],
            train=True,
        )
        compiled = compile_graph(strategy_table(graph)[0], workers=2, joint=True)
        steps[name] = compiled.step
    assert steps["plain"].is_joint
    assert steps["plain"].forward_nodes < steps["plain"].nodes
    for name in ("dropout", "noise"):
        draws, both = steps[name].graphs
        assert steps[name].is_joint
        assert steps[name].saved
        assert not {"Dropout", "_random_uniform"} & {node.op for node in both.nodes}
        assert {"Dropout", "_random_uniform"} & {node.op for node in draws.nodes}
        assert all(node.op for node in draws.nodes), "no variable is drawn from"
    waiting = {
        node.outputs[0][1]
        for node in steps["dropout"].graphs[1].nodes
        if not node.op and "/drawn" in node.name
    }
    assert waiting == {HALF}, "how masks wait for the backward pass"
    assert not steps["sampled"].is_joint
    assert steps["sampled"].saved


def test_every_operator_of_a_lowered_resnet_is_described():
    case = zoo("resnet18_v1", (2, 3, 16, 16), thumbnail=True)
    graph = graph_of(*case, optimizer="sgd_mom")
    assert strategy_table(graph)[1] == {}
