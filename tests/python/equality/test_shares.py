"""Runs with shares, or with bounds on multiples, give the results of a serial run."""

import functools
import json

import numpy as np
import pytest

import tofu
from tofu.gluon.session.session import looking
from tofu.planner import search
from tofu.plans.parts import Parts

from .mixed_machine import mixed_machine
from .models import CASES, train

STEPS = 4
DTYPES = [("float64", 1e-9), ("float32", 1e-5)]


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


def partitioned(model, dtype, workers, **options):
    """Losses, weights, and the first plan of a run."""
    compiled = []
    tofu.enable(workers=workers, device="cpu", **options)
    try:
        with looking(compiled=compiled.append):
            losses, weights = train(CASES[model], dtype, STEPS)
    finally:
        tofu.disable()
    return losses, weights, compiled


def assert_serial(model, dtype, tolerance, losses, weights):
    expected, expected_weights = serial(model, dtype)
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.fixture
def divide(monkeypatch):
    """Gives the first step of every plan these shares, and its bounds this multiple."""

    def set_up(first, multiple=1):
        def divided(plan, model, options):
            shares = (first, *[()] * (len(plan.parts) - 1))
            return plan.with_shares(shares=shares, multiple=multiple, time=None)

        monkeypatch.setattr(search, "_divided", divided)

    return set_up


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("fetch", ["multifetch", "plain"])
@pytest.mark.parametrize(
    ("model", "workers", "first", "multiple"),
    [
        ("mlp", 2, (3, 1), 1),
        ("mlp", 4, (3, 1), 4),
        ("residual_cnn", 2, (1, 3), 1),
        ("residual_cnn", 3, (3, 1, 2), 1),
        ("lstm", 4, (3, 1), 1),
    ],
)
def test_shares_of_three_to_one(model, workers, first, multiple, fetch, dtype, tolerance, divide):
    divide(first, multiple)
    losses, weights, compiled = partitioned(model, dtype, workers, fetch=fetch)
    assert_serial(model, dtype, tolerance, losses, weights)
    plan = compiled[0].plan
    assert plan.parts.shares[0] == first
    found = compiled[0]
    assert max(found.bytes_per_worker) > 1.3 * min(found.bytes_per_worker)
    fetched = found.fetched_bytes + found.shared_bytes - found.relayed_bytes
    assert fetched == plan.total_bytes - found.searched.update_bytes


@pytest.fixture
def mixed(tmp_path):
    """The file of a machine of two quick devices and two slow ones."""
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps(mixed_machine(2, slowness=1e6)))
    return str(path)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("model", ["mlp", "residual_cnn"])
def test_a_run_on_a_mixed_machine(model, dtype, tolerance, mixed):
    losses, weights, compiled = partitioned(model, dtype, 4, objective="time", machine=mixed)
    assert_serial(model, dtype, tolerance, losses, weights)
    plan = compiled[0].plan
    fast, slow = plan.parts.shares[0]
    assert 2 * slow < fast < 5 * slow
    assert len({Parts.of(each.searched) for each in compiled}) == 1, "all graphs share their tiles"
