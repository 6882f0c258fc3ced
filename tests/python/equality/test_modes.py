"""A plan of every search mode means what the serial run means."""

import functools

import numpy as np
import pytest

import tofu
from tofu import _core

from .models import CASES, train

STEPS = 4


@functools.cache
def serial(model):
    return train(CASES[model], "float64", STEPS)


@pytest.mark.parametrize("mode", _core.search_modes[1:])
@pytest.mark.parametrize("model", ["residual_cnn", "lstm"])
def test_losses_and_weights(model, mode):
    expected, expected_weights = serial(model)
    tofu.enable(workers=4, device="cpu", search=mode)
    try:
        losses, weights = train(CASES[model], "float64", STEPS)
    finally:
        tofu.disable()
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=1e-9, atol=1e-9, err_msg=name
        )
