"""MXNet's wheel for GPUs under tofu, on libraries that stand in for CUDA's (run.sh).

Engine, streams, copy threads and errors are MXNet's own; memory is the host's, tofu's kernels
run on the CPU, and MXNet's compute nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
COUNTS = (2, 4, 8)
# MXNet waits once more if a thread of the engine finds two operators in its queue.
_SLACK = 1.05
_SAMPLED = "text_lstm", "4"


def run(gpus, function, *args, **variables):
    """The result of a function of steps.py, in a process with these groups of GPUs."""
    ran = subprocess.run(
        [sys.executable, HERE / "steps.py", function, *args],
        env={**os.environ, "FAKE_GPUS": gpus, **variables},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1]), ran.stderr


@pytest.mark.parametrize("count", COUNTS)
def test_all_gpus_fetch_from_each_other(count):
    found, _ = run(str(count), "self_test")
    assert (found["kind"], found["reason"]) == ("multifetch", None)
    assert found["pending"] is None
    calls = found["calls"]
    assert calls["cuLaunchKernel"] == count
    # Only the kernels move data.
    for call in ("cudaMemcpyPeerAsync", "cudaMemsetAsync"):
        assert calls[call] == 0, call


@pytest.mark.parametrize("groups", ["1,1", "3,1", "4,4"])
def test_all_gpus_copy_if_some_are_out_of_reach(groups):
    found, _ = run(groups, "self_test")
    assert (found["kind"], found["pending"]) == ("plain", None)
    assert "these GPUs cannot read others' memory: GPU 0 that of GPU" in found["reason"]


def test_gpus_of_other_sessions_do_not_matter():
    found, _ = run("2,2", "two_sessions")
    assert found == [["multifetch", None]] * 2


@pytest.mark.parametrize(("gpus", "call"), [("4", "cuLaunchKernel"), ("4", "cuModuleLoadData")])
def test_a_failed_self_test_leaves_no_error_behind(gpus, call):
    found, _ = run(gpus, "failing_self_test", call)
    assert found["kind"] == "plain" and "CUDA's driver failed at" in found["reason"]
    assert found["pending"] is None


def test_fetches_of_every_kind_give_what_cpus_do():
    found, _ = run("4", "fetches")
    assert found["kinds"] > 10
    assert (found["wrong"], found["pending"]) == ([], None)


def test_a_failed_launch_is_reported_once():
    found, _ = run("4", "failing_launches")
    assert "CUDA's driver failed at launching a kernel" in found["error"]
    assert found["pending"] is None and found["right"]


def test_a_script_goes_on_after_failed_launches():
    variables = {"MXNET_GRAPH_PASS": "tofu", "TOFU_FETCH": "multifetch"}
    found, _ = run("4", "failing_training", "text_lstm", **variables)
    assert found["launches"] > 100
    assert found["wrong"] == []


def test_what_has_work_pending_may_be_deleted():
    found, _ = run("4", "deletion")
    assert (found["wrong"], found["pending"]) == ([], None)


# A sample compiles the kernels of one network only, for four GPUs.
_STEPS = [
    pytest.param(name, gpus, fetch, marks=() if (name, gpus) == _SAMPLED else pytest.mark.slow)
    for name in ("digits_resnet", "text_lstm")
    for gpus in ("2", "4", "8", "4,4")
    for fetch in ("multifetch", "plain")
]


@pytest.mark.parametrize(("name", "gpus", "fetch"), _STEPS)
def test_a_step_of_the_examples_makes_as_few_calls_as_recorded(name, gpus, fetch, budget):
    calls, told = run(gpus, "example", name, MXNET_GRAPH_PASS="tofu", TOFU_FETCH=fetch)
    assert f"over {sum(map(int, gpus.split(',')))} workers" in told
    assert ("cannot read others' memory" in told) == (gpus == "4,4" and fetch == "multifetch")
    allowed = budget(calls, name, fetch, gpus)
    assert {call: calls[call] for call in allowed if calls[call] > _SLACK * allowed[call]} == {}
    # A step makes the same number of these calls every time.
    exact = ("cuLaunchKernel", "cudaMemsetAsync")
    assert {call: calls[call] for call in exact} == {call: allowed[call] for call in exact}


@pytest.mark.parametrize("fetch", ["multifetch", "plain"])
def test_the_benchmark_counts_the_calls_that_a_step_makes(fetch):
    found, _ = run("4", "counted", "text_lstm", MXNET_GRAPH_PASS="tofu", TOFU_FETCH=fetch)
    expected, calls = found["expected"], found["found"]
    assert calls["cudaMemcpyPeerAsync"] == expected["copies"]
    assert calls["cuLaunchKernel"] == expected["kernels"]
    waits = calls["cudaStreamSynchronize"]
    assert expected["waits"] <= waits <= _SLACK * expected["waits"]
    # Operators that wait for the same fetches run as one.
    assert expected["launches"] < 0.7 * found["operators"]
