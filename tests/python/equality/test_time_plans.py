"""A plan for time gives the results of a serial run, even if all workers compute the same."""

import functools

import numpy as np
import pytest

import tofu
from tofu.gluon.session.session import looking
from tofu.planner import search

from .models import CASES, train

STEPS = 4


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


@pytest.fixture
def only_for_time(monkeypatch):
    """Take the search's plan for time, even if the plan for bytes is faster in simulation."""
    monkeypatch.setattr(search, "candidates", lambda options: {"time": options})
    monkeypatch.setattr(search, "fast_rivals", lambda *_: {})


@pytest.mark.usefixtures("only_for_time")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("replication", [False, True])
@pytest.mark.parametrize("model", ["residual_cnn", "lstm"])
def test_losses_and_weights(model, replication, dtype, tolerance):
    expected, expected_weights = serial(model, dtype)
    compiled = []
    tofu.enable(
        workers=4,
        device="cpu",
        objective="time",
        machine="p2.8xlarge",
        allow_replication=replication,
    )
    try:
        with looking(compiled=compiled.append):
            losses, weights = train(CASES[model], dtype, STEPS)
    finally:
        tofu.disable()
    plan = compiled[0].plan
    assert plan.objective == "time"
    whole = [op for op in plan.operators if None in op.cuts]
    if replication:  # tiny operators take longer to push than to compute
        assert len(whole) > len(plan.operators) / 2
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
