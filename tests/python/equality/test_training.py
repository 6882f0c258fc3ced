"""A partitioned run means what the serial run means: losses, weights, running statistics."""

import functools

import numpy as np
import pytest

pytest.importorskip("mxnet")

import tofu

from .models import CASES, train

WORKERS = (2, 3, 4, 6, 8)


@pytest.fixture
def switched_on():
    """Turn tofu on for a number of CPU workers; off again afterwards."""

    def enable(workers):
        tofu.enable(workers=workers, device="cpu")

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
def test_equal_settings_give_bitwise_equal_runs(model, switched_on):
    switched_on(4)
    losses, weights = train(CASES[model], "float32", steps=5)
    again, weights_again = train(CASES[model], "float32", steps=5)
    assert losses.tobytes() == again.tobytes()
    for name, value in weights.items():
        assert value.tobytes() == weights_again[name].tobytes(), name
