"""A sum that several workers need whole is reduced in pieces, and computes the same."""

import functools

import numpy as np
import pytest

import tofu

from .models import CASES, train

STEPS = 4


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("options", [{"search": "data-parallel"}, {"allow_replication": True}])
def test_losses_and_weights(options, workers, dtype, tolerance):
    expected, expected_weights = serial("mlp", dtype)
    tofu.enable(workers=workers, device="cpu", **options)
    try:
        losses, weights = train(CASES["mlp"], dtype, STEPS)
    finally:
        tofu.disable()
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
