"""The user's options for the search."""

import pytest

from tofu.errors import PlanError
from tofu.plans.options import SearchOptions, check_pins


def test_only_what_differs_from_the_default_is_handed_on():
    assert SearchOptions().arguments() == {"mode": "tofu"}
    options = SearchOptions("flat", 0, (("w", (1,)),), True, False)
    assert options.arguments() == {
        "mode": "flat",
        "time_limit_s": 0,
        "allow_replication": True,
        "coarsen": False,
    }


@pytest.mark.parametrize("name", ["allow_replication", "coarsen", "tie_updates", "equal_tiles"])
def test_every_switch_is_handed_on_alone(name):
    value = name != "coarsen"
    assert SearchOptions(**{name: value}).arguments() == {"mode": "tofu", name: value}


def test_a_pin_of_no_tensor_names_near_ones():
    names = {"fc1_weight", "fc2_weight", "data"}
    check_pins([("data", (0,)), ("fc1_weight", (1,))], names)
    with pytest.raises(
        PlanError, match=r"pin fc_weight: .*; did you mean fc\d_weight, fc\d_weight"
    ):
        check_pins([("data", (0,)), ("fc_weight", (0,))], names)
    with pytest.raises(PlanError, match=r"pin qqqq: the graph has no tensor of that name$"):
        check_pins([("qqqq", (0,))], names)
