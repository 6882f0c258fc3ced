"""tofu check records runs, and tells rounding from faults."""

from __future__ import annotations

import numpy as np
import pytest

from tofu.plans.runs import Difference
from tofu.verify.script.compare_runs import compare, first_fault

SINGLE, DOUBLE = 1e-7, 2e-16


def arrays(noise=0.0, **changes):
    """Two steps of a net, with this error in every value."""
    whole = {
        f"{step}/{kind}/{name}": np.linspace(1, 2, 6) * (1 + noise)
        for step in (1, 2)
        for kind, name in (("output", "net[0] call 1"), ("gradient", "w"), ("weight", "w"))
    }
    return {**whole, **{key.replace("_", "/"): value for key, value in changes.items()}}


def found(single=None, double=None):
    return compare(
        (arrays(), arrays(SINGLE) if single is None else single),
        (arrays(), arrays(DOUBLE) if double is None else double),
    )


def test_rounding_is_no_fault():
    differences = found()
    assert first_fault(differences) is None
    assert [(each.step, each.kind) for each in differences[:3]] == [
        (1, "output"), (1, "gradient"), (1, "weight"),
    ]  # fmt: skip
    assert all(each.single == pytest.approx(SINGLE, rel=0.1) for each in differences)


def test_rounding_that_grows_is_no_fault():
    """A net that magnifies differences does so in both precisions."""
    assert first_fault(found(arrays(1e-2), arrays(1e-8))) is None
    assert first_fault(found(arrays(1e-2), arrays(1e-5))) is not None


def test_the_first_fault_is_named():
    wrong = {"2_gradient_w": np.linspace(1, 2, 6) * 1.001, "2_weight_w": np.full(6, 9.0)}
    fault = first_fault(found(arrays(SINGLE, **wrong), arrays(DOUBLE, **wrong)))
    assert (fault.step, fault.kind, fault.name) == (2, "gradient", "w")
    assert fault.double == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "value", [np.full(6, np.nan), np.full(6, np.inf), np.ones(5), np.ones((6, 1))]
)
def test_other_shapes_and_values_that_are_no_numbers_are_faults(value):
    fault = first_fault(found(double=arrays(DOUBLE, **{"1_weight_w": value})))
    assert (fault.kind, fault.double) == ("weight", float("inf"))


def test_numbers_that_overflow_alike_are_equal():
    same = arrays(**{"1_weight_w": np.array([np.nan, np.inf, 1.0])})
    assert first_fault(compare((same, same), (same, same))) is None
    other = arrays(**{"1_weight_w": np.array([np.nan, -np.inf, 1.0])})
    assert first_fault(compare((same, other), (same, other))).name == "w"


def test_a_tensor_that_one_run_lacks_is_a_fault():
    short = {key: value for key, value in arrays(DOUBLE).items() if not key.startswith("2/weight")}
    fault = first_fault(found(double=short))
    assert (fault.step, fault.kind) == (2, "weight")


def test_what_is_zero_but_for_rounding_is_measured_by_its_kind():
    """The gradient of a bias before a BatchNorm is such an array."""
    whole = arrays(**{"1_gradient_bias": np.array([1e-17, -2e-17])})
    parted = arrays(**{"1_gradient_bias": np.array([3e-17, 1e-17])})
    assert first_fault(compare((whole, parted), (whole, parted))) is None
    zero = {"1/gradient/w": np.zeros(3)}
    assert compare((zero, zero), (zero, zero))[0].double == 0.0
    one = {"1/gradient/w": np.ones(3)}
    assert compare((zero, one), (zero, one))[0].is_fault


def test_a_difference_that_is_no_number_is_a_fault():
    assert Difference(1, "output", "x", 0.0, float("nan")).is_fault
