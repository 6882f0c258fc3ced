"""Every plan of a frontier runs, with the results of the serial run."""

import functools

import numpy as np
import pytest
from mxnet.gluon import nn

import tofu
from tofu.gluon.session.session import looking
from tofu.mx.model.saving import save_plan
from tofu.planner.search import plan_frontier
from tofu.plans import Problem, SearchOptions

from .models import Case, train

STEPS = 2
TOLERANCES = {"float64": 1e-9, "float32": 2e-5}


def dense():
    net = nn.HybridSequential(prefix="net_")  # a saved plan knows tensors by their names
    with net.name_scope():
        net.add(nn.Dense(48, activation="relu"), nn.Dense(24, activation="tanh"), nn.Dense(12))
    return net


CASE = Case(dense, (24, 36), 12, "adam", {"learning_rate": 0.003})


@functools.cache
def serial(dtype):
    return train(CASE, dtype, STEPS)


def partitioned(dtype, **options):
    seen = []
    tofu.enable(device="cpu", log="quiet", **options)
    try:
        with looking(compiled=seen.append):
            return train(CASE, dtype, STEPS), seen[0]
    finally:
        tofu.disable()


def has_states_apart(plan):
    """Whether some of Adam's states have other cuts than their parameters."""
    cuts = {tensor.name: tensor.cuts for tensor in plan.tensors}
    return any(cuts[f"{name}:mean"] != own for name, own in cuts.items() if f"{name}:mean" in cuts)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("workers", [2, 4])
def test_each_plan_equals_the_serial_run(workers, dtype, tmp_path):
    expected, expected_weights = serial(dtype)
    table = partitioned(dtype, workers=workers)[1].searched.table
    found = plan_frontier(Problem("net", table, workers), SearchOptions(), searches=4)
    assert len(found.plans) >= 3
    if workers == 4:
        assert any(has_states_apart(each.read()) for each in found.plans)
    tolerance = TOLERANCES[dtype]
    for number, each in enumerate(found.plans):
        path, plan = tmp_path / f"{number}.plan", each.read()
        save_plan(path, each.problem, plan)
        (losses, weights), ran = partitioned(dtype, plan=path)
        assert ran.plan.total_bytes == plan.total_bytes
        np.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)
        for name, value in weights.items():
            np.testing.assert_allclose(
                value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
            )
