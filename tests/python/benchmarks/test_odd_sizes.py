"""benchmarks/odd_sizes.py runs, and its rows have verdicts. Timings are not checked."""

import pytest


@pytest.fixture(scope="module")
def odd_sizes(import_script):
    return import_script("odd_sizes")


def test_rows_compare_sizes_round_by_round(odd_sizes):
    taken = {("odd", 0): [1.3, 2.6], ("even", 0): [1, 2], ("odd", 2): [3, 3], ("even", 2): [2, 2]}
    plain, ours, added = odd_sizes.rows(odd_sizes.SIZES, taken)
    assert [each.measured for each in (plain, ours, added)] == ["1.30", "1.50", "1.15"]
    assert not any(each.met for each in (plain, ours, added))
    assert "batch 15, 255 channels, compared with batch 16, 256 channels" in ours.work


def test_quartiles_where_there_are_enough(odd_sizes):
    assert odd_sizes.quartiles([1.0, 2.0, 3.0]) == "2.00"
    assert odd_sizes.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.00 (1.50 to 4.50)"


@pytest.mark.whole
@pytest.mark.slow
def test_smoke(run_script):
    printed = run_script("benchmarks/odd_sizes.py", "--smoke", "--rounds", "1")
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 3
    assert all(row.endswith((" met |", " missed |")) for row in rows[2:])
    assert "batch 7, 9 channels" in rows[2]
