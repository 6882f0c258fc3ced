"""No test sees the variables that another one set."""

import os


def test_a_variable_is_set() -> None:
    assert "TOFU_LEFT_BEHIND" not in os.environ
    os.environ["TOFU_LEFT_BEHIND"] = "1"


def test_it_is_gone_in_the_next_test() -> None:
    assert "TOFU_LEFT_BEHIND" not in os.environ
