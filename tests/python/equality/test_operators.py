"""Every strategy of every described operator, over 2, 3, 4 and 8 workers with MultiFetch.

The calls are those of ``tofu verify``. Each strategy is one graph in which every tensor is
cut at random, so workers fetch the regions that they read. A sample runs with the other tests;
all calls take a few minutes with ``pytest --full``.
"""

import os
import random

import numpy as np
import pytest

import tofu.tdl  # noqa: F401 registers the descriptions
from tofu.verify.calls.operator_calls import shipped_cases
from tofu.verify.check.draw import drawn
from tofu.verify.run.by_parts import Run, check_distribution, check_equal

from .operators import by_parts, reason_not_to_run, strategies

PARTS = {2: [2], 3: [3], 4: [2, 2], 8: [2, 2, 2]}
SEED = int(os.environ.get("TOFU_TEST_SEED", "5"))
SAMPLED = 60  # one in this many calls


def cases():
    for number, case in enumerate(shipped_cases()):
        marks = [pytest.mark.whole] if number % SAMPLED else []
        yield pytest.param(case, id=case.name, marks=marks)


def with_sizes_that_eight_divides(case):
    """The call with such sizes, if that is valid; cases have sizes that are multiples of six."""
    other = drawn(case, np.random.default_rng(SEED), sizes=(8,))
    try:
        return Run(other or case, SEED)
    except Exception:  # some operators check sizes only later
        return Run(case, SEED)


@pytest.mark.parametrize("case", list(cases()))
def test_parts_that_fetch_make_the_whole(case):
    reason = reason_not_to_run(case)
    if reason is not None:
        pytest.skip(reason)
    print("seed", SEED)
    rng = random.Random(SEED)
    for workers, parts in PARTS.items():
        run = Run(case, SEED) if workers < 4 else with_sizes_that_eight_divides(case)
        if any(0 in array.shape for array in [*run.inputs, *run.outputs]):
            pytest.skip("has a tensor without elements, which cannot be divided")
        for cuts in strategies(run, parts, rng):
            outputs, _ = by_parts(run, parts, cuts, rng)
            for number, (found, whole) in enumerate(zip(outputs, run.outputs)):
                if number in case.skip:
                    continue
                where = f"output {number} of {case.name} over {workers} workers, cut by {cuts}"
                check = check_distribution if run.random else check_equal
                check(found, whole, where)


@pytest.mark.parametrize("op", ["gather_nd", "scatter_nd"])
def test_operators_that_mxnet_takes_for_backward_ones_can_fetch(op):
    """Such operators must not depend on the fetch by a control dependency."""
    run = Run(next(case for case in shipped_cases() if case.op == op), SEED)
    rng = random.Random(SEED)
    for cuts in strategies(run, [2], rng):
        (found,), fetches = by_parts(run, [2], cuts, rng)
        check_equal(found, run.outputs[0], op)
        assert fetches > 0
