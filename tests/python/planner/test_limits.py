"""The limits of tiles that are tried until a plan fits."""

import pytest

from tofu.errors import PlanError
from tofu.planner.limits import fit_within


def searching(plans, least_tiles=0):
    """Search the cheapest of plans, each its tiles' bytes and the bytes that it holds."""

    def search(tiles):
        found = [plan for plan in plans if tiles is None or plan[0] <= tiles]
        if not found or (tiles is not None and tiles < least_tiles):
            raise PlanError("plan: found no plan")
        return found[0]  # the cheapest is the first

    return search


def held(plan):
    return plan[1]


def test_a_limit_far_above_the_tiles_is_lowered_faster():
    plans = [(700, 1001), (600, 900)]
    assert fit_within(searching(plans), held, 1000).found == (600, 900)


def test_a_limit_that_is_too_low_is_raised_again():
    plans = [(990, 1500), (800, 990)]
    assert fit_within(searching(plans), held, 1000, fallback=lambda: (500, 800)).found == (800, 990)


@pytest.mark.parametrize("tiles", [1, 500, 999])
def test_a_fallback_is_taken_if_no_limit_helps(tiles):
    fit = fit_within(searching([(tiles, 1500)]), held, 1000, fallback=lambda: (500, 900))
    assert fit.found == (500, 900)
    assert fit.fits
