"""scripts/memory.py on a reduced model whose tensors are of full size."""

import json

import pytest

pytest.importorskip("mxnet")


def test_variants_are_what_mxnet_plans(run_script):
    printed = run_script("scripts/memory.py", "--smoke", "--workers", "4", "--format", "json")
    rows = {row["variant"]: row for row in json.loads(printed)["rows"]}
    assert list(rows) == [
        "plain", "multifetch", "shared", "control_deps", "match_range", "halves",
        "two_executors", "gathered_output", "tiles",
    ]  # fmt: skip
    for row in rows.values():
        # MXNet prints whole MiB, and one number for each executor.
        assert row["predicted_mib"] == pytest.approx(row["planned_mib"], rel=0.01, abs=2)
        assert row["planned_mib"] > 100
        assert len(row["bytes_per_worker"]) == row["workers"] == 4
        assert row["ratio"] == pytest.approx(
            4 * max(row["bytes_per_worker"]) / row["serial_bytes"], rel=1e-3
        )
    assert rows["match_range"]["ratio"] <= rows["control_deps"]["ratio"]
    assert rows["halves"]["ratio"] <= rows["two_executors"]["ratio"]
    assert rows["shared"]["fetched_bytes"] < rows["multifetch"]["fetched_bytes"]
    # The loss reads the net's output as tiles, in place.
    whole, tiles = rows["gathered_output"], rows["tiles"]
    scores = 4 * 8192 * 8 * 48  # of the reduced model: bytes, batch, positions, vocabulary
    assert min(whole["bytes_per_worker"]) < max(whole["bytes_per_worker"]) - 2 * scores
    assert max(tiles["bytes_per_worker"]) < 1.01 * min(tiles["bytes_per_worker"])
    assert tiles["ratio"] < 1.15 < whole["ratio"]
