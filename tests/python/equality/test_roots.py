"""Workers that exchange small regions through one of them give the results of a serial run."""

import functools

import mxnet as mx
import numpy as np
import pytest

import tofu
from tofu.gluon.session.session import looking
from tofu.mx.run import fetch_check

from .models import CASES, batch, train

STEPS = 3
TOLERANCES = {"float32": 1e-5, "float64": 1e-9}


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


def check(model, dtype, workers, **options):
    """Train over workers, compare with a serial run, and return the first graph."""
    expected, expected_weights = serial(model, dtype)
    made = []
    tofu.enable(workers=workers, device="cpu", **options)
    try:
        with looking(compiled=made.append):
            losses, weights = train(CASES[model], dtype, STEPS)
    finally:
        tofu.disable()
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=10 * tolerance, atol=tolerance, err_msg=name
        )
    return made[0]


def root_nodes(compiled):
    return [
        node.name for graph in compiled.step.graphs for node in graph.nodes if "/root" in node.name
    ]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_statistics_of_batch_norms(workers, dtype):
    compiled = check("residual_cnn", dtype, workers, fetch="plain")
    assert bool(root_nodes(compiled)) == (workers > 2)
    total = compiled.searched.total_bytes
    assert compiled.fetched_bytes - compiled.relayed_bytes == total


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_sums_that_all_workers_need(dtype):
    """Without roots, such sums would be reduced in pieces and gathered."""
    assert root_nodes(check("mlp", dtype, 4, fetch="plain", search="data-parallel"))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("workers", [2, 4])
def test_predictions_with_batch_norms(workers, dtype):
    """MXNet refuses to bind its operator after a copy; such blocks predicted serially."""

    def predict():
        mx.random.seed(7)
        net = CASES["residual_cnn"].net()
        net.initialize(mx.init.Xavier())
        net.cast(dtype)
        net.hybridize()
        return net(batch(CASES["residual_cnn"], dtype, 0)[0]).asnumpy()

    expected, made = predict(), []
    tofu.enable(workers=workers, device="cpu", fetch="plain")
    try:
        with looking(compiled=made.append):
            found = predict()
    finally:
        tofu.disable()
    assert not made[-1].has_backward
    assert not any(graph.nodes_of({"BatchNorm"}) for graph in made[-1].step.graphs)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.fixture
def untested():
    """Forget the kinds of fetches that earlier tests found to work, and those of this one."""
    fetch_check._tested.cache_clear()
    yield
    fetch_check._tested.cache_clear()


@pytest.mark.usefixtures("untested")
@pytest.mark.filterwarnings("ignore:tofu. MultiFetch does not work here")
@pytest.mark.parametrize("missing", ["places_nodes", "views_arrays"])
def test_stock_operators_copy_where_tiles_cannot_be_read(missing, monkeypatch):
    monkeypatch.setattr(fetch_check, missing, lambda: False)
    compiled = check("residual_cnn", "float32", 4, fetch="multifetch")
    assert compiled.fetch == "plain" and root_nodes(compiled)
