"""Two executors, forward and backward, compared with MXNet's own executor."""

import numpy as np
import pytest

from ..models import convolutions, lstm, mlp, random, zoo
from ..whole import own_gradients, train

CASES = {
    "mlp": (mlp, 1e-6),
    "lstm": (lstm, 1e-6),
    "convolutions": (convolutions, 1e-6),
    "resnet18": (lambda: zoo("resnet18_v1", (2, 3, 16, 16), "float64", thumbnail=True), 1e-9),
    "mobilenet": (lambda: zoo("mobilenet0.25", (2, 3, 64, 64), "float64"), 1e-9),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_mxnets_own_executor(name):
    make, tolerance = CASES[name]
    symbol, inputs, parameters, aux = make()
    ours = train(symbol, inputs, parameters, aux)
    own = own_gradients(symbol, inputs, parameters, aux)
    assert len(ours) == len(own) and len(ours[0]) == len(own[0])
    for mine, theirs in zip(ours[0], own[0]):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(ours[1:], own[1:]):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            scale = np.abs(value).max() + 1e-6
            np.testing.assert_allclose(
                mine[key] / scale, value / scale, atol=tolerance, err_msg=key
            )


def errors(found, exact):
    """The error of each gradient, relative to its largest element."""
    return [
        np.abs(found[1][name] - value).max() / (np.abs(value).max() + 1e-9)
        for name, value in exact[1].items()
    ]


def test_float32_batch_norm_is_no_less_exact_than_mxnets():
    """Compares medians: if rounding moves one element across a relu, most gradients change."""
    symbol, _, parameters, aux = zoo("mobilenet0.25", (4, 3, 64, 64))
    ratios = []
    for seed in range(5):
        inputs = {"data": random((4, 3, 64, 64), seed=seed)}
        heads = [random((4, 10), seed=seed)]
        ours = train(symbol, inputs, parameters, aux, head_gradients=heads)
        own = own_gradients(symbol, inputs, parameters, aux, head_gradients=heads)
        doubles = (
            {k: v.astype("float64") for k, v in d.items()} for d in (inputs, parameters, aux)
        )
        exact = own_gradients(symbol, *doubles, head_gradients=[heads[0].astype("float64")])
        ratios.append(np.median(errors(ours, exact)) / np.median(errors(own, exact)))
    assert np.median(ratios) <= 1.5, ratios
