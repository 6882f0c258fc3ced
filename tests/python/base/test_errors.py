"""Scripts catch tofu's errors as the errors of Python that mean the same."""

import pytest

from tofu import errors

VALUES = (errors.ConfigError, errors.MemoryLimitError, errors.GraphError, errors.PlanError)
STATES = (errors.GradientError, errors.ConnectionLostError)
OWN = (errors.TdlError, errors.InconclusiveError, errors.InternalError)


@pytest.mark.parametrize("error", [*VALUES, *STATES, *OWN], ids=lambda error: error.__name__)
def test_an_error_is_tofus_and_one_of_pythons(error):
    assert issubclass(error, errors.TofuError)
    assert issubclass(error, ValueError) is (error in VALUES)
    assert issubclass(error, RuntimeError) is (error in STATES)


def test_every_error_is_looked_at():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert {each for each in kinds if issubclass(each, errors.TofuError)} == {
        errors.TofuError, *VALUES, *STATES, *OWN,
    }  # fmt: skip
