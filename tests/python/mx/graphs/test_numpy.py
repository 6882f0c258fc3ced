"""Training graphs of NumPy operators, as in blocks under ``npx.set_np()``."""

import mxnet as mx
import numpy as np
import pytest

from tofu.analysis.strategy_table import strategy_table
from tofu.errors import GraphError
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.run.program import Program
from tofu.mx.run.transfer import gather
from tofu.planner.compile_plan import compile_graph
from tofu.plans.fetch import Fetch

from ..models import random
from ..whole import own_gradients, shapes_of, train
from .test_lower import pairs

F, npx = mx.sym.np, mx.sym.npx
X, W = (mx.sym.var(name).as_np_ndarray() for name in "xw")
EXPRESSIONS = {
    "a scalar loss": F.mean(F.square(F.dot(X, W))),
    "means and sums": F.sum(F.mean(X, axis=0) * F.mean(F.dot(X, W), axis=(0, 1)), axis=0),
    "a mean with its dimension": X - F.mean(X, axis=-1, keepdims=True),
    "arithmetic": (X + 1) * 2 - X / 3 + 2 ** (X * 0.1) - F.maximum(X, 0.1) + F.dot(X, W).sum(),
    "functions": F.tanh(X) + F.exp(-X) + F.sqrt(F.abs(X) + 1) + F.log(X * X + 1),
    "shapes": F.concatenate([F.reshape(X, (12, 4)), F.reshape(X, (12, -1)) * 2], axis=1),
    "stack and split": F.stack(F.split(X, 2, axis=1), axis=0).sum(axis=2),
    "a softmax": F.sum(npx.softmax(F.dot(X, W), axis=-1) ** 2, axis=-1),
    "a log softmax": -npx.pick(npx.log_softmax(X, axis=-1), F.argmax(W, axis=0), axis=-1),
    "dense": npx.relu(npx.fully_connected(X, F.transpose(W), num_hidden=6, no_bias=True)),
    "einsum": F.einsum("ij,jk->ik", X, W),
    "einsum to a scalar": F.einsum("ij,ji->", X, W),
    "einsum of sums": F.einsum("ij,kl->kj", X, W),
    "einsum of one": F.einsum("ij->ji", X) * W,
    "einsum of three": F.einsum("ij,jk,kl->il", X, W, X),
    "einsum with dots": F.einsum("...j,jk->...k", F.reshape(X, (3, 2, 8)), W),
    "einsum that stretches": F.einsum(
        "...j,...jk->...k", F.reshape(X, (3, 2, 8)), F.expand_dims(W, 0)
    ),
    "einsum without a result": F.einsum("ij,jk", X, W),
    "norms": F.linalg.norm(X, axis=1) + F.linalg.norm(X, ord=1, axis=1),
    "a norm of all": F.linalg.norm(X) * F.linalg.norm(W, ord="fro", axis=(0, 1), keepdims=True),
    "a norm of other powers": F.linalg.norm(X, ord=3, axis=0, keepdims=True),
    "a norm of singular values": F.linalg.norm(F.reshape(X, (6, 2, 4)), ord="nuc", axis=(1, 2)),
    "rows": X[2:] * X[:4] + X[1:5] - X[-4:],
    "moveaxis": F.moveaxis(X, 0, 1) * F.moveaxis(X, (1,), (0,)),
    "where and broadcasting": F.where(X > 0, X, X * 0.2) + F.expand_dims(F.sum(X, axis=1), 1),
    "clip": F.clip(X, -0.5, 0.5) * F.swapaxes(F.dot(X, W), 0, 1).sum(),
    "variance": F.var(X, axis=1) + F.std(X, axis=1),
    "tensordot": F.tensordot(X, W, axes=1),
}
# Operators that every worker computes whole.
WHOLE = {
    "a norm of singular values": {"_npi_norm", "_backward_npi_norm"},
    "einsum that stretches": {"_backward_npi_einsum"},
}
SHAPES = {"x": (6, 8), "w": (8, 6)}


@pytest.fixture(autouse=True)
def numpy_shapes():
    with mx.util.np_shape(True):
        yield


def case(name, dtype):
    symbol = EXPRESSIONS[name]
    read = symbol.list_arguments()
    parameters = {n: random(SHAPES[n], dtype, seed=ord(n)) for n in read}
    (shape,) = symbol.infer_shape(**{n: SHAPES[n] for n in read})[1]
    # nd.array gives a scalar one dimension.
    head = mx.nd.ones(shape, dtype=dtype) * 0.5
    return symbol, parameters, [head]


def partitioned(symbol, parameters, heads, workers):
    graph = training_graph(
        symbol,
        inputs=shapes_of(parameters),
        parameters={},
        aux={},
        gradients=list(parameters),
        train=True,
        workers=workers,
    )
    table, undescribed = strategy_table(graph)
    compiled = compile_graph(
        table, workers=workers, fetch=Fetch("multifetch", crossing="plain_tiles")
    )
    contexts = [mx.cpu(worker) for worker in range(workers)]
    program = Program(compiled.step, contexts, {})
    outputs = program.forward(parameters, is_train=True, ctx=mx.cpu())
    gradients = {
        name: gather(tiles, program.layouts[name], mx.cpu())
        for name, tiles in program.backward(heads).items()
    }
    return outputs, gradients, undescribed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_outputs_and_gradients(name, dtype):
    symbol, parameters, heads = case(name, dtype)
    own = own_gradients(symbol, {}, parameters, head_gradients=heads)
    tolerance = {"float32": 2e-5, "float64": 1e-10}[dtype]
    for found, expected, what in pairs(train(symbol, {}, parameters, head_gradients=heads), own):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_over_workers(name, workers):
    symbol, parameters, heads = case(name, "float64")
    own, own_gradient, _ = own_gradients(symbol, {}, parameters, head_gradients=heads)
    outputs, gradients, undescribed = partitioned(symbol, parameters, heads, workers)
    assert set(undescribed) == WHOLE.get(name, set())
    assert len(outputs) == len(own)
    for found, expected in zip(outputs, own):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-10, atol=1e-12)
    assert gradients.keys() == own_gradient.keys()
    for each, found in gradients.items():
        expected = own_gradient[each]
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-10, atol=1e-12, err_msg=each)


def test_workers_share_a_mean_over_the_batch():
    graph = training_graph(
        EXPRESSIONS["a scalar loss"],
        inputs={"x": ((6, 8), "float32"), "w": ((8, 6), "float32")},
        parameters={},
        aux={},
        gradients=["w"],
        train=True,
    )
    operators = [node.op for node in graph.nodes]
    assert "_npi_mean" not in operators and "_np_sum" in operators


def test_the_gradient_of_a_diagonal_stays():
    """No einsum computes it, and MXNet's own einsum writes only the diagonal."""
    graph = training_graph(
        F.einsum("ii->i", X),
        inputs={"x": ((6, 6), "float32")},
        parameters={},
        aux={},
        gradients=["x"],
        train=True,
    )
    assert [node.op for node in graph.nodes].count("_npi_einsum") == 1


def test_a_shape_that_does_not_follow_is_named():
    symbol = F.reshape(X, (-1,)) + mx.sym.var("y").as_np_ndarray()
    with pytest.raises(GraphError, match=r"does not follow|Incompatible|refused"):
        training_graph(
            symbol,
            inputs={"x": ((2, 3), "float32"), "y": ((-1,), "float32")},
            parameters={},
            aux={},
            gradients=[],
            train=False,
        )
