"""The plan of every search mode computes what a serial run computes."""

import functools

import numpy as np
import pytest

import tofu
from tofu import _core

from .models import CASES, train

STEPS = 4


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("mode", _core.search_modes[1:])
@pytest.mark.parametrize("model", ["residual_cnn", "lstm"])
def test_losses_and_weights(model, mode, dtype, tolerance):
    expected, expected_weights = serial(model, dtype)
    tofu.enable(workers=4, device="cpu", search=mode)
    try:
        losses, weights = train(CASES[model], dtype, STEPS)
    finally:
        tofu.disable()
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
