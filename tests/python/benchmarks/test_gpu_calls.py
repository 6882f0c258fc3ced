"""benchmarks/gpu_calls.py counts the calls that MXNet's executor would make."""

import json

import pytest

from tofu import _core


@pytest.fixture(scope="module")
def gpu_calls(import_script):
    return import_script("gpu_calls")


def graph(*nodes, heads):
    """Nodes as (operator, worker, numbers of inputs)."""
    document = {
        "nodes": [
            {
                "op": op,
                "name": f"n{number}",
                "attrs": {"__ctx_group__": f"worker{worker}", "spec": ""},
                "inputs": [[i, 0, 0] for i in inputs],
            }
            for number, (op, worker, inputs) in enumerate(nodes)
        ],
        "node_row_ptr": list(range(len(nodes) + 1)),
        "heads": [[head, 0, 0] for head in heads],
        "attrs": {
            "shape": ["list_shape", [[4]] * len(nodes)],
            "dtype": ["list_int", [0] * len(nodes)],
        },
    }
    return document


def count(gpu_calls, document):
    return gpu_calls.count(_core.Graph(json.dumps(document)), 2)


def test_a_copy_ends_a_segment_and_readers_on_one_worker_share_it(gpu_calls):
    example = graph(
        ("null", 0, []),
        ("relu", 0, [0]),
        ("sigmoid", 0, [1]),
        ("relu", 1, [2]),  # copied to worker 1 before this
        ("sigmoid", 1, [2, 3]),  # the same copy
        heads=[4],
    )
    found = count(gpu_calls, example)
    assert (found["copies"], found["launches"], found["waits"]) == (1, 2, 3)


def test_what_is_read_in_place_is_not_copied(gpu_calls):
    example = graph(("null", 0, []), ("_tofu_multifetch", 1, [0]), heads=[1])
    example["nodes"][1]["attrs"]["__direct__"] = "1"
    assert count(gpu_calls, example)["copies"] == 0


def test_nodes_of_several_workers_are_no_segment(gpu_calls):
    example = graph(
        ("null", 0, []), ("null", 1, []), ("relu", 0, [0]), ("relu", 1, [1]), heads=[2, 3]
    )
    assert count(gpu_calls, example)["launches"] == 2


def test_nodes_that_no_head_needs_do_not_run(gpu_calls):
    example = graph(("null", 0, []), ("relu", 0, [0]), ("relu", 1, [0]), heads=[1])
    assert dict(count(gpu_calls, example)) == {
        "copies": 0, "launches": 1, "waits": 1, "kernels": 0,
    }  # fmt: skip


def test_it_prints_both_kinds_of_fetches(run_script):
    printed = run_script("benchmarks/gpu_calls.py", "--smoke", "--format", "json")
    calls = json.loads(printed)["calls"]
    assert set(calls) == {"in place", "plain"}
    assert calls["in place"]["copies"] == 0 < calls["plain"]["copies"]
    assert all(of["waits"] == of["copies"] + of["launches"] > 0 for of in calls.values())


@pytest.mark.whole
def test_a_step_makes_no_more_calls_than_wanted(gpu_calls):
    found = gpu_calls.measure(gpu_calls.MODEL, gpu_calls.WORKERS, None)
    for kind in ("in place", "plain"):
        for call, most in gpu_calls.GOALS.items():
            assert found[kind][call] <= most, kind
