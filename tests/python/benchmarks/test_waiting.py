"""benchmarks/waiting.py runs, and its rows have verdicts. Timings are not checked."""

import pytest


@pytest.fixture(scope="module")
def waiting(import_script):
    return import_script("waiting")


def test_a_moment_takes_no_longer_than_clock_or_processor(waiting):
    assert waiting.Moment("", 3.0, 2.0).seconds == 2.0
    assert waiting.Moment("", 1.0, 2.0).seconds == 1.0


def test_lines_are_timed_in_order_and_the_end_is_last(waiting):
    found = waiting.moments("models")
    assert [each.line for each in found][-1] == ""
    assert any(each.line.startswith("mlp") for each in found)
    times = [each.clock_s for each in found]
    assert times == sorted(times)


def test_a_command_that_fails_is_no_measurement(waiting):
    with pytest.raises(SystemExit, match="tofu plan no-such-model: status 2"):
        waiting.moments("plan", "no-such-model")


def test_smoke(run_script):
    printed = run_script("benchmarks/waiting.py", "--smoke", "--rows", "plan", "limit")
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 2
    assert all(row.endswith((" met |", " missed |")) for row in rows[2:])
