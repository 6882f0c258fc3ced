"""benchmarks/search.py runs, and its results are correct. Timings are not checked."""

import json

import pytest


@pytest.fixture(scope="module")
def search(import_script):
    return import_script("search")


def test_exponent_is_that_of_the_power(search):
    records = [{"nodes": n, "median_seconds": 3e-6 * n**1.25} for n in (1000, 4000, 90000)]
    assert search.exponent(records) == pytest.approx(1.25)


def planned(model, workers, seconds, total, bound):
    status = "optimal" if total == bound else "steps-optimal"
    bytes_ = {"status": status, "total_bytes": total, "lower_bound_bytes": bound}
    return {"model": model, "workers": workers, "median_seconds": seconds, **bytes_}


def test_a_goal_is_met_by_what_is_proven_and_quick(search):
    plans = [
        planned("wresnet-152-10", 8, 0.25, 100, 100),
        planned("transformer", 8, 0.2, 101, 100),  # not proven
        planned("rnn-10-8k", 8, 0.11, 100, 100),  # too slow
        planned("mlp", 8, 5.0, 100, 100),  # has no goal
        planned("mlp", 64, 9.0, 104, 100),
        planned("vgg-16", 64, 2.0, 102, 100),
        planned("mlp", 1024, 61.0, 110, 100),
    ]
    growth = {"resnet": {"exponent": 1.11, "points": [{"nodes": 99502}]}}
    rows = search.goals({"plans": plans, "growth": growth})
    assert [row.met for row in rows] == [True, False, False, True, False, False]
    assert rows[1].measured == "0.20 s, at most 1.0% above"
    assert rows[3].work == "2 models, 64 workers"
    assert rows[3].measured == "gap at most 4.0% (mlp), at most 9.0 s (mlp)"
    assert rows[5].work == "growth, resnet to 99,502 nodes" and rows[5].goal == "n^1.1"


@pytest.mark.parametrize("depth", [20, 50, 152, 2000])
def test_residual_networks_have_the_depth_they_are_named_after(search, depth):
    blocks = search.resnet(depth).full.options["blocks"]
    assert len(blocks) == 4 and min(blocks) >= 1
    assert 3 * sum(blocks) + 2 == depth
    if depth == 152:
        assert blocks == (3, 8, 36, 3)


@pytest.mark.whole
def test_smoke(run_script, tmp_path):
    output = tmp_path / "results" / "search.json"
    options = ["--smoke", "--repeats", "1", "--output", output]
    printed = run_script("benchmarks/search.py", *options)
    found = json.loads(output.read_text(encoding="utf-8"))
    assert {"machine", "cores", "python", "mxnet", "scipy", "made", "load_before"} <= set(found)
    assert [(record["model"], record["workers"]) for record in found["plans"]] == [
        ("wresnet-152-10", 8),
        ("wresnet-152-10", 64),
        ("rnn-10-8k", 8),
        ("rnn-10-8k", 64),
    ]
    for row in found["goals"]:
        assert f"| {row['work']} | {row['measured']} | {row['goal']} |" in printed
    assert [row["work"].partition(",")[0] for row in found["goals"]] == [
        "wresnet-152-10",
        "rnn-10-8k",
        "2 models",
        "growth",
        "growth",
    ]
    assert all(plan["peak_bytes"] > 0 and plan["median_seconds"] > 0 for plan in found["plans"])
    assert len(found["steps"]) == 6 and all(step["ratio"] > 0 for step in found["steps"])
    for growth in found["growth"].values():
        first, second = growth["points"]
        assert first["nodes"] < second["nodes"] and first["workers"] == 8
