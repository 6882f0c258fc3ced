"""A partitioned run gives the results of a serial one: losses, weights, running statistics."""

import functools

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

import tofu

from .models import CASES, batch, train

WORKERS = (2, 3, 4, 6, 8)


@pytest.fixture
def switched_on():
    """Turn tofu on for a number of CPU workers, and off again afterwards."""

    def enable(workers, fetch="multifetch"):
        tofu.enable(workers=workers, device="cpu", fetch=fetch)

    yield enable
    tofu.disable()


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("model", CASES)
def test_losses_in_float32(model, workers, switched_on):
    expected, _ = serial(model, "float32")
    switched_on(workers)
    losses, _ = train(CASES[model], "float32")
    np.testing.assert_allclose(losses[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("model", CASES)
def test_losses_and_weights_in_float64(model, workers, switched_on):
    expected, expected_weights = serial(model, "float64")
    switched_on(workers)
    losses, weights = train(CASES[model], "float64")
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    assert weights.keys() == expected_weights.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=1e-9, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("model", CASES)
def test_fetching_with_mxnets_own_operators(model, switched_on):
    expected, _ = serial(model, "float32")
    switched_on(4, "plain")
    losses, _ = train(CASES[model], "float32", steps=5)
    np.testing.assert_allclose(losses, expected[:5], rtol=1e-5)


@pytest.mark.parametrize("model", CASES)
def test_equal_settings_give_bitwise_equal_runs(model, switched_on):
    switched_on(4)
    losses, weights = train(CASES[model], "float32", steps=5)
    again, weights_again = train(CASES[model], "float32", steps=5)
    assert losses.tobytes() == again.tobytes()
    for name, value in weights.items():
        assert value.tobytes() == weights_again[name].tobytes(), name


def test_gradients_read_while_recording_are_computed_all_the_same(switched_on):
    """Some scripts read gradients then, to log those of the last step."""

    def run():
        mx.random.seed(3)
        net = CASES["mlp"].net()
        net.initialize(mx.init.Xavier())
        net.hybridize()
        for step in range(3):
            data, _ = batch(CASES["mlp"], "float32", step)
            with autograd.record():
                loss = (net(data) ** 2).mean()
                seen = [parameter.grad() for parameter in net.collect_params().values()]
            loss.backward()
        del seen
        return [parameter.grad().asnumpy() for parameter in net.collect_params().values()]

    expected = run()
    switched_on(2)
    for found, gradient in zip(run(), expected):
        np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-7)
        assert np.abs(gradient).max() > 0


def test_statistics_read_while_recording_are_updated_all_the_same(switched_on):
    """Some scripts read statistics then, to log them after the forward pass."""

    def run():
        mx.random.seed(3)
        net = CASES["residual_cnn"].net()
        net.initialize(mx.init.Xavier())
        net.hybridize()
        for step in range(3):
            data, _ = batch(CASES["residual_cnn"], "float32", step)
            with autograd.record():
                loss = (net(data) ** 2).mean()
                seen = net[1].running_mean.data().asnumpy()
            loss.backward()
        return seen, net[1].running_mean.data().asnumpy()

    expected = run()
    assert np.abs(expected[1] - expected[0]).max() > 1e-4
    switched_on(2)
    found = run()
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)
